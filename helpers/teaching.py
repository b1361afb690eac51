"""Predictions, recall questions and exercise checks: what asks the reader something."""

import ast
import html
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from weakref import WeakValueDictionary

import ipywidgets as widgets

from helpers.answers import Same, complaint, error_text, is_stub, short

NOT_WRITTEN = "not written yet"


class _Shown:
    """A widget in JupyterLab, plain text anywhere else."""

    widget: widgets.Widget

    def text(self) -> str:
        raise NotImplementedError

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {**(self.widget._repr_mimebundle_() or {}), "text/plain": self.text()}


class _Question(_Shown):
    """A question with choices of which at most one is picked."""

    def __init__(self, question: str, choices: Sequence[str]):
        choices = list(choices)
        if len(choices) < 2 or len(set(choices)) < len(choices):
            raise ValueError(f"choices must be two or more different ones, got {choices}")
        self.question = question
        self.choice = widgets.RadioButtons(
            options=choices, value=None, layout=widgets.Layout(width="max-content")
        )
        self.feedback = widgets.HTML()
        asked = widgets.HTML(f"<b>{html.escape(question)}</b>")
        self.widget = widgets.VBox([asked, self.choice, self.feedback])

    def text(self) -> str:
        return "\n".join([self.question, *(f"  ○ {choice}" for choice in self.choice.options)])


class Prediction(_Question):
    """A question to answer before the number is measured.

    A cell run again asks the same question anew, and what was revealed follows the new one.

    Args:
        question: what to predict.
        choices: each choice and the value it stands for, e.g. {"half as long": 0.5}.

    Raises:
        ValueError: fewer than two choices, or two that stand for one value.
    """

    def __init__(self, question: str, choices: Mapping[str, object]):
        super().__init__(f"Predict: {question}", list(choices))
        if len(set(choices.values())) < len(choices):
            raise ValueError(f"choices must stand for different values, got {dict(choices)}")
        self.values = dict(choices)
        self._asked = (question, *self.values.items())
        earlier = _newest.get(self._asked)
        self._revealed: list[_Revealed] = []
        if earlier:
            self._revealed, earlier._revealed = earlier._revealed, []
        _newest[self._asked] = self
        self.choice.observe(self._tell, "value")
        self._tell()

    def _tell(self, change: dict | None = None) -> None:
        for revealed in self._revealed:
            revealed.believe(self.choice.value)

    def reveal(self, measured: object) -> "_Revealed":
        """What was measured beside what was predicted; follows a prediction made later.

        Raises:
            ValueError: no choice stands for what was measured.
        """
        right = [choice for choice, value in self.values.items() if value == measured]
        if not right:
            allowed = list(self.values.values())
            raise ValueError(f"measured must be one of the choices {allowed}, got {measured!r}")
        newest = _newest.get(self._asked, self)
        newest._revealed.append(revealed := _Revealed(newest.choice.value, right[0]))
        return revealed


# For each question and its choices the prediction made last: the one that the reader sees.
_newest: WeakValueDictionary[tuple, Prediction] = WeakValueDictionary()


class _Revealed(_Shown):
    def __init__(self, chosen: str | None, right: str):
        self.right = right
        self.widget = widgets.HTML()
        self.believe(chosen)

    def believe(self, chosen: str | None) -> None:
        """Set this choice, or None, beside what was measured."""
        self.chosen = chosen
        self.widget.value = f"<b>{html.escape(self.text())}</b>"

    def text(self) -> str:
        if self.chosen is None:
            return f"Measured: {self.right}. You made no prediction."
        as_predicted = self.chosen == self.right
        verdict = "as you predicted" if as_predicted else f"you predicted: {self.chosen}"
        return f"Measured: {self.right}, {verdict}."


class Recall(_Question):
    """A question on what was read, with the answer and its reason as soon as one is picked.

    Args:
        question: what to recall.
        choices: possible answers, as they are shown.
        answer: the right one of them; computed in the lesson where it is a number.
        why: one sentence of reason.

    Raises:
        ValueError: the answer is none of the choices.
    """

    def __init__(self, question: str, choices: Sequence[object], answer: object, why: str):
        super().__init__(question, [str(choice) for choice in choices])
        if str(answer) not in self.choice.options:
            raise ValueError(f"answer must be one of {self.choice.options}, got {answer!r}")
        self.answer, self.why = str(answer), why
        self.choice.observe(self._follow, "value")

    def _follow(self, change: dict) -> None:
        right = self.choice.value == self.answer
        self.feedback.value = (
            f"{'✓ Yes' if right else '✗ Not quite'}: {html.escape(self.why)}"
            if self.choice.value
            else ""
        )

    def text(self) -> str:
        return f"{super().text()}\n  Answer: {self.answer}. {self.why}"


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


class _Bar(_Shown):
    def __init__(self, label: str, length: int):
        self.label, self.length = label, length
        style = {"description_width": "initial"}
        self.widget = widgets.IntProgress(max=length, description=label, style=style)

    def text(self) -> str:
        return f"{self.label}: {self.length} of them"


def _name(function: Callable) -> str:
    return getattr(function, "__name__", None) or type(function).__name__
