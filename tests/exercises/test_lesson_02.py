import math

import pytest
import torch

from helpers.exercises import lesson_02
from helpers.exercises.lesson_02 import DIAGNOSE, FULL_NORM, MOST_STEPS, stranger
from helpers.gradients import full_batch_gradient
from helpers.models import one_neuron
from helpers.samples import eight_samples
from tests.exercises.answering import accepts


def by_counting_down(lr, curvature):
    for k in (8, 4, 2, 1):
        if k * lr * curvature < 2:
            return k
    return 0


def by_the_factor_of_each_update(lr, curvature):
    return sum(1 for k in (1, 2, 4, 8) if abs(1 - k * lr * curvature) < 1) and max(
        k for k in (1, 2, 4, 8) if abs(1 - k * lr * curvature) < 1
    )


def by_logarithm(lr, curvature):
    largest = math.log2(2 / (lr * curvature)) - 1e-9
    return 0 if largest < 0 else min(8, 2 ** math.floor(largest))


@pytest.mark.parametrize("right", [by_counting_down, by_the_factor_of_each_update, by_logarithm])
def test_the_limit_takes_any_right_way(right):
    assert accepts(right, MOST_STEPS)


WRONG_LIMITS = {
    "at the limit counted": lambda lr, c: max(
        (k for k in (1, 2, 4, 8) if k * lr <= 2 / c), default=0
    ),
    "one over the curvature": lambda lr, c: max(
        (k for k in (1, 2, 4, 8) if k * lr < 1 / c), default=0
    ),
    "at least one": lambda lr, c: max((k for k in (1, 2, 4, 8) if k * lr < 2 / c), default=1),
    "any whole number": lambda lr, c: min(8, math.ceil(2 / (lr * c)) - 1),
    "no more than four": lambda lr, c: max((k for k in (1, 2, 4) if k * lr < 2 / c), default=0),
    "the curvature of the eight samples": lambda lr, c: max(
        (k for k in (1, 2, 4, 8) if k * lr < 0.2011), default=0
    ),
}


@pytest.mark.parametrize("wrong", WRONG_LIMITS)
def test_the_limit_catches(wrong):
    assert not accepts(WRONG_LIMITS[wrong], MOST_STEPS)


FULL = torch.tensor([1.0, -3.5])


def with_the_first_gradient_as_the_full_batch(gradient):
    whole, cut = gradient(1), gradient(8)
    named = {1: "right", 8: "not divided", 1 / 8: "divided twice"}
    found = [name for k, name in named.items() if (cut - k * whole).norm() < 1e-3]
    return found[0] if found else "something else"


def with_an_angle_and_a_length(gradient):
    cut = gradient(2)
    cosine = (cut @ FULL) / (cut.norm() * FULL.norm())
    if cosine < 0.999:
        return "something else"
    return {1.0: "right", 2.0: "not divided", 0.5: "divided twice"}[
        round((cut.norm() / FULL.norm()).item(), 2)
    ]


def with_numbers_as_lists(gradient):
    weight, bias = gradient(4).tolist()
    ratios = {weight / 1.0, bias / -3.5}
    named = {1.0: "right", 4.0: "not divided", 0.25: "divided twice"}
    return named.get(ratios.pop(), "something else") if len(ratios) == 1 else "something else"


@pytest.mark.parametrize(
    "right",
    [
        with_the_first_gradient_as_the_full_batch,
        with_an_angle_and_a_length,
        with_numbers_as_lists,
    ],
)
def test_the_detector_takes_any_right_way(right):
    assert accepts(right, DIAGNOSE)


def by_the_norm(gradient):
    ratio = gradient(4).norm() / gradient(1).norm()
    if ratio > 1.5:
        return "not divided"
    return "divided twice" if ratio < 0.6 else "right"


def by_norms_in_proportion(gradient):
    ratios = [(gradient(k).norm() / FULL.norm()).item() for k in (2, 4, 8)]
    for name, power in (("right", 0), ("not divided", 1), ("divided twice", -1)):
        if all(abs(ratio - k**power) < 0.02 for ratio, k in zip(ratios, (2, 4, 8), strict=True)):
            return name
    return "something else"


def by_one_step_only(gradient):
    return "right" if torch.allclose(gradient(1), FULL) else "something else"


def by_the_bias_alone(gradient):
    ratio = (gradient(2)[1] / FULL[1]).item()
    if ratio > 1.2:
        return "not divided"
    return "divided twice" if ratio < 0.6 else "right"


def without_something_else(gradient):
    ratio = (gradient(4) @ FULL / (FULL @ FULL)).item()
    named = {1: "right", 4: "not divided", 0.25: "divided twice"}
    return named[min(named, key=lambda k: abs(math.log(max(ratio, 1e-9) / k)))]


@pytest.mark.parametrize(
    "wrong",
    [
        by_the_norm,
        by_norms_in_proportion,
        by_one_step_only,
        by_the_bias_alone,
        without_something_else,
    ],
)
def test_the_detector_catches(wrong):
    assert not accepts(wrong, DIAGNOSE)


def test_a_loop_that_clears_inside_and_clips_logs_the_right_norm_at_every_k():
    norms = [stranger(0, clears_inside=True, clips=True)(k).norm().item() for k in (1, 2, 4, 8)]
    assert norms == pytest.approx([FULL_NORM] * 4, rel=1e-3)


def test_a_loop_that_clears_inside_leaves_the_last_micro_batch_only():
    x, y = eight_samples()
    for k in (2, 4, 8):
        last = full_batch_gradient(one_neuron(), torch.nn.MSELoss(), x[-8 // k :], y[-8 // k :])
        assert stranger(1, clears_inside=True)(k).tolist() == (last / k).tolist()


def test_the_verdicts_do_not_stand_in_what_a_check_prints():
    named = {loop.__name__ for (loop,), _ in DIAGNOSE}
    assert named == {"gradient"}
    assert not hasattr(lesson_02, "strangers")
