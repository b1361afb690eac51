import functools
import re

import pytest
import torch

from helpers.teaching import Prediction, Recall, asking, check, progress, show_source
from helpers.teaching.asking import seal

CHOICES = {"half": 0.5, "twice": 2.0}


def predicted(choice=None):
    prediction = Prediction("the gradient is", CHOICES)
    prediction.choice.value = choice
    return prediction


def test_without_a_prediction_the_measurement_stays_sealed():
    revealed = predicted().reveal(2.0)
    sealed = seal("Predict: the gradient is", "twice")
    said = f"Choose above, then run this cell. (The answer is sealed: {sealed}.)"
    assert revealed.text() == said
    assert said in revealed.widget.value
    revealed.believe("half")
    revealed.believe(None)
    assert revealed.text() == said


def test_another_answer_has_another_seal():
    choices = ["half", "twice", "2", "2.0", ""]
    seals = {seal(question, choice) for question in ("a", "b") for choice in choices}
    assert len(seals) == 2 * len(choices)
    assert all(re.fullmatch("[0-9a-f]{4}", one) for one in seals)


def test_a_prediction_stands_beside_the_measurement():
    assert predicted("half").reveal(2.0).text() == "Measured: twice, you predicted: half."
    assert predicted("twice").reveal(2.0).text() == "Measured: twice, as you predicted."


def test_a_prediction_made_late_still_arrives():
    prediction = predicted()
    revealed = prediction.reveal(2.0)
    prediction.choice.value = "half"
    assert "you predicted: half" in revealed.widget.value


def test_a_prediction_cell_run_again_is_the_one_that_the_reveal_believes():
    first = predicted("half")
    revealed = first.reveal(2.0)
    second = predicted()
    assert "sealed" in revealed.text()
    second.choice.value = "twice"
    assert "as you predicted" in revealed.widget.value
    first.choice.value = None
    first.choice.value = "half"
    assert "as you predicted" in revealed.widget.value


def test_a_reveal_by_an_earlier_object_believes_the_newest():
    first, second = predicted("half"), predicted("twice")
    revealed = first.reveal(2.0)
    assert revealed.text() == "Measured: twice, as you predicted."
    second.choice.value = "half"
    assert "you predicted: half" in revealed.widget.value
    assert "sealed" in (predicted(), revealed)[1].text()


def test_every_reveal_of_a_question_follows_the_cell_run_again():
    first = predicted("half")
    shown = [first.reveal(2.0), first.reveal(2.0)]
    newest = predicted("twice")
    assert [one.chosen for one in shown] == ["twice", "twice"]
    newest.choice.value = "half"
    assert [one.chosen for one in shown] == ["half", "half"]


@pytest.mark.parametrize(
    ("question", "choices"),
    [("the loss is", CHOICES), ("the gradient is", {"half": 0.5, "double": 2.0})],
)
def test_another_question_changes_no_reveal(question, choices):
    revealed = predicted("half").reveal(2.0)
    Prediction(question, choices)
    assert revealed.text() == "Measured: twice, you predicted: half."


def test_what_a_question_asks_and_reveals_is_text_and_no_html():
    prediction = Prediction("if i<k and k>i:", {"a<b>": 1, "b & c": 2})
    assert prediction.widget.children[0].value == "<b>Predict: if i&lt;k and k&gt;i:</b>"
    prediction.choice.value = "b & c"
    assert "a&lt;b&gt;, you predicted: b &amp; c" in prediction.reveal(1).widget.value
    assert prediction.choice.description_allow_html is False


def test_what_was_measured_must_be_a_choice():
    with pytest.raises(ValueError, match=r"measured must be one of .*\[0.5, 2.0\], got 3.0"):
        predicted().reveal(3.0)


@pytest.mark.parametrize("choices", [{}, {"one": 1}, {"one": 1, "uno": 1}])
def test_a_prediction_needs_different_choices(choices):
    with pytest.raises(ValueError, match="choices must"):
        Prediction("?", choices)


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Puts one question into an otherwise empty folder of questions."""
    (tmp_path / "05.toml").write_text(
        '[adds]\nquestion = "What does i<k do?"\nchoices = ["adds", "sets"]\n'
        'answer = "adds"\nwhy = "It <adds>."\n'
    )
    monkeypatch.setattr(asking.questions, "__defaults__", (tmp_path,))


def test_recall_answers_at_once_with_the_reason(asked):
    recall = Recall("05/adds")
    assert recall.widget.children[0].value == "<b>What does i&lt;k do?</b>"
    assert recall.feedback.value == ""
    recall.choice.value = "sets"
    assert recall.feedback.value == "✗ Not quite: It &lt;adds&gt;."
    recall.choice.value = "adds"
    assert recall.feedback.value == "✓ Yes: It &lt;adds&gt;."
    recall.choice.value = None
    assert recall.feedback.value == ""


def test_questions_read_as_text_without_a_kernel_and_without_their_answers(asked):
    text = Recall("05/adds")._repr_mimebundle_()["text/plain"]
    assert text == "What does i<k do?\n  ○ adds\n  ○ sets"


@pytest.mark.parametrize("name", ["05/set", "06/adds", "adds", 5])
def test_an_unknown_question_names_those_there_are(asked, name):
    allowed = "['05/adds']" if str(name).startswith("05") else "['05/...']"
    with pytest.raises(ValueError, match=re.escape(f"name must be one of {allowed}, got {name!r}")):
        Recall(name)


def halve(loss, k):
    return loss / k


CASES = [((3.0, 2), 1.5), ((7.0, 2), 3.5)]


def forgets_to_return(loss, k):
    loss = loss / k


def fails_later(loss, k):
    return loss / k if loss < 5 else {"k": k}[loss]


@pytest.mark.parametrize(
    ("function", "printed"),
    [
        (halve, "✓ halve: right in all 2 cases\n"),
        (lambda loss, k: ..., "<lambda>: not written yet\n"),
        (lambda loss, k: None, "<lambda>: not written yet\n"),
        (lambda loss, k: ... if loss else 0, "<lambda>: not written yet\n"),
        (
            forgets_to_return,
            "✗ forgets_to_return(3.0, 2) returned nothing: is a return missing? (in 2 cases)\n"
            "forgets_to_return: 0 of 2 cases right\n",
        ),
        (
            lambda loss, k: loss,
            "✗ <lambda>(3.0, 2) gave 3.0, should be 1.5 (2 times that)\n"
            "✗ <lambda>(7.0, 2) gave 7.0, should be 3.5 (2 times that)\n"
            "<lambda>: 0 of 2 cases right\n",
        ),
        (
            lambda loss, k: loss / k if loss < 5 else "seven",
            "✗ <lambda>(7.0, 2) gave seven, should be 3.5\n<lambda>: 1 of 2 cases right\n",
        ),
        (
            lambda loss, k: loss / (k - 2),
            "✗ <lambda>(3.0, 2) raised ZeroDivisionError: float division by zero (in 2 cases)\n"
            "<lambda>: 0 of 2 cases right\n",
        ),
        (
            fails_later,
            "✗ fails_later(7.0, 2) raised KeyError: 7.0\nfails_later: 1 of 2 cases right\n",
        ),
        (functools.partial(halve), "✓ partial: right in all 2 cases\n"),
    ],
)
def test_a_check_says_which_case_is_wrong_and_by_what_factor(function, printed, capsys):
    check(function, CASES)
    assert capsys.readouterr().out == printed


def test_nothing_is_right_where_nothing_is_expected(capsys):
    check(lambda k: k.clear(), [(([1],), None)])
    assert capsys.readouterr().out == "✓ <lambda>: right in all 1 cases\n"


def test_an_answer_that_the_comparison_cannot_take_is_wrong(capsys):
    check(lambda: torch.ones(2), [((), 1.0)], same=lambda got, expected: got == expected)
    out = capsys.readouterr().out
    assert out.startswith(
        "✗ <lambda>() gave tensor([1., 1.]), should be 1.0; comparing them raised"
    )
    assert out.endswith("<lambda>: 0 of 1 cases right\n")


def test_a_check_can_compare_its_own_way(capsys):
    check(lambda loss, k: loss / k + 1e-9, CASES, same=lambda a, b: abs(a - b) < 1e-6)
    assert capsys.readouterr().out == "✓ <lambda>: right in all 2 cases\n"


def test_a_check_of_nothing_is_refused():
    with pytest.raises(TypeError, match="function must be callable, got 5"):
        check(5, CASES)
    with pytest.raises(ValueError, match="cases must hold at least one"):
        check(halve, [])
    with pytest.raises(ValueError, match=r"each of cases must be .*, got \(3.0, 1.5\)"):
        check(halve, [(3.0, 1.5)])


def test_progress_fills_and_hands_on_every_item(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    assert list(progress(iter("abc"), "training")) == ["a", "b", "c"]
    assert shown[0].widget.value == shown[0].widget.max == 3
    assert shown[0].text() == "training: 3 of them"


def test_source_is_printed_as_it_stands(capsys):
    show_source(halve)
    assert capsys.readouterr().out == "def halve(loss, k):\n    return loss / k\n"


def kept(k):
    """One line more than needed."""
    # a comment
    return k


@functools.lru_cache
def left_out(k):
    """A docstring.

    It is longer than the code.
    It goes on.
    It ends here.
    """

    # a comment
    return k


class Whole:
    def method(self):
        """A docstring that is longer.

        Than the code.
        """
        return 1


def described():
    """A docstring

    and nothing else.
    """


@pytest.mark.parametrize(
    ("function", "printed"),
    [
        (
            kept,
            'def kept(k):\n    """One line more than needed."""\n    # a comment\n    return k\n',
        ),
        (
            left_out,
            "@functools.lru_cache\ndef left_out(k):\n    # a comment\n    return k\n",
        ),
        (Whole.method, "    def method(self):\n        return 1\n"),
        (
            described,
            'def described():\n    """A docstring\n\n    and nothing else.\n    """\n',
        ),
    ],
)
def test_a_docstring_longer_than_the_code_is_left_out_of_the_source(function, printed, capsys):
    show_source(function)
    assert capsys.readouterr().out == printed
