"""Lesson 10's exercises take every right answer and catch every plausible wrong one."""

import pytest

from helpers.exercises.lesson_10 import FAIR, LEFT
from tests.exercises.answering import verdict

LESSON = "10"


def window_of(counts, i, k):
    return counts[i // k * k : i // k * k + k]


FACTORS = {
    "n k / N": lambda counts, k: [
        n * k / sum(window_of(counts, i, k)) for i, n in enumerate(counts)
    ],
    "as a tuple": lambda counts, k: tuple(
        k * n / sum(window_of(counts, i, k)) for i, n in enumerate(counts)
    ),
}
WRONG_FACTORS = {
    "left alone": lambda counts, k: [1.0] * len(counts),
    "k forgotten": lambda counts, k: [
        n / sum(window_of(counts, i, k)) for i, n in enumerate(counts)
    ],
    "the count of the epoch": lambda counts, k: [n * k / sum(counts) for n in counts],
    "the short window's own length": lambda counts, k: [
        k / len(window_of(counts, i, k)) for i in range(len(counts))
    ],
    "a full window's count": lambda counts, k: [n * k / (k * counts[0]) for n in counts],
    "one too few": lambda counts, k: [1.0] * (len(counts) - 1),
    "nothing returned": lambda counts, k: print(end=""),
}
LEFT_RIGHT = {
    "by divmod": lambda n, k, e: (n * e // k, n * e % k, n * e // k * k - 1),
    "as floats": lambda n, k, e: (float(n * e // k), n * e % k, n * e // k * k - 1),
}
LEFT_WRONG = {
    "an epoch at a time": lambda n, k, e: (n // k * e, n % k, n // k * k * e - 1),
    "the last one flushed": lambda n, k, e: (-(-n * e // k), 0, -(-n * e // k) * k - 1),
    "a schedule in updates": lambda n, k, e: (n * e // k, n * e % k, n * e // k - 1),
    "a schedule one step ahead": lambda n, k, e: (n * e // k, n * e % k, n * e // k * k),
}


@pytest.mark.parametrize("right", FACTORS)
def test_the_factors_take(right):
    assert verdict(LESSON, "exercise-1", FACTORS[right]).startswith("✓")


@pytest.mark.parametrize("wrong", WRONG_FACTORS)
def test_the_factors_catch(wrong):
    assert verdict(LESSON, "exercise-1", WRONG_FACTORS[wrong]).startswith("✗")


@pytest.mark.parametrize("right", LEFT_RIGHT)
def test_what_keras_leaves_takes(right):
    assert verdict(LESSON, "exercise-2", LEFT_RIGHT[right]).startswith("✓")


@pytest.mark.parametrize("wrong", LEFT_WRONG)
def test_what_keras_leaves_catches(wrong):
    assert verdict(LESSON, "exercise-2", LEFT_WRONG[wrong]).startswith("✗")


def test_the_numbers_asked_for_are_right():
    assert dict(LEFT) == {asked: LEFT_RIGHT["by divmod"](*asked) for asked, _ in LEFT}
    assert [expected for _, expected in FAIR] == [[1.0] * samples for (samples, _, _), _ in FAIR]
