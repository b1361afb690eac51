"""The recorder sees the loops that libraries drive: the same five micro-gradients, k = 4.

Versions: accelerate 1.15.0, transformers 5.24.0, lightning 2.6.6.
"""

import pytest

from helpers.recorder import Backward, Clear, Draw, Forward, Trace, record
from helpers.subjects.library_loops import (
    LinearLoss,
    Settings,
    lightning_module,
    one_by_one,
    with_accelerate,
    with_lightning,
    with_trainer,
)

GRADIENTS = (1.0, 10.0, 100.0, 1000.0, 10000.0)  # of the one weight; their digits name them


DATA = one_by_one(GRADIENTS)
SETTINGS = Settings(accumulation_steps=4)
CLIPPED = Settings(accumulation_steps=4, max_norm=1000.0)


def windows(trace: Trace) -> list[tuple[tuple[int, ...], float]]:
    return [(update.backwards, update.gradient.norm) for update in trace.updates]


def test_accelerate_divides_its_short_last_window_by_k():
    model = LinearLoss()
    with record(model) as trace:
        with_accelerate(model, DATA, SETTINGS, trace.draws)
    assert windows(trace) == [((1, 2, 3, 4), 277.75), ((5,), 2500.0)]


def test_accelerate_starts_each_epoch_with_an_empty_window():
    model = LinearLoss()
    with record(model) as trace:
        with_accelerate(model, DATA, Settings(4, epochs=2), trace.draws)
    assert windows(trace)[2:] == [((6, 7, 8, 9), 277.75), ((10,), 2500.0)]


def test_accelerates_step_and_clear_do_nothing_inside_a_window():
    model = LinearLoss()
    with record(model) as trace:
        with_accelerate(model, DATA, SETTINGS, trace.draws)
    kinds = [type(event).__name__ for event in trace.events]
    window = ["Draw", "Forward", "Backward"]
    assert kinds == window * 4 + ["Step", "Clear"] + window + ["Step", "Clear"]


def test_a_loader_prepared_by_accelerate_is_recorded_draw_by_draw():
    model = LinearLoss()
    with record(model) as trace:
        with_accelerate(model, DATA, Settings(4, epochs=2), trace.draws)
    draws = [(e.epoch, e.position) for e in trace.events if isinstance(e, Draw)]
    assert draws == [(epoch, position) for epoch in (1, 2) for position in range(1, 6)]


def test_lightning_divides_its_short_last_window_by_k():
    module = lightning_module(LinearLoss(), SETTINGS)
    with record(module) as trace:
        with_lightning(module, DATA, SETTINGS)
    assert windows(trace) == [((1, 2, 3, 4), 277.75), ((5,), 2500.0)]


def test_lightning_never_calls_the_module_it_trains_but_its_backwards_are_seen():
    module = lightning_module(LinearLoss(), SETTINGS)
    with record(module) as trace:
        with_lightning(module, DATA, SETTINGS)
    assert not [e for e in trace.events if isinstance(e, Forward)]
    assert [e.added.norm for e in trace.events if isinstance(e, Backward)] == [
        0.25,
        2.5,
        25.0,
        250.0,
        2500.0,
    ]


def test_recording_the_network_inside_shows_lightnings_forwards():
    module = lightning_module(LinearLoss(), SETTINGS)
    with record(module.net) as trace:
        with_lightning(module, DATA, SETTINGS)
    assert [e.forwards for e in trace.events if isinstance(e, Backward)] == [
        (1,),
        (2,),
        (3,),
        (4,),
        (5,),
    ]


def test_lightnings_clipping_inside_the_closure_shows_before_and_after():
    module = lightning_module(LinearLoss(), SETTINGS)
    with record(module) as trace:
        with_lightning(module, DATA, CLIPPED)
    last = trace.updates[-1]
    assert (last.before.norm, last.gradient.norm) == (2500.0, pytest.approx(1000.0))


def test_lightning_leaves_the_last_gradient_in_place_but_used():
    module = lightning_module(LinearLoss(), SETTINGS)
    with record(module) as trace:
        with_lightning(module, DATA, SETTINGS)
    assert (trace.pending.backwards, trace.pending.used) == ((5,), True)


def test_trainer_divides_its_short_last_window_by_its_length():
    model = LinearLoss()
    with record(model) as trace:
        with_trainer(model, DATA, SETTINGS)
    assert windows(trace) == [((1, 2, 3, 4), 277.75), ((5,), 10000.0)]


def test_trainers_clipping_shows_before_and_after():
    model = LinearLoss()
    with record(model) as trace:
        with_trainer(model, DATA, CLIPPED)
    last = trace.updates[-1]
    assert (last.before.norm, last.gradient.norm) == (10000.0, pytest.approx(1000.0))


def test_trainers_losses_are_known_because_its_model_returns_them():
    model = LinearLoss()
    with record(model) as trace:
        with_trainer(model, DATA, SETTINGS)
    assert [update.losses for update in trace.updates] == [(0.0,) * 4, (-2777500.0,)]


RUNS = {
    "accelerate": (
        LinearLoss,
        lambda model, trace: with_accelerate(model, DATA, SETTINGS, trace.draws),
    ),
    "lightning": (
        lambda: lightning_module(LinearLoss(), SETTINGS),
        lambda model, trace: with_lightning(model, DATA, SETTINGS),
    ),
    "trainer": (LinearLoss, lambda model, trace: with_trainer(model, DATA, SETTINGS)),
}


@pytest.mark.parametrize("library", RUNS)
def test_a_librarys_result_is_the_same_with_the_recorder_off(library):
    make, run = RUNS[library]
    watched, alone = make(), make()
    with record(watched) as trace:
        run(watched, trace)
    run(alone, Trace(alone, 0))
    assert [p.item() for p in watched.parameters()] == [p.item() for p in alone.parameters()]


@pytest.mark.parametrize("library", RUNS)
def test_every_library_clears_only_what_was_used(library):
    make, run = RUNS[library]
    model = make()
    with record(model) as trace:
        run(model, trace)
    cleared = [event.used for event in trace.events if isinstance(event, Clear)]
    assert cleared
    assert all(cleared)
