"""Public reports on unequal micro-batches: the right value and the one that was reported.

The loss of a sample or token is c * w, so its gradient is the number c.
"""

import math

import pytest
import torch
from torch import Tensor


def gradient(*losses) -> float:
    """What backward() on each of the losses, functions of w, leaves in .grad."""
    w = torch.zeros((), dtype=torch.float64, requires_grad=True)
    for loss in losses:
        loss(w).backward()
    return w.grad.item()


def total(c: list[float]):
    return lambda w: (w * torch.tensor(c, dtype=torch.float64)).sum()


def mean(c: list[float]):
    return lambda w: (w * torch.tensor(c, dtype=torch.float64)).mean()


def times(factor: float, loss):
    return lambda w: loss(w) * factor


def test_ragged_micro_batches_of_4_4_and_2():
    batches = [[1.0] * 4, [1.0] * 4, [7.0] * 2]
    assert gradient(*(times(1 / 10, total(c)) for c in batches)) == pytest.approx(2.2)
    assert gradient(*(times(1 / 3, mean(c)) for c in batches)) == pytest.approx(3.0)


def test_two_tokens_of_4_and_six_of_1():
    batches = [[4.0] * 2, [1.0] * 6]
    assert gradient(*(times(1 / 8, total(c)) for c in batches)) == 1.75
    assert gradient(*(times(1 / 2, mean(c)) for c in batches)) == pytest.approx(2.5)


def test_token_counts_across_two_ranks():
    ranks = [[[6.0], [2.0]], [[2.0, 2.0], [2.0, 2.0, 2.0, 2.0]]]
    targets = sum(len(c) for rank in ranks for c in rank)

    def averaged(factor) -> float:  # DistributedDataParallel averages over ranks
        each = [gradient(*(times(factor(rank), total(c)) for c in rank)) for rank in ranks]
        return sum(each) / len(ranks)

    assert averaged(lambda rank: len(ranks) / targets) == pytest.approx(2.5)
    assert averaged(lambda rank: 1 / sum(map(len, rank))) == pytest.approx(3.0)
    assert averaged(lambda rank: 1 / targets) == pytest.approx(1.25)


def test_a_micro_batch_without_targets():
    some = [2.0, 2.0, 2.0]

    def masked_mean(w):  # a mask that keeps nothing, and a mean written by hand
        kept = torch.zeros(3, dtype=torch.float64)
        return (w * torch.ones(3) * kept).sum() / kept.sum()

    assert gradient(times(1 / 3, total(some)), times(1 / 3, total([]))) == pytest.approx(2)
    assert math.isnan(gradient(times(1 / 2, mean(some)), times(1 / 2, masked_mean)))
    assert gradient(times(1 / 2, mean(some))) == pytest.approx(1)


@pytest.mark.parametrize(("steps", "weight"), [(False, 2.0), (True, 1.98)])
def test_a_window_without_targets_must_not_step(steps, weight):
    w = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    w.grad = torch.zeros_like(w)
    if steps:
        torch.optim.SGD([w], lr=0.1, weight_decay=0.1).step()
    assert w.item() == pytest.approx(weight)


def test_labels_are_counted_after_the_shift():
    rows = [[4.0] * 2, [4.0] * 4]  # rows of 3 and 5 tokens
    assert gradient(*(times(1 / 6, total(c)) for c in rows)) == pytest.approx(4)
    assert gradient(*(times(1 / 8, total(c)) for c in rows)) == pytest.approx(3)


def test_an_auxiliary_mean_is_divided_by_the_steps_too():
    auxiliary = [mean([1.0])] * 4
    assert gradient(*(times(1 / 4, term) for term in auxiliary)) == 1
    assert gradient(*auxiliary) == 4


def test_each_term_has_its_own_denominator():
    boxes: list[tuple[float, int]] = [(4.0, 1), (3.0, 3)]  # sum of the box losses, target boxes

    def loss(value: float, count: int):
        return lambda w: w * value / count

    found = sum(count for _, count in boxes)
    assert gradient(*(loss(value, found) for value, _ in boxes)) == pytest.approx(1.75)
    assert gradient(*(times(1 / 2, loss(*box)) for box in boxes)) == pytest.approx(2.5)


def test_a_float16_sum_of_many_token_gradients_overflows_and_a_divided_one_does_not():
    def held(c: Tensor) -> float:
        w = torch.zeros((), dtype=torch.float16, requires_grad=True)
        for part in c.split(500):
            (w * part.sum()).backward()
        return w.grad.item()

    tokens = torch.full((2000,), 40.0, dtype=torch.float16)
    assert held(tokens) == math.inf
    assert held(tokens / 2000) == pytest.approx(40, rel=1e-2)
