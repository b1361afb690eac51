"""What cannot be equal is told from what is wrong, and a fault is still seen beside it."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from helpers.audit import audit
from helpers.samples import random_numbers
from tests.audit.loops import SGD, kinds, windows

X, Y = random_numbers(12, 4), random_numbers(12, 1).square()
BATCHES = [(X[i : i + 3], Y[i : i + 3]) for i in range(0, 12, 3)]


def net(*between):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), *between, nn.Tanh(), nn.Linear(8, 1))


def each(model, batch):
    return (model(batch[0]) - batch[1]).square().flatten()


def training(divisor=2, steps=2, loss=lambda model, batch: each(model, batch).mean()):
    def train(model, batches):
        optimizer = SGD(model.parameters(), 0.1)
        for window in windows(batches, steps):
            for batch in window:
                (loss(model, batch) / divisor).backward()
            optimizer.step()
            optimizer.zero_grad()

    return train


def in_one(model):
    """The kinds found in a right loop, all of which must be of the sort that can't be mended."""
    report = audit(training(), model, BATCHES, each, 2)
    assert report.wrong == ()
    return kinds(report)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(8), nn.BatchNorm1d(8, track_running_stats=False)])
def test_forum_18870_batch_norm_cannot_be_equal(layer):
    assert in_one(net(layer)) == {"batch-statistics"}


class Centred(nn.Module):
    """A batch statistic under no known name."""

    def forward(self, x):
        return x - x.mean(0)


def test_a_layer_of_ones_own_that_mixes_samples_is_known_by_what_it_does():
    assert in_one(net(Centred())) == {"batch-statistics"}


def test_layers_that_treat_samples_apart_are_right():
    assert in_one(net(nn.LayerNorm(8))) == set()
    assert in_one(net(nn.GroupNorm(2, 8))) == set()
    assert in_one(net(nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)))) == set()


def test_frozen_batch_norm_is_right():
    class Frozen(nn.BatchNorm1d):
        def train(self, mode=True):
            return super().train(False)

    assert in_one(net(Frozen(8)).train()) == set()


def test_dropout_cannot_be_equal_and_is_held_against_its_own_masks():
    report = audit(training(), net(nn.Dropout(0.5)), BATCHES, each, 2)
    assert kinds(report) == {"random-layers"}
    assert all(u.comparison.relative_difference < 1e-5 for u in report.updates)


class Noise(nn.Module):
    def forward(self, x):
        return x + 0.1 * torch.randn_like(x)


def test_random_numbers_under_no_known_name_are_seen():
    assert in_one(net(Noise())) == {"random-layers"}


def test_dropout_and_batch_norm_are_both_named():
    assert in_one(net(nn.BatchNorm1d(8), nn.Dropout(0.5))) == {"batch-statistics", "random-layers"}


def test_a_fault_is_seen_beside_dropout_and_batch_norm():
    report = audit(training(divisor=1), net(nn.Dropout(0.5)), BATCHES, each, 2)
    assert kinds(report) == {"loss-not-divided", "random-layers"}
    report = audit(training(divisor=4), net(nn.BatchNorm1d(8)), BATCHES, each, 2)
    assert kinds(report) == {"divided-twice", "batch-statistics"}


def drop(weight):
    weight.grad = None


def halve_half(weight):
    weight.grad[:4] /= 2


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (drop, "cleared-inside-window"),
        (lambda weight: weight.grad.zero_(), "cleared-inside-window"),
        (halve_half, None),
    ],
)
@pytest.mark.parametrize("steps", [1, 2, 4])
def test_a_layer_that_loses_its_gradient_before_the_step_is_not_rounding(change, named, steps):
    def train(model, batches):
        optimizer = SGD(model.parameters(), 0.1)
        for window in windows(batches, steps):
            for batch in window:
                (each(model, batch).mean() / len(window)).backward()
            change(model[0].weight)
            optimizer.step()
            optimizer.zero_grad()

    report = audit(train, net(), BATCHES, each, steps)
    assert kinds(report) == ({named} if named else set())
    assert bool(report.choices) == (named is None), "a change by hand may be meant"


def in_batch(model, x):
    """Each sample's place among the others of its micro-batch."""
    similar = model(x) @ model(x).T
    return F.cross_entropy(similar, torch.arange(len(x)), reduction="none")


def test_sentence_transformers_2916_a_loss_over_the_whole_micro_batch():
    model = nn.Linear(4, 3)
    train = training(loss=lambda model, x: in_batch(model, x).mean())
    report = audit(train, model, [x for x, _ in BATCHES], in_batch, 2)
    assert kinds(report) == {"not-a-mean-of-elements"}
    assert report.wrong == ()


def test_one_micro_batch_a_window_is_the_large_batch():
    model = net(nn.BatchNorm1d(8), nn.Dropout(0.5))
    assert audit(training(divisor=1, steps=1), model, BATCHES, each, 1).ok


def test_assert_ok_lets_pass_what_the_reader_allows():
    report = audit(training(), net(nn.Dropout(0.5)), BATCHES, each, 2)
    report.assert_ok(allow=["random-layers"])
    with pytest.raises(AssertionError, match="random-layers"):
        report.assert_ok()
    with pytest.raises(ValueError, match="allow must name kinds"):
        report.assert_ok(allow=["dropout"])
