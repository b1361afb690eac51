"""Lesson 11's exercises take every right answer and catch every plausible wrong one."""

import pytest
import torch

from helpers.exercises.lesson_11 import ALL_FOUND, RIGHT, SUSPECTS, given_away_by, kinds_of
from helpers.subjects.museum import EXHIBITS
from helpers.subjects.museum_data import right_loop
from tests.exercises.answering import verdict

LESSON = "11"


def windowed(factor, at_end=True):
    """Steps after each third micro-batch and, ``at_end``, after the last.

    ``factor`` of (a micro-batch's samples, the window's sizes) multiplies a mean loss.
    """

    def loop(model, batches):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for i, x in enumerate(batches):
            window = [len(other) for other in batches[i // 3 * 3 : i // 3 * 3 + 3]]
            (model(x).mean() * factor(len(x), window)).backward()
            if i % 3 == 2 or (at_end and i + 1 == len(batches)):
                optimizer.step()
                optimizer.zero_grad()

    return loop


LOOPS = {
    "by windows": lambda model, batches: right_loop(model, batches),
    "by a test": windowed(lambda n, window: n / sum(window)),
}
WRONG_LOOPS = {
    "left as it is": lambda model, batches: EXHIBITS["lightning_19987"].loop(model, batches),
    "only the short window": lambda model, batches: EXHIBITS["deepmtp_34"].loop(model, batches),
    "only the sizes": windowed(lambda n, window: n * len(window) / sum(window) / 3),
    "no step on the last": windowed(lambda n, window: n / sum(window), at_end=False),
    "a sum": windowed(lambda n, window: n),
    "nothing trained": lambda model, batches: print(end=""),
}
SIZES = {
    "as in the solution": lambda: [1, 2],
    "a full window before": lambda: [2, 1, 2, 2],
    "the last one larger": lambda: (1, 1, 2, 3),
    "two windows": lambda: [3, 2, 1, 1, 2, 3, 2],
}
WRONG_SIZES = {
    "equal": lambda: [2, 2, 2, 2],
    "equal and few": lambda: [2, 2],
    "full windows": lambda: [2, 1, 2, 1, 2, 2],
    "too many samples": lambda: [20, 1, 20, 20],
    "none": lambda: [],
    "nothing returned": lambda: print(end=""),
}


@pytest.mark.parametrize("right", LOOPS)
def test_the_loop_takes(right):
    assert verdict(LESSON, "exercise-1", LOOPS[right]).startswith("✓")


@pytest.mark.parametrize("wrong", WRONG_LOOPS)
def test_the_loop_catches(wrong):
    assert verdict(LESSON, "exercise-1", WRONG_LOOPS[wrong]).startswith("✗")


@pytest.mark.parametrize("right", SIZES)
def test_the_sizes_take(right):
    assert verdict(LESSON, "exercise-2", SIZES[right]).startswith("✓")


@pytest.mark.parametrize("wrong", WRONG_SIZES)
def test_the_sizes_catch(wrong):
    assert verdict(LESSON, "exercise-2", WRONG_SIZES[wrong]).startswith("✗")


@pytest.mark.parametrize("one", range(1, 5))
def test_one_micro_batch_does_not_give_all_five_away(one):
    given_away = given_away_by(lambda: [one])
    assert not all(given_away(name) for name in SUSPECTS)


def test_what_is_asked_for_is_that_no_kind_is_found_and_that_all_five_are():
    assert {expected for _, expected in RIGHT} == {()}
    assert [kinds_of(right_loop)(*sizes) for sizes, _ in RIGHT] == [()] * len(RIGHT)
    assert dict(ALL_FOUND) == {(name,): True for name in SUSPECTS}
