"""Faults that real loops have had, each with its right and its wrong value, seen by the recorder.

The numbers and the public reports they come from are in the project's list of bug reports; a test
names the report by its repository. The model's output for x is w * x, so x is its gradient.
"""

from collections.abc import Callable, Iterable
from itertools import islice

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

from helpers.recorder import Backward, Clear, Draw, Edit, Forward, Log, Schedule, Trace, record


class Toy(nn.Module):
    def __init__(self, *weights: float):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weights or (0.0,)))

    def forward(self, *x: float) -> Tensor:
        return (self.weight * torch.tensor(x)).sum()


def of_kind(trace: Trace, kind: type) -> list:
    return [event for event in trace.events if isinstance(event, kind)]


def updates(trace: Trace) -> list[float]:
    """The gradient that each update used, with its sign."""
    return [update.gradient.fingerprint for update in trace.updates]


def window_lengths(trace: Trace) -> list[int]:
    return [len(update.backwards) for update in trace.updates]


# Windows: which micro-batches enter an update, and what they are divided by.

Loop = Callable[[nn.Module, torch.optim.Optimizer, Iterable[float], int], None]


def boundary_at_every_kth(model, optimizer, gradients, k):
    for i, gradient in enumerate(gradients):
        (model(gradient) / k).backward()
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()


def last_window_divided_by_k(model, optimizer, gradients, k):
    boundary_at_every_kth(model, optimizer, gradients, k)
    optimizer.step()
    optimizer.zero_grad()


def boundary_off_by_one(model, optimizer, gradients, k):
    for i, gradient in enumerate(gradients):
        (model(gradient) / k).backward()
        if i % k == 0:
            optimizer.step()
            optimizer.zero_grad()


def cleared_before_each_backward(model, optimizer, gradients, k):
    for i, gradient in enumerate(gradients):
        loss = model(gradient) / k
        optimizer.zero_grad()
        loss.backward()
        if (i + 1) % k == 0:
            optimizer.step()


def right(model, optimizer, gradients, k):
    """Looks ahead for the end, so that it knows each window's length and needs no len()."""
    items, end = iter(gradients), False
    while not end:
        window = list(islice(items, k))
        end = len(window) < k
        for gradient in window:
            (model(gradient) / len(window)).backward()
        if window:
            optimizer.step()
            optimizer.zero_grad()


def watched(loop: Loop, gradients: Iterable[float], k: int, epochs: int = 1) -> Trace:
    model = Toy()
    optimizer = SGD(model.parameters(), lr=1.0)
    with record(model) as trace:
        for _ in range(epochs):
            loop(model, optimizer, gradients, k)
    return trace


SEVEN = tuple(map(float, range(1, 8)))
FIRST_IS_EIGHT = (8.0, *[1.0] * 7)
POWERS = (1.0, 2.0, 4.0, 8.0)  # no two selections of them have one sum
EVEN = (2.0, 4.0, 6.0, 8.0, 10.0)

WINDOW_FAULTS = {
    # report: loop, gradients, k, epochs, right updates, wrong ones, their windows, what is left
    "torchseq 8: tail dropped": (
        *(boundary_at_every_kth, SEVEN, 3, 1),
        *([2, 5, 7], [2, 5], [3, 3], 7 / 3),
    ),
    "transformers 22082: tail leaks into the next epoch": (
        *(boundary_at_every_kth, SEVEN, 3, 2),
        *([2, 5, 7, 2, 5, 7], [2, 5, 13 / 3, 5], [3, 3, 4, 3], 7 / 3),
    ),
    "Lightning 19987: tail divided by the wrong k": (
        *(last_window_divided_by_k, SEVEN, 3, 1),
        *([2, 5, 7], [2, 5, 7 / 3], [3, 3, 1], 0),
    ),
    "LLMs-from-scratch 299: boundary off by one": (
        *(boundary_off_by_one, FIRST_IS_EIGHT, 4, 1),
        *([2.75, 1], [2, 1], [1, 4], 0.75),
    ),
    "mmf 521: tail of unknown length dropped": (
        *(boundary_at_every_kth, EVEN, 2, 1),
        *([3, 7, 10], [3, 7], [2, 2], 5),
    ),
    "mmf 521: tail of unknown length divided by k": (
        *(last_window_divided_by_k, EVEN, 2, 1),
        *([3, 7, 10], [3, 7, 5], [2, 2, 1], 0),
    ),
    "accelerate 616: cleared before each backward": (
        *(cleared_before_each_backward, POWERS, 4, 1),
        *([3.75], [2], [1], 2),
    ),
}


@pytest.mark.parametrize("fault", WINDOW_FAULTS)
def test_a_wrong_window_shows_in_the_update(fault: str):
    loop, gradients, k, epochs, _, wrong, windows, left = WINDOW_FAULTS[fault]
    trace = watched(loop, gradients, k, epochs)
    assert updates(trace) == pytest.approx(wrong)
    assert window_lengths(trace) == windows
    assert trace.pending.held.norm == pytest.approx(left)


@pytest.mark.parametrize("fault", WINDOW_FAULTS)
def test_the_right_loop_has_the_right_updates_on_the_same_data(fault: str):
    _, gradients, k, epochs, expected, *_ = WINDOW_FAULTS[fault]
    trace = watched(right, gradients, k, epochs)
    assert updates(trace) == pytest.approx(expected)
    assert trace.pending.held.norm == 0


def test_a_dropped_tail_is_left_unused():
    trace = watched(boundary_at_every_kth, SEVEN, 3)
    assert (trace.pending.backwards, trace.pending.used) == ((7,), False)


def test_a_leaked_tail_is_named_in_the_next_epochs_first_update():
    trace = watched(boundary_at_every_kth, SEVEN, 3, epochs=2)
    assert trace.updates[2].backwards == (7, 8, 9, 10)


def test_the_data_of_a_generator_are_windows_of_known_length():
    trace = watched(right, (x for x in EVEN), 2)
    assert updates(trace) == [3, 7, 10]


# zero_grad: what is thrown away, and what is left.


def test_clearing_before_each_backward_throws_away_unused_gradients():
    trace = watched(cleared_before_each_backward, POWERS, 4)
    assert [(clear.backwards, clear.used) for clear in of_kind(trace, Clear)] == [
        ((1,), False),
        ((2,), False),
        ((3,), False),
    ]


@pytest.mark.parametrize(
    ("cleared", "window", "gradient"), [(False, (1, 2), 6), (True, (2,), 1)], ids=["wrong", "right"]
)
def test_a_discriminator_steps_along_the_generators_leftovers(cleared, window, gradient):
    """Lightning 591."""
    generator, discriminator = Toy(), Toy()
    optimizer = SGD(discriminator.parameters(), lr=1.0)
    with record(discriminator) as trace:
        (discriminator(5.0) + generator(2.0)).backward()
        if cleared:
            optimizer.zero_grad()
        discriminator(1.0).backward()
        optimizer.step()
    (update,) = trace.updates
    assert (update.backwards, update.gradient.fingerprint) == (window, gradient)


@pytest.mark.parametrize(
    ("to_none", "weight", "missing"), [(True, 0.9, ("weight",)), (False, 0.81, ())]
)
def test_momentum_moves_a_parameter_whose_gradient_is_zero_but_not_none(to_none, weight, missing):
    """DetNAS 3."""
    model = Toy(1.0)
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    with record(model) as trace:
        model(1.0).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=to_none)
        optimizer.step()
    assert model.weight.item() == pytest.approx(weight)
    assert trace.updates[1].missing == missing
    assert trace.updates[1].change.fingerprint == pytest.approx(weight - 0.9)


@pytest.mark.parametrize(("to_none", "change"), [(True, 0.0), (False, -0.05)])
def test_weight_decay_moves_a_parameter_whose_gradient_is_zero_but_not_none(to_none, change):
    """pytorch 83769."""
    model = Toy(1.0)
    optimizer = SGD(model.parameters(), lr=0.1, weight_decay=0.5)
    model(0.0).backward()
    with record(model) as trace:
        optimizer.zero_grad(set_to_none=to_none)
        optimizer.step()
    assert trace.updates[0].change.fingerprint == pytest.approx(change)


# Stepping.


def curved(model: nn.Module, y: float) -> Tensor:
    return (model(1.0) - y).square() / 4


def step_once(model, optimizer):
    for y in (1.0, 2.0, 3.0, 6.0):
        curved(model, y).backward()
    optimizer.step()


def step_and_clear_each_time(model, optimizer):
    for y in (1.0, 2.0, 3.0, 6.0):
        optimizer.zero_grad()
        curved(model, y).backward()
        optimizer.step()


def step_each_time(model, optimizer):
    for y in (1.0, 2.0, 3.0, 6.0):
        curved(model, y).backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("loop", "weight", "windows"),
    [
        (step_once, 0.6, [(1, 2, 3, 4)]),
        (step_and_clear_each_time, 0.57561875, [(1,), (2,), (3,), (4,)]),
        (step_each_time, 1.04849375, [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)]),
    ],
)
def test_a_step_for_every_micro_batch_shows_as_small_or_growing_windows(loop, weight, windows):
    """Qwen3-TTS 326."""
    model = Toy()
    optimizer = SGD(model.parameters(), lr=0.1)
    with record(model) as trace:
        loop(model, optimizer)
    assert [update.backwards for update in trace.updates] == windows
    assert sum(update.change.fingerprint for update in trace.updates) == pytest.approx(weight)


# Scheduling.


def scheduled(schedule: Callable[[int], float], micro_batches: int, per_update: bool) -> Trace:
    model = Toy()
    optimizer = SGD(model.parameters(), lr=1.0)
    scheduler = LambdaLR(optimizer, schedule)
    with record(model) as trace:
        for i in range(micro_batches):
            (model(1.0) / 4).backward()
            if (i + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
            if not per_update or (i + 1) % 4 == 0:
                scheduler.step()
    return trace


@pytest.mark.parametrize(("per_update", "rate"), [(True, 0.25), (False, 1.0)])
@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_a_scheduler_stepped_per_micro_batch_warms_up_k_times_too_early(per_update, rate):
    """Lightning 1476."""
    trace = scheduled(lambda step: min(1.0, step / 8), 8, per_update)
    assert of_kind(trace, Schedule)[-1].new == (rate,)
    between = len(of_kind(trace, Schedule)) - 1  # what comes before the first update is unseen
    assert between == (1 if per_update else 4)


@pytest.mark.parametrize(("length", "rate"), [(3, 0.0), (12, 0.75)], ids=["updates", "micro"])
def test_a_schedule_sized_in_micro_batches_never_reaches_its_end(length, rate):
    """axolotl 1170."""
    trace = scheduled(lambda step: 1 - step / length, 12, per_update=True)
    assert of_kind(trace, Schedule)[-1].new == pytest.approx((rate,))


# Clipping.


@pytest.mark.parametrize(
    ("each", "used"), [(False, [0.6, 0.8]), (True, [0.242536, 0.970143])], ids=["once", "each"]
)
def test_clipping_each_micro_batch_turns_the_update(each, used):
    """transformers 986."""
    model = Toy(0.0, 0.0)
    optimizer = SGD(model.parameters(), lr=1.0)
    with record(model) as trace:
        for last, x in enumerate([(3.0, 0.0), (0.0, 4.0)]):
            model(*x).backward()
            if each or last:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    assert trace.updates[0].gradient.vector.tolist() == pytest.approx(used, abs=1e-5)
    assert len(of_kind(trace, Edit)) == (2 if each else 1)


@pytest.mark.parametrize(
    ("each", "used"), [(False, 0.75), (True, 0.3125)], ids=["once", "each, by hand"]
)
def test_unscaling_each_micro_batch_shrinks_the_earlier_ones(each, used):
    """accelerate 641."""
    model = Toy()
    optimizer = SGD(model.parameters(), lr=1.0)
    with record(model) as trace:
        for last, gradient in enumerate([0.5, 0.25]):
            (8 * model(gradient)).backward()
            if each or last:
                model.weight.grad.div_(8)
        optimizer.step()
    assert updates(trace) == [used]


def test_a_scaler_refuses_to_unscale_twice_and_the_trace_shows_how_far_the_loop_came():
    model = Toy()
    optimizer = SGD(model.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with record(model) as trace:
        scaler.scale(model(0.5)).backward()
        scaler.unscale_(optimizer)
        scaler.scale(model(0.25)).backward()
        with pytest.raises(RuntimeError, match="already been called"):
            scaler.unscale_(optimizer)
    assert [b.held.fingerprint for b in of_kind(trace, Backward)] == [4.0, 2.5]
    assert trace.updates == ()


# Logging: the loop's own number beside the losses of its update.


LOGGED = {
    "right": (lambda losses: sum(losses) / 4, 5.0),
    "espnet 5090: mean of the scaled losses": (lambda losses: sum(l / 4 for l in losses) / 4, 1.25),
    "espnet 5090: last scaled loss": (lambda losses: losses[-1] / 4, 2.0),
    "transformers 35204: sum": (sum, 20.0),
}


@pytest.mark.parametrize("fault", LOGGED)
def test_a_wrong_log_stands_beside_the_losses_of_its_update(fault):
    log, value = LOGGED[fault]
    model = Toy(1.0)
    optimizer = SGD(model.parameters(), lr=1.0)
    with record(model) as trace:
        losses = [model(x) for x in (2.0, 4.0, 6.0, 8.0)]
        for loss in losses:
            (loss / 4).backward()
        optimizer.step()
        trace.log(loss=log([loss.detach() for loss in losses]))
    assert of_kind(trace, Log) == [Log({"loss": value}, updates=1)]
    assert trace.updates[0].losses == (2.0, 4.0, 6.0, 8.0)


@pytest.mark.parametrize(("scaled", "value"), [(False, 0.5), (True, 32768.0)])
def test_a_log_of_the_scaled_loss_holds_the_loss_scale(scaled, value):
    """fastai 3048."""
    model = Toy(0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    with record(model) as trace:
        loss = model(1.0)
        trace.log(loss=scaler.scale(loss) if scaled else loss)
    (log,) = of_kind(trace, Log)
    assert (log.values["loss"], of_kind(trace, Forward)[0].loss) == (value, 0.5)


# Resuming.


@pytest.mark.parametrize(
    ("skipped", "first"), [(5 * 4, (2, 9)), (5, (1, 6))], ids=["micro-batches", "updates"]
)
def test_a_resumed_loop_that_skips_updates_instead_of_micro_batches_repeats_data(skipped, first):
    """transformers 5605: after 5 updates of k = 4 micro-batches, 12 to an epoch."""
    model = Toy()
    with record(model) as trace:
        loader = trace.draws([1.0] * 12)
        done = 0
        while not of_kind(trace, Forward):
            for x in loader:
                done += 1
                if done > skipped:
                    model(x).backward()
                    break
    last = of_kind(trace, Draw)[-1]
    assert (last.epoch, last.position) == first
