import copy

import pytest
import torch
from torch import nn

from helpers.recorder import record
from helpers.subjects.whole_loop import Finished, apart, happened, parts, restored, saved


def test_the_parts_are_the_same_at_every_call_and_of_one_model():
    (model, optimizer, warm_up, _, ema), (again, *_) = parts(), parts()
    owned = [p for group in optimizer.param_groups for p in group["params"]]
    assert all(a is b for a, b in zip(owned, model.parameters(), strict=True))
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True)
    )
    assert warm_up.get_last_lr() == [0.1 / 4]
    assert int(ema.n_averaged) == 0


def moved_on(everything):
    """A step with a gradient of ones, and all that comes with it."""
    model, optimizer, warm_up, scaler, ema = everything
    scaler.scale(sum(p.sum() for p in model.parameters())).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    warm_up.step()
    ema.update_parameters(model)


def state(everything):
    return [copy.deepcopy(part.state_dict()) for part in everything]


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_a_checkpoint_brings_every_part_back_and_stays_as_it_was():
    everything = parts()
    for _ in range(2):
        moved_on(everything)
    at = {"epoch": 1, "micro_batches": 8}
    snapshot, wanted = saved(at, everything), state(everything)
    at["epoch"] = 5
    moved_on(everything)
    assert not same(state(everything), wanted)
    fresh = parts()
    assert restored(snapshot, fresh) == {"epoch": 1, "micro_batches": 8}
    assert same(state(fresh), wanted)
    moved_on(fresh)
    assert same(state(fresh), state(everything))
    assert same(snapshot["states"], wanted)


def finished(gradient, lr=1.0, logs=(2.0,), weights=(1.0, 0.0), average=(1.0, 0.0)):
    model = nn.Linear(2, 1, bias=False)
    with record(model) as trace:
        (model.weight * torch.tensor([gradient])).sum().backward()
        torch.optim.SGD(model.parameters(), lr).step()
    return Finished(trace, list(logs), [], torch.tensor(weights), torch.tensor(average))


@pytest.mark.parametrize(
    ("change", "name", "expected"),
    [
        ({"gradient": (3.0, 4.5)}, "gradients", 0.1),
        ({"lr": 0.75}, "learning rates", 0.25),
        ({"logs": (2.5,)}, "losses", 0.25),
        ({"weights": (1.0, 0.5)}, "weights", 0.5),
        ({"average": (0.0, 0.0)}, "average", 1.0),
    ],
)
def test_runs_are_held_apart_in_each_thing_by_itself(change, name, expected):
    usual = {"gradient": (3.0, 4.0)}
    far = apart(finished(**{**usual, **change}), finished(**usual))
    assert far.pop(name) == pytest.approx(expected)
    assert set(far.values()) == {0}


def test_runs_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="zip"):
        apart(finished((3.0, 4.0), logs=(1.0, 2.0)), finished((3.0, 4.0)))


def test_what_happened_is_put_after_its_micro_batch():
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with record(model) as trace:
        for number in range(1, 7):
            model(torch.ones(1, 1)).sum().backward()
            if number % 2 == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                optimizer.zero_grad()
                optimizer.param_groups[0]["lr"] /= 2
    found = happened(trace, micro_batches=4)
    assert found.pop("forward") == found.pop("backward") == [1, 2, 3, 4]
    assert set(found) == {"unscale, clip", "step", "schedule", "clear"}
    assert all(when == [2, 4] for when in found.values())
