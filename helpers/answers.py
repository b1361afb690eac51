"""Whether a reader's answer to an exercise is right, and what to say when it is not."""

import dis
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence

Same = Callable[[object, object], bool]


def is_stub(function: Callable) -> bool:
    """Whether the function is not written yet: a docstring, ``...`` or None, and nothing else.

    It is the compiled code that is read, since a function typed into a console has no source.
    """
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:  # a class, or written in C
        return False
    does = [(step.opname, step.argval) for step in dis.get_instructions(code)]
    idle = all(name in ("RESUME", "NOP", "RETURN_VALUE") for name, _ in does if "CONST" not in name)
    return idle and all(value in (None, ...) for name, value in does if "CONST" in name)


def complaint(got: object, expected: object, same: Same | None = None) -> str:
    """What is wrong with an answer in one sentence; empty if it is right.

    Args:
        got, expected: the answer, and what it should be.
        same: how they are compared; :func:`same_values` unless given. Where it raises, the answer
            is of a kind that the comparison did not reckon with, and wrong.
    """
    came, wanted = short(got), short(expected)
    if came == wanted:  # "2" and 2 look alike
        came, wanted = f"{came} ({type(got).__name__})", f"{wanted} ({type(expected).__name__})"
    said = f"gave {came}, should be {wanted}"
    try:
        return "" if (same or same_values)(got, expected) else said + _hint(got, expected)
    except Exception as error:
        return said + (_lengths(got, expected) or f"; comparing them raised {error_text(error)}")


def same_values(got: object, expected: object) -> bool:
    """Whether two results hold equal values, whatever containers and number types they use.

    Lists, tuples, tensors and arrays are compared element by element, numbers by ``==``, which for
    a float32 tensor and a Python float is in float32; NaN counts as equal to NaN.
    """
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        alike = got.keys() == expected.keys()
        return alike and all(same_values(got[key], expected[key]) for key in expected)
    if _elements(got) is None or _elements(expected) is None:
        got, expected = _without_axes(got), _without_axes(expected)
    mine, other = _elements(got), _elements(expected)
    if mine is None and other is None:
        return bool(got == expected) or bool(got != got and expected != expected)
    if mine is None or other is None:
        return False
    return len(mine) == len(other) and all(map(same_values, mine, other))


def short(value: object) -> str:
    """A value, or a function's name, on one line of at most 60 characters."""
    text = getattr(value, "__name__", None) or " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def error_text(error: Exception) -> str:
    """The kind of error and what it says, on one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _elements(value: object) -> list | None:
    """What a list, tuple, tensor or array holds; None for a number or anything else."""
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return list(value) if is_sequence or getattr(value, "ndim", 0) else None


def _without_axes(value: object) -> object:
    """A tensor or array of one element as a number, its dtype kept; anything else as it is."""
    if getattr(value, "ndim", 0) and math.prod(value.shape) == 1:
        return value.reshape(())
    return value


def _hint(got: object, expected: object) -> str:
    """The factor to the right number, or the lengths of lists: they usually name the fault."""
    if isinstance(got, str) or isinstance(expected, str):
        return ""
    try:
        ratio = float(got) / float(expected)
    except (TypeError, ValueError, ArithmeticError, RuntimeError):
        return _lengths(got, expected)
    if not math.isfinite(ratio):
        return ""
    off = f"off by {float(got) - float(expected):.2g}"
    return f" ({off})" if f"{ratio:.4g}" == "1" else f" ({ratio:.4g} times that)"


def _lengths(got: object, expected: object, place: str = "") -> str:
    """Where two lists, or lists in them, first differ in length; empty if they don't."""
    mine, other = _elements(got), _elements(expected)
    if mine is None or other is None:
        return ""
    if len(mine) != len(other):
        where = f"at {place} " if place else ""
        return f" ({where}{len(mine)} long, should be {len(other)})"
    inside = (
        _lengths(a, b, f"{place}[{i}]") for i, (a, b) in enumerate(zip(mine, other, strict=True))
    )
    return next(filter(None, inside), "")
