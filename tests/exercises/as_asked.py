"""An exercise's check as the lesson calls it, given another answer than the stub."""

import ast
from collections.abc import Callable
from pathlib import Path

import nbformat

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def says(capsys, lesson: str, exercise: str, answer: Callable) -> str:
    """What the cell ``exercise`` of a lesson prints when the reader wrote ``answer``.

    Args:
        capsys: pytest's fixture.
        lesson: the notebook's name without its ending.
        exercise: the cell's id; it defines one function, the stub, and calls a check.
        answer: takes the stub's place and its name.
    """
    cells = nbformat.read(NOTEBOOKS / f"{lesson}.ipynb", as_version=4).cells
    sources = {cell.id: cell.source for cell in cells}
    space = {}
    imports = [line for line in sources["set-up"].splitlines() if line.startswith("from helpers")]
    exec("\n".join(imports), space)
    tree = ast.parse(sources[exercise])
    (stub,) = (part for part in tree.body if isinstance(part, ast.FunctionDef))
    tree.body.remove(stub)
    answer.__name__ = stub.name
    space[stub.name] = answer
    capsys.readouterr()
    exec(compile(tree, exercise, "exec"), space)
    return capsys.readouterr().out
