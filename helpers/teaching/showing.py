"""What a lesson shows beside its own outputs: sources of helpers, and progress."""

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence

import ipywidgets as widgets


class Shown:
    """A widget in JupyterLab, plain text anywhere else."""

    widget: widgets.Widget

    def text(self) -> str:
        raise NotImplementedError

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {**(self.widget._repr_mimebundle_() or {}), "text/plain": self.text()}


def show_source(function: Callable) -> None:
    """Print a function as it stands in helpers/, so that nothing a panel runs is hidden.

    A docstring that is longer than the code is left out.
    """
    lines = inspect.getsource(function).splitlines(keepends=True)
    first, last = _docstring_lines(lines)
    rest = [line for line in lines[:first] + lines[last:] if line.strip()]
    if rest and last - first > len(rest):
        while last < len(lines) and not lines[last].strip():
            last += 1
        lines[first:last] = []
    print("".join(lines), end="")


def _docstring_lines(lines: Sequence[str]) -> tuple[int, int]:
    """Where the docstring starts and ends, (0, 0) if there is none that can be left out."""
    indented = lines[0][:1].isspace()
    try:
        tree = ast.parse("".join(["if True:\n"] * indented + list(lines)))
    except SyntaxError:  # a lambda in the middle of something
        return 0, 0
    defined = tree.body[0].body[0] if indented else tree.body[0]
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    if not isinstance(defined, kinds) or ast.get_docstring(defined) is None:
        return 0, 0
    text, *rest = defined.body
    alone = rest and rest[0].lineno > text.end_lineno and text.lineno > defined.lineno
    return (text.lineno - 1 - indented, text.end_lineno - indented) if alone else (0, 0)


def progress(iterable: Iterable, label: str) -> Iterator:
    """The same items, with a progress bar that fills as they are taken."""
    from IPython.display import display

    items = list(iterable)
    bar = _Bar(label, len(items))
    display(bar)
    for item in items:
        yield item
        bar.widget.value += 1


class _Bar(Shown):
    def __init__(self, label: str, length: int):
        self.label, self.length = label, length
        style = {"description_width": "initial"}
        self.widget = widgets.IntProgress(max=length, description=label, style=style)

    def text(self) -> str:
        return f"{self.label}: {self.length} of them"
