import pytest

from helpers.teaching import Prediction, Recall, check, progress, show_source

CHOICES = {"half": 0.5, "twice": 2.0}


def predicted(choice=None):
    prediction = Prediction("the gradient is", CHOICES)
    prediction.choice.value = choice
    return prediction


def test_without_a_prediction_the_measurement_is_told_alone():
    assert predicted().reveal(2.0).text() == "Measured: twice. You made no prediction."


def test_a_prediction_stands_beside_the_measurement():
    assert predicted("half").reveal(2.0).text() == "Measured: twice, you predicted: half."
    assert predicted("twice").reveal(2.0).text() == "Measured: twice, as you predicted."


def test_a_prediction_made_late_still_arrives():
    prediction = predicted()
    revealed = prediction.reveal(2.0)
    prediction.choice.value = "half"
    assert "you predicted: half" in revealed.widget.value


def test_what_was_measured_must_be_a_choice():
    with pytest.raises(ValueError, match=r"measured must be one of .*\[0.5, 2.0\], got 3.0"):
        predicted().reveal(3.0)


@pytest.mark.parametrize("choices", [{}, {"one": 1}, {"one": 1, "uno": 1}])
def test_a_prediction_needs_different_choices(choices):
    with pytest.raises(ValueError, match="choices must"):
        Prediction("?", choices)


def test_recall_answers_at_once_with_the_reason():
    recall = Recall("What does backward() do?", ["adds", "sets"], "adds", "It <adds>.")
    assert recall.feedback.value == ""
    recall.choice.value = "sets"
    assert recall.feedback.value == "✗ Not quite: It &lt;adds&gt;."
    recall.choice.value = "adds"
    assert recall.feedback.value == "✓ Yes: It &lt;adds&gt;."
    recall.choice.value = None
    assert recall.feedback.value == ""


def test_the_answer_to_recall_must_be_a_choice():
    with pytest.raises(ValueError, match=r"answer must be one of .*, got 3"):
        Recall("?", [1, 2], 3, "")
    with pytest.raises(ValueError, match="two or more different"):
        Recall("?", [1, 1], 1, "")


def test_questions_read_as_text_without_a_kernel():
    text = Recall("How many?", [1, 2], 2, "Two.")._repr_mimebundle_()["text/plain"]
    assert text == "How many?\n  ○ 1\n  ○ 2\n  Answer: 2. Two."


def halve(loss, k):
    return loss / k


CASES = [((3.0, 2), 1.5), ((7.0, 2), 3.5)]


@pytest.mark.parametrize(
    ("function", "printed"),
    [
        (halve, "✓ halve: right in all 2 cases\n"),
        (lambda loss, k: ..., "<lambda>: not written yet\n"),
        (lambda loss, k: None, "<lambda>: not written yet\n"),
        (
            lambda loss, k: loss,
            "✗ <lambda>(3.0, 2) gave 3.0, should be 1.5 (2 times that)\n"
            "✗ <lambda>(7.0, 2) gave 7.0, should be 3.5 (2 times that)\n",
        ),
        (
            lambda loss, k: loss / k if loss < 5 else "seven",
            "✗ <lambda>(7.0, 2) gave seven, should be 3.5\n",
        ),
        (
            lambda loss, k: loss / (k - 2),
            "✗ <lambda>(3.0, 2) raised ZeroDivisionError: float division by zero\n"
            "✗ <lambda>(7.0, 2) raised ZeroDivisionError: float division by zero\n",
        ),
    ],
)
def test_a_check_says_which_case_is_wrong_and_by_what_factor(function, printed, capsys):
    check(function, CASES)
    assert capsys.readouterr().out == printed


def test_a_check_can_compare_its_own_way(capsys):
    check(lambda loss, k: loss / k + 1e-9, CASES, same=lambda a, b: abs(a - b) < 1e-6)
    assert capsys.readouterr().out == "✓ <lambda>: right in all 2 cases\n"


def test_a_check_of_nothing_is_refused():
    with pytest.raises(TypeError, match="function must be callable, got 5"):
        check(5, CASES)
    with pytest.raises(ValueError, match="cases must hold at least one"):
        check(halve, [])


def test_progress_fills_and_hands_on_every_item(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    assert list(progress(iter("abc"), "training")) == ["a", "b", "c"]
    assert shown[0].widget.value == shown[0].widget.max == 3
    assert shown[0].text() == "training: 3 of them"


def test_source_is_printed_as_it_stands(capsys):
    show_source(halve)
    assert capsys.readouterr().out == "def halve(loss, k):\n    return loss / k\n"
