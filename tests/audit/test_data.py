"""Which data reach the model, and loops and arguments that cannot be audited."""

import random

import numpy
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from helpers.audit import audit
from tests.audit.loops import (
    SGD,
    OneWeight,
    audited,
    each_output,
    every,
    kinds,
    loop,
    right,
    samples,
    stepping_at,
    windows,
)

EIGHT = samples(*range(1, 9))
POWERS = samples(1, 2, 4, 8)


def over(order):
    """A right loop over what ``order`` makes of the micro-batches."""

    def train(model, batches):
        optimizer = SGD(model.parameters(), 0.1)
        for window in windows(order(batches), 2):
            for x in window:
                (model(x).sum() / sum(map(len, window))).backward()
            optimizer.step()
            optimizer.zero_grad()

    return train


@pytest.mark.parametrize(
    "order",
    [
        lambda batches: list(batches)[::-1],
        lambda batches: [batches[i] for i in (0, 2, 1, 3, 4, 6, 5, 7)],
        lambda batches: [batches[0], *batches],
        lambda batches: [*batches[:3], *batches[4:]],
        lambda batches: [x * 2 for x in batches],
        lambda batches: [x + 0.5 if x[0] == 3 else x for x in batches],
    ],
    ids=["reversed", "shuffled", "one twice", "one left out", "all changed", "one changed"],
)
def test_other_data_or_another_order_are_named(order):
    assert kinds(audited(over(order), EIGHT, 2)) == {"order-or-data-differ"}


def test_transformers_5605_a_resume_that_skips_too_few():
    def train(model, batches):
        over(lambda b: b[:4])(model, batches)
        over(lambda b: b[2:])(model, batches)

    assert kinds(audited(train, EIGHT, 2)) == {"order-or-data-differ"}


def test_a_fault_is_named_beside_another_order():
    undivided = stepping_at(every(2))
    report = audited(lambda m, b: undivided(m, list(b)[::-1]), samples(*[[1, 2], [3, 5]] * 2), 2)
    assert kinds(report) == {"order-or-data-differ", "loss-not-divided"}


@pytest.mark.parametrize("pick", [list, tuple, lambda b: b, lambda b: [b[i] for i in range(8)]])
def test_the_micro_batches_are_known_again_however_they_are_taken(pick):
    assert audited(over(pick), EIGHT, 2, optimizer_updates=4).ok
    assert audited(over(pick), tuple(EIGHT), 2, optimizer_updates=4).ok


def test_equal_micro_batches_are_told_apart_by_their_order():
    assert audited(right(2, epochs=2), samples(1, 1, 1, 2, 1), 2).ok


def test_a_list_made_once_and_used_in_every_epoch_is_right():
    def train(model, batches):
        mine = list(batches)
        right(3, epochs=3)(model, mine)

    assert audited(train, EIGHT, 3, optimizer_updates=9).ok
    shuffled = DataLoader(TensorDataset(torch.randn(11, 3)), batch_size=2, shuffle=True)
    assert training_on(shuffled, 4, once=True).ok


class Unsized:
    """Can be iterated again and again, and has no length."""

    def __iter__(self):
        yield from EIGHT[:5]


def test_mmf_521_micro_batches_without_a_length():
    assert audited(right(2, epochs=2), Unsized(), 2).ok
    report = audited(stepping_at(lambda i, n: i % 2 == 1, 2), EIGHT[:5], 2)
    assert kinds(report) == {"window-dropped"}


class PlainModel(nn.Linear):
    """Outputs of shape (n,)."""

    def forward(self, x):
        return super().forward(x).squeeze(1)


def outputs_of(model, batch):
    return model(batch[0])


def training_on(batches, k, epochs=2, once=False):
    def train(model, loader):
        loader = list(loader) if once else loader
        optimizer = SGD(model.parameters(), 0.01)
        for _ in range(epochs):
            for window in windows(loader, k):
                for (x,) in window:
                    (model(x).sum() / sum(len(x) for (x,) in window)).backward()
                optimizer.step()
                optimizer.zero_grad()

    return audit(train, PlainModel(3, 1), batches, outputs_of, k)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_data_loader_is_audited_shuffled_or_not(shuffle):
    data = TensorDataset(torch.randn(11, 3))
    report = training_on(DataLoader(data, batch_size=2, shuffle=shuffle), 4)
    assert report.ok
    assert [len(u.micro_batches) for u in report.updates] == [4, 2] * 2


def test_a_loop_sees_a_list_as_a_list_and_a_loader_as_a_loader():
    def train(model, batches):
        assert isinstance(batches, (list, DataLoader))
        assert len(batches) == 4
        right(2)(model, batches)

    assert audited(train, POWERS, 2).ok
    numbers = TensorDataset(torch.arange(1.0, 5.0).double())
    loader = DataLoader(numbers, collate_fn=lambda rows: torch.stack(rows[0]))
    assert audited(train, loader, 2).ok


def test_nothing_of_the_readers_is_changed():
    data = samples([1, 2], [3, 5])
    model = OneWeight(2.0)
    model.weight.grad = torch.tensor(7.0, dtype=torch.float64)
    model.eval()

    def train(model, batches):
        model.train()
        random.random(), numpy.random.rand(), torch.rand(3)
        right(2)(model, batches)
        batches[0].mul_(0)
        batches.append(None)

    states = random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    assert audited(train, data, 2, model).ok
    after = random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    assert states == after
    assert [x.tolist() for x in data] == [[1, 2], [3, 5]]
    assert (model.weight.item(), model.weight.grad.item(), model.training) == (2, 7, False)


def test_the_loop_draws_the_random_numbers_that_it_would_have_drawn():
    seen = []

    def train(model, batches):
        seen.append(torch.rand(()).item())
        right(2)(model, batches)

    torch.manual_seed(3)
    audited(train, POWERS, 2)
    assert seen == [torch.rand(()).item()]


# Loops that cannot be audited.


def test_a_loop_that_never_calls_backward_is_refused():
    with pytest.raises(ValueError, match="train must call backward"):
        audited(lambda model, batches: [model(x) for x in batches], POWERS, 2)


def test_a_loop_that_trains_another_model_is_refused_and_leaves_that_alone():
    model, other = OneWeight(1.0), OneWeight(1.0)
    with pytest.raises(ValueError, match="it may train another one"):
        audited(lambda _, batches: right(2)(other, batches), POWERS, 2, model)
    with pytest.raises(ValueError, match="train must train the model that it is given"):
        audited(lambda _, batches: right(2)(model, batches), POWERS, 2, model)
    optimizer = SGD(model.parameters(), 0.1)

    def stepping_outside(model, batches):
        for x in batches:
            model(x).mean().backward()
        optimizer.step()

    with pytest.raises(ValueError, match="make the optimizer inside train"):
        audited(stepping_outside, POWERS, 2, model)
    assert (model.weight.item(), model.weight.grad) == (1, None)


def test_a_loop_that_raises_is_not_hidden():
    def train(model, batches):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        audited(train, POWERS, 2)


def test_a_loop_that_replaces_parameters_is_refused():
    def train(model, batches):
        model.weight = nn.Parameter(model.weight * 2)
        right(2)(model, batches)

    with pytest.raises(ValueError, match="put another in place of 'weight'"):
        audited(train, POWERS, 2)


def test_an_optimizer_that_needs_several_gradients_is_refused():
    def train(model, batches):
        optimizer = torch.optim.LBFGS(model.parameters())
        optimizer.step(lambda: model(batches[0]).mean())

    with pytest.raises(ValueError, match="LBFGS"):
        audited(train, POWERS, 2)


def test_a_loss_other_than_the_loops_is_unexplained():
    def train(model, batches):
        optimizer = SGD(model.parameters(), 0.1)
        for window in windows(batches, 2):
            for (x,) in window:
                (model(x).exp().mean() / 2).backward()
            optimizer.step()
            optimizer.zero_grad()

    data = [(torch.randn(4, 3),) for _ in range(4)]
    report = audit(train, PlainModel(3, 1), data, outputs_of, 2)
    assert kinds(report) == {"unexplained"}


def test_yolov5_an_auxiliary_loss_that_is_not_divided_is_unexplained():
    def train(model, batches):
        optimizer = SGD(model.parameters(), 0.1)
        for window in windows(batches, 2):
            for (x,) in window:
                (model(x).mean() / 2 + model.weight.square().sum()).backward()
            optimizer.step()
            optimizer.zero_grad()

    def loss(model, batch):
        return model(batch[0]) + model.weight.square().sum()

    data = [(torch.randn(4, 3),) for _ in range(4)]
    assert kinds(audit(train, PlainModel(3, 1), data, loss, 2)) == {"unexplained"}


# Arguments that are refused before anything runs.


def never(model, batches):
    raise AssertionError("it ran")


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda model, x: model(x).mean(), "1-D tensor .* got a scalar"),
        (lambda model, x: model(x).reshape(1, -1), r"got shape \(1, 1\)"),
        (lambda model, x: model(x).detach(), "with a gradient"),
        (lambda model, x: (model(x), torch.ones(3)), r"weights must have the shape of losses"),
    ],
)
def test_a_loss_that_is_none_is_refused(loss, message):
    with pytest.raises(ValueError, match=message):
        audited(never, POWERS, 2, loss=loss)


def test_a_loss_that_is_no_tensor_is_refused():
    with pytest.raises(TypeError, match=r"loss must return a tensor .* got float"):
        audited(never, POWERS, 2, loss=lambda model, x: 1.0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"train": None}, TypeError, "train must be a function"),
        ({"loss": nn.MSELoss()}, TypeError, "loss must be a function"),
        ({"model": nn.Identity()}, ValueError, "model must have trainable"),
        ({"batches": iter(POWERS)}, ValueError, "which can be read once"),
        ({"batches": []}, ValueError, "at least one micro-batch"),
        ({"batches": 3}, TypeError, "batches must be an iterable"),
        ({"accumulation_steps": 0}, ValueError, "accumulation_steps must be"),
        ({"accumulation_steps": 2.0}, TypeError, "accumulation_steps must be"),
        ({"optimizer_updates": -1}, ValueError, "optimizer_updates must be"),
        ({"last_window": "leak"}, ValueError, "last_window must be one of"),
        ({"reduction": "none"}, ValueError, "reduction must be one of"),
        ({"max_norm": 0}, ValueError, "max_norm must be above 0"),
        ({"max_norm": "1"}, TypeError, "max_norm must be a number"),
        ({"learning_rates": 0.1}, TypeError, "learning_rates must be a sequence"),
        ({"learning_rates": []}, ValueError, "at least one"),
        ({"logged": []}, TypeError, "logged must be a function"),
        ({"decay": 0.5}, ValueError, "given together"),
        ({"decay": 2, "averaged": len}, ValueError, "decay must be a number from 0 to 1"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, error, message):
    usual = {
        "train": never,
        "model": OneWeight(),
        "batches": POWERS,
        "loss": each_output,
        "accumulation_steps": 2,
    }
    with pytest.raises(error, match=message):
        audit(**usual | arguments)


def test_an_iterable_that_turns_out_empty_is_refused():
    with pytest.raises(ValueError, match="at least one micro-batch"):
        audited(never, DataLoader(TensorDataset(torch.zeros(0))), 2)


def test_a_loop_over_a_loop_of_its_own_is_right():
    assert audited(loop(lambda m, o, b: right(2)(m, b)), POWERS, 2).ok
