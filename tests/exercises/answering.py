"""Lessons' cells run in tests: what they define, and what a check says of a reader's answer."""

import ast
import contextlib
import functools
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType

import nbformat

from helpers.teaching import check

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def sources(lesson: str) -> dict[str, str]:
    """The source of each code cell by its id; ``lesson`` is how the notebook's name begins."""
    (path,) = NOTEBOOKS.glob(f"{lesson}_*.ipynb")
    cells = nbformat.read(path, as_version=4).cells
    return {cell.id: cell.source for cell in cells if cell.cell_type == "code"}


def ran(lesson: str, *cells: str, space: dict | None = None) -> dict:
    """What the named cells define when they are run in this order; what they print is dropped."""
    space = {} if space is None else space
    for cell in cells:
        printed(functools.partial(exec, sources(lesson)[cell], space))
    return space


def helpers_of(lesson: str) -> dict:
    """What the set-up cell takes from helpers; it is not run, so no device is printed or chosen."""
    lines = sources(lesson)["set-up"].splitlines()
    space: dict = {}
    exec("\n".join(line for line in lines if line.startswith("from helpers")), space)
    return space


def verdict(lesson: str, cell: str, answer: str | Callable, space: dict | None = None) -> str:
    """What the check at the end of an exercise's cell prints once ``answer`` has been written.

    Args:
        lesson, cell: where the exercise is; the cell's last statement is the check.
        answer: the reader's code, which defines anew what the cell only sketches; or a function in
            place of the one that the cell sketches, under its name.
        space: what the cells before it define; unless given, what the lesson takes from helpers.
    """
    *given, asked = ast.parse(sources(lesson)[cell]).body
    space = helpers_of(lesson) if space is None else dict(space)
    exec(compile(ast.Module(given, []), cell, "exec"), space)
    if isinstance(answer, str):
        exec(answer, space)
    else:
        (stub,) = (part.name for part in given if isinstance(part, ast.FunctionDef))
        space[stub] = called(stub, answer)
    return printed(lambda: exec(compile(ast.Module([asked], []), cell, "exec"), space))


def called(name: str, function: FunctionType) -> FunctionType:
    """The same function under another name; the one given keeps its own."""
    parts = (function.__code__, function.__globals__, name, function.__defaults__)
    renamed = FunctionType(*parts, function.__closure__)
    renamed.__kwdefaults__ = function.__kwdefaults__
    return renamed


def printed(run: Callable[[], object]) -> str:
    """What is printed meanwhile."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        run()
    return out.getvalue()


def accepts(answer: Callable, cases: Sequence) -> bool:
    """Whether ``check`` finds the answer right in every case; none should raise."""
    said = printed(lambda: check(answer, cases))
    assert "raised" not in said, said
    return is_right(said)


def is_right(said: str) -> bool:
    """Whether a check is content: it has found nothing wrong, and has found it written."""
    return said.startswith("✓") and "✗" not in said
