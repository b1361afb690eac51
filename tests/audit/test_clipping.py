"""A length other than the one meant has one name, and what clipping cannot do is no clipping."""

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW

from helpers.audit import audit
from helpers.samples import random_numbers
from tests.audit.loops import kinds, windows

X, Y = random_numbers(18, 4), random_numbers(18, 1)
RAGGED = [3, 5, 2, 4, 3, 1]  # in windows of four the last one is short
OTHER = "clipped-to-another-length"


def each(model, batch):
    return (model(batch[0]) - batch[1]).square().flatten()


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def training(*changes, optimizer_of=SGD, k=4, scale=1.0):
    """A right loop, times ``scale``, that makes these changes to the gradients before a step."""

    def train(model, batches):
        optimizer = optimizer_of(model.parameters(), lr=0.01)
        for window in windows(batches, k):
            elements = sum(len(x) for x, _ in window)
            for batch in window:
                (each(model, batch).sum() / elements * scale).backward()
            for change in changes:
                change(model)
            optimizer.step()
            optimizer.zero_grad()

    return train


def clip(length):
    return lambda model: nn.utils.clip_grad_norm_(model.parameters(), length)


def times(factor):
    def change(model):
        for parameter in model.parameters():
            parameter.grad.mul_(factor)

    return change


def audited(train, dtype=torch.float32, k=4, count=6, **options):
    batches = list(zip(X.to(dtype).split(RAGGED), Y.to(dtype).split(RAGGED), strict=True))
    return audit(train, net().to(dtype), batches[:count], each, k, **options)


@pytest.mark.parametrize("optimizer_of", [SGD, AdamW])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_a_right_loop_that_clips_to_a_tenth_of_what_is_meant(optimizer_of, dtype, k):
    train = training(clip(0.1), optimizer_of=optimizer_of, k=k)
    report = audited(train, dtype, k, max_norm=1.0)
    (finding,) = report.findings
    assert finding.kind == OTHER
    assert finding.updates == tuple(range(1, len(report.updates) + 1))
    unclipped = audited(training(optimizer_of=optimizer_of, k=k), dtype, k).updates[0].gradient
    expected = {"length": 0.1, "length meant": min(1.0, unclipped.norm().item()), "max_norm": 1.0}
    assert finding.evidence == pytest.approx(expected, rel=1e-4)
    assert audited(train, dtype, k, max_norm=0.1).ok
    assert audited(train, dtype, k).ok, "any length may be meant where none is told"


def test_the_right_update_is_clipped_to_the_length_that_is_meant():
    plain = audited(training()).updates[0].right
    assert plain.norm() > 0.2
    for changes in ([clip(0.1)], []):
        update = audited(training(*changes), max_norm=0.2).updates[0]
        torch.testing.assert_close(update.right, 0.2 * plain / plain.norm())


@pytest.mark.parametrize("count", [4, 6])
def test_gradients_left_longer_than_max_norm(count):
    report = audited(training(), count=count, max_norm=0.01)
    assert kinds(report) == {OTHER}
    assert report.findings[0].evidence["length meant"] == pytest.approx(0.01)


@pytest.mark.parametrize("count", [4, 6])
def test_a_fault_of_the_loss_is_seen_beside_another_length(count):
    # Three times the loss: no power of two, which may be a loss scale.
    report = audited(training(clip(0.1), scale=3), count=count, max_norm=1.0)
    assert kinds(report) == {"wrong-divisor", OTHER}


def test_gradients_divided_once_more_are_not_clipped():
    report = audited(training(times(1 / 4)), count=4, max_norm=100.0)
    assert kinds(report) == {"divided-twice"}


@pytest.mark.parametrize("count", [4, 6])
@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("factor", [-1.0, -0.5])
@pytest.mark.parametrize("max_norm", [None, 0.1])
def test_gradients_turned_round_have_no_known_name(count, k, factor, max_norm):
    for before in ([], [clip(0.1)]):
        train = training(*before, times(factor), k=k)
        report = audited(train, k=k, count=count, max_norm=max_norm)
        assert kinds(report) == {"unexplained"}
        assert report.choices == ()
    turned = audited(training(times(factor), k=k), k=k, count=count, max_norm=max_norm)
    assert turned.findings[0].evidence == pytest.approx({"times the right one": factor})


def test_a_loss_turned_round_has_no_known_name():
    report = audited(training(scale=-1.0))
    assert kinds(report) == {"unexplained"}
    assert report.findings[0].evidence == pytest.approx({"times the right one": -1})


def test_a_right_loss_made_smaller_is_not_divided_for_a_short_window():
    assert kinds(audited(training(times(0.3)))) == {"wrong-divisor"}
