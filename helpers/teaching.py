"""Predictions, recall questions and exercise checks: what asks the reader something."""

import html
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import ipywidgets as widgets

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

    def reveal(self, measured: object) -> "_Revealed":
        """What was measured beside what was predicted; follows a prediction made later.

        Raises:
            ValueError: no choice stands for what was measured.
        """
        right = [choice for choice, value in self.values.items() if value == measured]
        if not right:
            allowed = list(self.values.values())
            raise ValueError(f"measured must be one of the choices {allowed}, got {measured!r}")
        return _Revealed(self, right[0])


class _Revealed(_Shown):
    def __init__(self, prediction: Prediction, right: str):
        self.prediction, self.right = prediction, right
        self.widget = widgets.HTML()
        prediction.choice.observe(self._follow, "value")
        self._follow()

    def _follow(self, change: dict | None = None) -> None:
        self.widget.value = f"<b>{html.escape(self.text())}</b>"

    def text(self) -> str:
        chosen = self.prediction.choice.value
        if chosen is None:
            return f"Measured: {self.right}. You made no prediction."
        verdict = "as you predicted" if chosen == self.right else f"you predicted: {chosen}"
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


def check(function: Callable, cases: Sequence[tuple[tuple, object]], same=None) -> None:
    """Print, case by case, whether the reader's function gives what it should.

    Args:
        function: what the reader wrote; ``...`` or None handed back means not written yet.
        cases: pairs (arguments, expected).
        same: how two results are compared, ``same(got, expected)``; ``==`` unless given.

    Raises:
        TypeError: ``function`` cannot be called.
        ValueError: no case is given.
    """
    if not callable(function):
        raise TypeError(f"function must be callable, got {function!r}")
    if not cases:
        raise ValueError("cases must hold at least one (arguments, expected), got none")
    right = 0
    for arguments, expected in cases:
        call = f"{function.__name__}{_written(arguments)}"
        try:
            got = function(*arguments)
        except Exception as error:  # a reader's exercise may fail in any way; say which
            print(f"✗ {call} raised {type(error).__name__}: {error}")
            continue
        if got is None or got is ...:
            print(f"{function.__name__}: {NOT_WRITTEN}")
            return
        if (same or _equal)(got, expected):
            right += 1
        else:
            print(
                f"✗ {call} gave {_short(got)}, should be {_short(expected)}{_hint(got, expected)}"
            )
    if right == len(cases):
        print(f"✓ {function.__name__}: right in all {right} cases")


def show_source(function: Callable) -> None:
    """Print a function as it stands in helpers/, so that nothing a panel runs is hidden."""
    print(inspect.getsource(function), end="")


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


def _equal(got: object, expected: object) -> bool:
    return bool(got == expected)


def _written(arguments: tuple) -> str:
    return f"({', '.join(map(_short, arguments))})"


def _short(value: object) -> str:
    text = getattr(value, "__name__", None) or " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _hint(got: object, expected: object) -> str:
    """Where a number is a simple multiple of the right one, say so: it usually names the fault."""
    try:
        ratio = got / expected
        return f" ({ratio:.4g} times that)"
    except (TypeError, ValueError, ZeroDivisionError):
        return ""
