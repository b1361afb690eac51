"""Exercise checks: whether the reader's function gives what it should."""

from collections.abc import Callable, Iterable, Sequence

from helpers.answers import Same, complaint, error_text, is_stub, short

NOT_WRITTEN = "not written yet"


def check(
    function: Callable, cases: Sequence[tuple[tuple, object]], same: Same | None = None
) -> None:
    """Print, case by case, whether the reader's function gives what it should.

    Args:
        function: what the reader wrote; with nothing in its body, or where it hands back ``...``,
            it counts as not written yet.
        cases: pairs (arguments, expected).
        same: how two results are compared, ``same(got, expected)``; unless given, by
            :func:`helpers.answers.same_values`, that is by ``==``, element by element.

    Raises:
        TypeError: ``function`` cannot be called.
        ValueError: no case is given, or one that is no pair (arguments, expected).
    """
    if not callable(function):
        raise TypeError(f"function must be callable, got {function!r}")
    if not cases:
        raise ValueError("cases must hold at least one (arguments, expected), got none")
    for case in cases:
        if not (isinstance(case, tuple) and len(case) == 2 and isinstance(case[0], tuple)):
            raise ValueError(f"each of cases must be (arguments, expected), got {case!r}")
    name = _name(function)
    if is_stub(function):
        print(f"{name}: {NOT_WRITTEN}")
        return
    right, faults = 0, []
    for arguments, expected in cases:
        call = f"{name}({', '.join(map(short, arguments))})"
        try:
            got = function(*arguments)
        except Exception as error:  # a reader's exercise may fail in any way; say which
            faults.append((call, f"raised {error_text(error)}"))
            continue
        if got is ...:
            print(f"{name}: {NOT_WRITTEN}")
            return
        if got is None and expected is not None:
            faults.append((call, "returned nothing: is a return missing?"))
        elif wrong := complaint(got, expected, same):
            faults.append((call, wrong))
        else:
            right += 1
    _print_once(faults)
    if right == len(cases):
        print(f"✓ {name}: right in all {right} cases")
    else:
        print(f"{name}: {right} of {len(cases)} cases right")


def _print_once(faults: Iterable[tuple[str, str]]) -> None:
    """Print what is wrong with each call; what is wrong with several alike, under the first."""
    calls: dict[str, list[str]] = {}
    for call, wrong in faults:
        calls.setdefault(wrong, []).append(call)
    for wrong, alike in calls.items():
        times = f" (in {len(alike)} cases)" if len(alike) > 1 else ""
        print(f"✗ {alike[0]} {wrong}{times}")


def _name(function: Callable) -> str:
    return getattr(function, "__name__", None) or type(function).__name__
