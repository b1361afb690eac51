"""Recall questions are whole, asked where they belong, and their numbers are worked out again."""

import re
from pathlib import Path

import pytest
import torch

from helpers.teaching.asking import questions
from tests.audit.loops import audited, every, kinds, samples, stepping_at

QUESTIONS = questions()
SEVEN = samples(1, 2, 3, 4, 5, 6, 7)
LESSONS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_whole(name):
    asked = QUESTIONS[name]
    assert asked.keys() == {"question", "choices", "answer", "why"}
    assert asked["answer"] in asked["choices"]
    assert len(set(asked["choices"])) == len(asked["choices"]) >= 2
    assert all(isinstance(choice, str) and choice for choice in asked["choices"])
    assert asked["question"].strip()
    assert asked["why"].endswith(".")
    assert asked["answer"] not in asked["question"] or len(asked["answer"]) < 3


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_asks_each_of_its_questions_once(lesson):
    number = lesson.stem[:2]
    asked = re.findall(r'Recall\(\\"(.*?)\\"\)', lesson.read_text())
    assert sorted(asked) == sorted(name for name in QUESTIONS if name.startswith(number))


def bfloat16_sum() -> float:
    held = torch.tensor(1.0, dtype=torch.bfloat16)
    for _ in range(256):
        held += torch.tensor(2.0**-8, dtype=torch.bfloat16)
    return held.item()


def epochs_until(kind: str) -> int:
    """How many epochs of a loop that never steps on its last window are needed to see a kind."""
    seen = (
        epochs
        for epochs in range(1, 9)
        if kind in kinds(audited(stepping_at(every(3, flush=False), 3, epochs), SEVEN, 3))
    )
    return next(seen)


NUMBERS = {
    "01/four-undivided": 4 * -3.5,
    "02/mean-of-eight": (4 * 3 + 4 * 7) / 8,
    "02/second-learning-rate": "1/4",
    "03/how-much-too-long": 4,
    "04/gone-by": sum((4, 1, 4, 1, 4)),
    "04/length-of-a-pair": len((torch.ones(8), torch.ones(8))),
    "05/updates-of-seven": len(range(0, 7, 3)),
    "05/targets-of-two-rows": len(range(1, 3)) + len(range(1, 5)),
    "06/eight-targets": (4 + 4 + 6 * 1) / 8,
    "06/negatives-seen": 256 // 16 - 1,
    "08/bfloat16-sum": bfloat16_sum(),
    "08/bytes-a-weight": sum([4, 4, 4, 4]),
    "09/larger-micro-batch": f"{64 // 16} micro-batches of 16",
    "09/factor-w": f"{round(20 / 8 / (20 / 8 / 4))} times too small",
    "09/effective-batch": 4 * 8 * 16,
    "10/reduces-in-a-window": sum(1 for _ in range(8)),
    "10/keras-schedule": 100 * 8,
    "11/short-window": 10000 // 2500,
    "11/epochs-for-a-leak": epochs_until("window-leaked"),
}


@pytest.mark.parametrize("name", [name for name in QUESTIONS if name in NUMBERS])
def test_a_number_is_right(name):
    assert QUESTIONS[name]["answer"] == str(NUMBERS[name])


def test_no_number_is_taken_on_trust():
    numeric = {name for name, asked in QUESTIONS.items() if re.match(r"[−-]?\d", asked["answer"])}
    assert numeric <= NUMBERS.keys(), "work the new ones out in NUMBERS"
    assert NUMBERS.keys() <= QUESTIONS.keys()
