"""Predictions and recall questions: what asks the reader something."""

import hashlib
import html
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from weakref import WeakValueDictionary

import ipywidgets as widgets

from helpers.teaching.showing import Shown

QUESTIONS = Path(__file__).parents[1] / "questions"


class _Question(Shown):
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

    A cell run again asks the same question anew, and what was revealed follows the new one. Nothing
    is revealed before a choice is made; until then a seal stands for the answer, so that a notebook
    stored without a choice gives nothing away, and yet shows another text when the answer changes.

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
        """What was measured beside what was predicted, as soon as something was; else a seal.

        Raises:
            ValueError: no choice stands for what was measured.
        """
        right = [choice for choice, value in self.values.items() if value == measured]
        if not right:
            allowed = list(self.values.values())
            raise ValueError(f"measured must be one of the choices {allowed}, got {measured!r}")
        newest = _newest.get(self._asked, self)
        newest._revealed.append(revealed := _Revealed(self.question, right[0]))
        revealed.believe(newest.choice.value)
        return revealed


# For each question and its choices the prediction made last: the one that the reader sees.
_newest: WeakValueDictionary[tuple, Prediction] = WeakValueDictionary()


class _Revealed(Shown):
    def __init__(self, question: str, right: str):
        self.right, self.chosen = right, None
        self._sealed = seal(question, right)
        self.widget = widgets.HTML()

    def believe(self, chosen: str | None) -> None:
        """Set this choice beside what was measured; None seals it again."""
        self.chosen = chosen
        self.widget.value = f"<b>{html.escape(self.text())}</b>"

    def text(self) -> str:
        if self.chosen is None:
            return f"Choose above, then run this cell. (The answer is sealed: {self._sealed}.)"
        as_predicted = self.chosen == self.right
        verdict = "as you predicted" if as_predicted else f"you predicted: {self.chosen}"
        return f"Measured: {self.right}, {verdict}."


def seal(question: str, answer: str) -> str:
    """Four hexadecimal digits that change when the answer does, and don't give it away."""
    return hashlib.sha256(f"{question}\n{answer}".encode()).hexdigest()[:4]


class Recall(_Question):
    """A question on what was read, with the answer and its reason as soon as one is picked.

    What it asks and answers stands in ``helpers/questions/``, so that neither its cell nor its
    stored text gives the answer away.

    Args:
        name: the lesson's number and the question's name in its file, e.g. "05/cut-anywhere".

    Raises:
        ValueError: no question has this name.
    """

    def __init__(self, name: str):
        asked = questions().get(name)
        if asked is None:
            lesson = str(name).partition("/")[0]
            near = [known for known in questions() if known.startswith(f"{lesson}/")]
            allowed = near or sorted({known.partition("/")[0] + "/..." for known in questions()})
            raise ValueError(f"name must be one of {allowed}, got {name!r}")
        super().__init__(asked["question"], asked["choices"])
        self.answer, self.why = asked["answer"], asked["why"]
        self.choice.observe(self._follow, "value")

    def _follow(self, change: dict) -> None:
        right = self.choice.value == self.answer
        self.feedback.value = (
            f"{'✓ Yes' if right else '✗ Not quite'}: {html.escape(self.why)}"
            if self.choice.value
            else ""
        )


def questions(folder: Path = QUESTIONS) -> dict[str, dict]:
    """Every recall question by its name, ``"lesson's number/name"``; in the order of the files.

    Each file of the folder, such as ``05.toml``, holds a table for each question of a lesson.
    """
    return {
        f"{path.stem}/{name}": asked
        for path in sorted(folder.glob("*.toml"))
        for name, asked in tomllib.loads(path.read_text(encoding="utf-8")).items()
    }
