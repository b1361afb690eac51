"""Lessons' cells run in tests: what they define, and what a check says of a reader's answer."""

import ast
import contextlib
import io
from pathlib import Path

import nbformat

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def sources(lesson: str) -> dict[str, str]:
    """The source of each code cell by its id; ``lesson`` is how the notebook's name begins."""
    (path,) = NOTEBOOKS.glob(f"{lesson}_*.ipynb")
    cells = nbformat.read(path, as_version=4).cells
    return {cell.id: cell.source for cell in cells if cell.cell_type == "code"}


def ran(lesson: str, *cells: str, space: dict | None = None) -> dict:
    """What the named cells define when they are run in this order; what they print is dropped."""
    space = {} if space is None else space
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in cells:
            exec(sources(lesson)[cell], space)
    return space


def verdict(lesson: str, cell: str, answer: str, space: dict) -> str:
    """What the check at the end of an exercise's cell prints once ``answer`` has been written.

    Args:
        lesson, cell: where the exercise is; the cell's last statement is the check.
        answer: the reader's code; it defines anew what the cell only sketches.
        space: what the cells before it define.
    """
    *given, check = ast.parse(sources(lesson)[cell]).body
    space = dict(space)
    exec(compile(ast.Module(given, []), cell, "exec"), space)
    exec(answer, space)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module([check], []), cell, "exec"), space)
    return printed.getvalue()


def is_right(said: str) -> bool:
    """Whether a check is content: it has found nothing wrong, and has found it written."""
    return said.startswith("✓") and "✗" not in said
