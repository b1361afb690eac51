"""What the flight recorder sees of loops written by hand, and that it leaves no mark on them."""

import copy
import math
import pickle
from collections import namedtuple
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import optimizer as optimizer_module
from torch.utils.checkpoint import checkpoint

import helpers.recorder
from helpers.recorder import (
    Backward,
    BufferChange,
    Clear,
    Draw,
    Edit,
    Forward,
    Log,
    Reading,
    Recomputation,
    Schedule,
    Step,
    Trace,
    ledger,
    record,
    watch,
)
from helpers.recorder.outputs import tensors_in

SGD = torch.optim.SGD


class Toy(nn.Module):
    """Weights w; the output for x is the sum of w * x, so its gradient is x, whatever w is."""

    def __init__(self, *weights: float):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weights or (0.0,)))

    def forward(self, *x: float) -> Tensor:
        return (self.weight * torch.tensor(x)).sum()


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Toy(), Toy()

    def forward(self, x: float, head: str) -> Tensor:
        return getattr(self, head)(x)


def of_kind(trace: Trace, *kinds: type) -> list:
    return [event for event in trace.events if isinstance(event, kinds)]


def names(trace: Trace) -> list[str]:
    return [type(event).__name__ for event in trace.events]


def accumulate(model: nn.Module, *gradients: float) -> None:
    for gradient in gradients:
        model(gradient).backward()


# What it sees.


def test_a_loop_is_written_down_in_its_order():
    model, x = Toy(), [1.0, 2.0]
    optimizer = SGD(model.parameters(), lr=1.0)
    with record(model) as trace:
        for item in trace.draws(x):
            model(item).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert names(trace) == ["Draw", "Forward", "Backward"] * 2 + ["Step", "Clear"]


def test_a_backward_tells_what_it_added_and_what_is_held():
    model = Toy()
    with record(model) as trace:
        accumulate(model, 1.0, 10.0, 100.0)
    seen = [(b.added.norm, b.held.norm) for b in of_kind(trace, Backward)]
    assert seen == [(1.0, 1.0), (10.0, 11.0), (100.0, 111.0)]


def test_the_added_gradient_is_exact_where_adding_it_was_not():
    model = Toy().to(torch.bfloat16)
    with record(model) as trace:
        accumulate(model, 1.0, 2.0**-8)
    last = of_kind(trace, Backward)[-1]
    assert (last.added.norm, last.held.norm) == (2.0**-8, 1.0)


def test_a_model_cast_during_the_recording_rounds_as_its_new_type_does():
    torch.manual_seed(0)
    model = nn.Linear(3, 4)
    with record(model) as trace:
        model.to(torch.bfloat16)
        for _ in range(9):
            model(torch.randn(5, 3).bfloat16()).square().sum().backward()
    assert of_kind(trace, Edit) == []


def test_an_update_names_the_backwards_that_entered_it():
    model = Toy()
    optimizer = SGD(model.parameters(), lr=0.5)
    with record(model) as trace:
        for window in ((1.0, 10.0), (100.0,)):
            accumulate(model, *window)
            optimizer.step()
            optimizer.zero_grad()
    first, second = trace.updates
    assert (first.backwards, second.backwards) == ((1, 2), (3,))
    assert (first.gradient.norm, second.gradient.norm) == (11.0, 100.0)
    assert (first.change.norm, first.learning_rates) == (5.5, (0.5,))


def test_an_update_names_the_parameters_that_its_readings_are_about():
    model = TwoHeads()
    optimizer = SGD(model.b.parameters(), lr=1.0)
    with record(model) as trace:
        (model(2.0, "a") + model(3.0, "b")).backward()
        optimizer.step()
    (update,) = trace.updates
    assert (update.parameters, update.gradient.vector.tolist()) == (("b.weight",), [3.0])


def test_a_fingerprint_has_a_sign_and_adds_up():
    model = Toy()
    with record(model) as trace:
        accumulate(model, -3.0, 1.0)
    assert of_kind(trace, Backward)[-1].held.fingerprint == -2.0


def test_vectors_are_kept_up_to_the_limit_and_not_beyond():
    for limit, expected in ((2, [3.0, -4.0]), (1, None)):
        model = Toy(0.0, 0.0)
        with record(model, keep_vectors_up_to=limit) as trace:
            model(3.0, -4.0).backward()
        (backward,) = of_kind(trace, Backward)
        assert backward.held.norm == 5.0
        kept = backward.held.vector
        assert (None if kept is None else kept.tolist()) == expected


@pytest.mark.parametrize(
    ("clear", "to_none"),
    [
        (lambda model, optimizer: optimizer.zero_grad(), True),
        (lambda model, optimizer: model.zero_grad(), True),
        (lambda model, optimizer: optimizer.zero_grad(set_to_none=False), False),
        (lambda model, optimizer: setattr(model.weight, "grad", None), True),
        (lambda model, optimizer: model.weight.grad.zero_(), False),
        (lambda model, optimizer: model.weight.grad.data.zero_(), False),
    ],
    ids=["optimizer", "model", "to zero", "None by hand", "zero by hand", "through data"],
)
@pytest.mark.parametrize("when", ["before forward", "before backward", "at the end"])
def test_every_way_to_clear_is_seen(clear: Callable, to_none: bool, when: str):
    model = Toy()
    optimizer = SGD(model.parameters(), lr=1.0)
    with record(model) as trace:
        accumulate(model, 1.0, 2.0)
        if when == "before backward":
            loss = model(4.0)
        clear(model, optimizer)
        if when == "before forward":
            loss = model(4.0)
        if when != "at the end":
            loss.backward()
    (cleared,) = of_kind(trace, Clear)
    assert (cleared.backwards, cleared.held.norm, cleared.to_none) == ((1, 2), 3.0, to_none)
    assert trace.pending.backwards == (() if when == "at the end" else (3,))


def test_a_clear_tells_whether_its_gradient_was_used():
    model = Toy()
    optimizer = SGD(model.parameters(), lr=1.0)
    with record(model) as trace:
        accumulate(model, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        accumulate(model, 2.0)
        optimizer.zero_grad()
    assert [clear.used for clear in of_kind(trace, Clear)] == [True, False]


def test_a_zero_gradient_is_cleared_with_the_others():
    model = Toy(0.0)
    model.other = nn.Parameter(torch.tensor(1.0))
    optimizer = SGD(model.parameters(), lr=1.0)
    with record(model) as trace:
        for _ in range(2):
            (model(1.0) + 0 * model.other).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
    assert [update.backwards for update in trace.updates] == [(1,), (2,)]


def test_clipping_shows_before_and_after():
    model = Toy(0.0, 0.0)
    optimizer = SGD(model.parameters(), lr=1.0)
    with record(model) as trace:
        model(3.0, 4.0).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    (update,) = trace.updates
    assert (update.before.norm, update.gradient.norm) == (5.0, pytest.approx(1.0))
    assert names(trace) == ["Forward", "Backward", "Edit", "Step"]


def test_an_edit_past_the_version_counter_is_seen_at_the_next_backward():
    model = Toy()
    with record(model) as trace:
        accumulate(model, 8.0)
        model.weight.grad.data.mul_(0.5)
        accumulate(model, 1.0)
    (edit,) = of_kind(trace, Edit)
    assert (edit.before.fingerprint, edit.after.fingerprint) == (8.0, 4.0)
    assert trace.pending.held.norm == 5.0


def test_an_edit_past_the_version_counter_is_seen_before_a_step_that_clears():
    class Clearing(SGD):
        def step(self):
            super().step()
            self.zero_grad()

    model = Toy()
    optimizer = Clearing(model.parameters(), lr=1.0)
    with record(model) as trace:
        accumulate(model, 4.0)
        model.weight.grad.data.mul_(0.5)
        optimizer.step()
    (edit,) = of_kind(trace, Edit)
    assert (edit.before.norm, edit.after.norm) == (4.0, 2.0)
    (update,) = trace.updates
    assert (update.gradient.norm, update.change.norm) == (2.0, 2.0)


def test_a_gradient_emptied_after_a_backward_that_failed_is_unknown():
    def fail(_: Tensor) -> None:
        raise ZeroDivisionError

    model = TwoHeads()
    with record(model) as trace:
        failing = model.b(1.0) * 1.0
        failing.register_hook(fail)
        with pytest.raises(ZeroDivisionError):
            # the later made goes backward first
            (failing + model.a(3.0)).backward()
        model.a.weight.grad.zero_()
        model(1.0, "b")
    (backward,) = of_kind(trace, Backward)
    assert math.isnan(backward.added.norm)


def test_a_changed_learning_rate_is_an_event():
    model = Toy()
    optimizer = SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    with record(model) as trace:
        for _ in range(2):
            accumulate(model, 1.0)
            optimizer.step()
            scheduler.step()
    assert [(s.old, s.new) for s in of_kind(trace, Schedule)] == [
        ((1.0,), (0.5,)),
        ((0.5,), (0.25,)),
    ]
    assert [update.learning_rates for update in trace.updates] == [(1.0,), (0.5,)]


def test_the_learning_rate_of_a_later_group_is_looked_at_too():
    model = TwoHeads()
    groups = [{"params": model.a.parameters()}, {"params": model.b.parameters(), "lr": 0.5}]
    optimizer = SGD(groups, lr=1.0)
    with record(model) as trace:
        model(1.0, "a").backward()
        optimizer.step()
        optimizer.param_groups[1]["lr"] = 0.25
    assert trace.updates[0].learning_rates == (1.0, 0.5)
    assert [(s.old, s.new) for s in of_kind(trace, Schedule)] == [((1.0, 0.5), (1.0, 0.25))]


def test_a_buffer_changed_between_forwards_is_told_from_one_changed_in_them():
    model = nn.BatchNorm1d(1)
    with record(model) as trace:
        model.running_mean += 5
        model(torch.tensor([[0.0], [2.0]]))
    changes = of_kind(trace, BufferChange)
    assert [(change.buffers[0], change.in_forward) for change in changes] == [
        ("running_mean", False),
        ("running_mean", True),
    ]
    assert [len(change.buffers) for change in changes] == [1, 3]
    # a tenth of the way from 5 to the batch's mean of 1
    assert [c.after.vector[0].item() for c in changes] == pytest.approx([5.0, 4.6])


Pair = namedtuple("Pair", ["first", "second"])


@pytest.mark.parametrize(
    "wrap",
    [
        lambda y: (0, y),
        lambda y: [y],
        lambda y: {y},
        lambda y: {"logits": y},
        lambda y: Pair(None, y),
        lambda y: SimpleNamespace(y=y),
        lambda y: ([{"deep": (y,)}],),
    ],
    ids=["tuple", "list", "set", "dict", "namedtuple", "object", "nested"],
)
def test_an_output_is_found_in_whatever_holds_it(wrap: Callable):
    class Wrapping(Toy):
        def forward(self, *x: float) -> object:
            return wrap(super().forward(*x))

    with record(model := Wrapping()) as trace:
        found = [tensor for _, tensor in tensors_in(model(3.0))]
        model(1.0)
        found[0].backward()
    assert [backward.forwards for backward in of_kind(trace, Backward)] == [(1,)]


def test_hooks_of_outputs_that_are_gone_are_let_go(monkeypatch):
    monkeypatch.setattr(watch, "OUTPUT_HOOKS", 4)
    with record(model := Toy()) as trace:
        for _ in range(20):
            model(1.0)
            assert len(trace._watch._output_hooks) <= 4
        kept = [model(1.0) for _ in range(20)]
        assert len(trace._watch._output_hooks) >= 20
        sum(kept).backward()
    assert of_kind(trace, Backward)[0].forwards == tuple(range(21, 41))


@pytest.mark.parametrize("factor", [1 - 1e-4, 1.005, 1.00001])
def test_a_gradient_scaled_by_a_hair_is_edited(factor: float):
    model = Toy()
    with record(model) as trace:
        model(8.0).backward()
        model.weight.grad.mul_(factor)
        model(1.0)
    (edit,) = of_kind(trace, Edit)
    assert (edit.before.norm, edit.after.norm) == pytest.approx((8.0, 8 * factor), abs=1e-6)


def test_batchnorm_statistics_change_in_the_forward():
    model = nn.BatchNorm1d(1)
    with record(model) as trace:
        model(torch.tensor([[0.0], [2.0]]))
    (change,) = of_kind(trace, BufferChange)
    assert change.in_forward
    assert change.buffers == ("running_mean", "running_var", "num_batches_tracked")
    assert change.after.vector.tolist() == pytest.approx([0.1, 1.1, 1.0])


def test_evaluation_is_a_forward_without_gradient():
    model = Toy()
    with record(model) as trace, torch.inference_mode():
        model.eval()(1.0)
    (forward,) = of_kind(trace, Forward)
    assert (forward.with_grad, forward.training) == (False, False)


def test_a_scalar_output_is_the_loss_of_its_update():
    model = Toy(2.0)
    optimizer = SGD(model.parameters(), lr=1.0)
    with record(model) as trace:
        accumulate(model, 1.0, 3.0)
        optimizer.step()
    assert trace.updates[0].losses == (2.0, 6.0)


def test_a_logged_value_stands_beside_the_update_it_follows():
    model = Toy()
    optimizer = SGD(model.parameters(), lr=1.0)
    with record(model) as trace:
        accumulate(model, 1.0)
        optimizer.step()
        trace.log(loss=torch.tensor([0.5]))
    assert of_kind(trace, Log) == [Log({"loss": 0.5}, updates=1)]


def test_draws_keep_the_length_and_count_the_passes():
    model = Toy()
    with record(model) as trace:
        items = trace.draws([7, 8])
        assert (len(items), list(items), list(items)) == (2, [7, 8], [7, 8])
    assert of_kind(trace, Draw) == [Draw(1, 1, 1), Draw(2, 1, 2), Draw(3, 2, 1), Draw(4, 2, 2)]


def test_the_table_tells_the_story():
    model = Toy()
    optimizer = SGD(model.parameters(), lr=0.5)
    with record(model) as trace:
        accumulate(model, 1.0, 10.0)
        optimizer.step()
        optimizer.zero_grad()
    assert str(trace).splitlines() == [
        "event       of",
        "forward 1                 loss 0",
        "backward 1  forward 1     adds 1, then holds 1",
        "forward 2                 loss 0",
        "backward 2  forward 2     adds 10, then holds 11",
        "step 1      backward 1-2  gradient 11, lr 0.5, moves 5.5",
        "clear       backward 1-2  gradient 11 to None",
    ]


# Loops that are not the usual one.


def test_losses_summed_over_a_window_are_one_backward_of_many_forwards():
    model = Toy()
    with record(model) as trace:
        sum(model(x) for x in (1.0, 10.0, 100.0)).backward()
    (backward,) = of_kind(trace, Backward)
    assert (backward.forwards, backward.added.norm) == ((1, 2, 3), 111.0)


def test_several_backwards_through_one_forward_are_told_apart():
    model = Toy()
    with record(model) as trace:
        loss = model(1.0)
        loss.backward(retain_graph=True)
        (10 * loss).backward()
    assert [(b.forwards, b.added.norm) for b in of_kind(trace, Backward)] == [
        ((1,), 1.0),
        ((1,), 10.0),
    ]


def test_a_backward_that_passes_by_the_models_output_is_seen():
    model = TwoHeads()
    with record(model) as trace:
        (model.a.weight.sum() * 2).backward()
        (model.b.weight.sum() * 3).backward()
    assert [(b.forwards, b.added.norm) for b in of_kind(trace, Backward)] == [((), 2.0), ((), 3.0)]


def test_a_penalty_on_the_weights_right_after_the_loss_is_a_backward_of_its_own():
    model = Toy()
    with record(model) as trace:
        model(1.0).backward()
        (10 * model.weight).sum().backward()
    assert [(b.forwards, b.held.norm) for b in of_kind(trace, Backward)] == [
        ((1,), 1.0),
        ((), 11.0),
    ]


def test_a_gradient_asked_for_without_accumulating_is_no_backward():
    model = Toy()
    with record(model) as trace:
        torch.autograd.grad(model(1.0), model.weight)
        accumulate(model, 10.0)
    (backward,) = of_kind(trace, Backward)
    assert (backward.forwards, backward.held.norm) == ((2,), 10.0)


def test_a_parameter_without_a_gradient_is_named():
    model = TwoHeads()
    optimizer = SGD(model.parameters(), lr=1.0)
    with record(model) as trace:
        model(1.0, "a").backward()
        model(10.0, "a").backward()
        optimizer.step()
        model(100.0, "b").backward()
        optimizer.step()
    assert [b.missing for b in of_kind(trace, Backward)] == [("b.weight",)] * 2 + [("a.weight",)]
    assert [u.missing for u in trace.updates] == [("b.weight",), ()]
    assert of_kind(trace, Backward)[-1].held.vector.tolist() == [11.0, 100.0]


def test_a_parameter_used_twice_gets_one_gradient():
    model = Toy(1.0)
    with record(model) as trace:
        (model(2.0) + model(3.0)).backward()
    assert of_kind(trace, Backward)[0].added.norm == 5.0


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_the_model_is_a_recomputation_not_a_forward(reentrant: bool):
    model, x = nn.Linear(1, 1, bias=False), torch.ones(1, 1, requires_grad=True)
    with record(model) as trace:
        for _ in range(2):
            checkpoint(model, x, use_reentrant=reentrant).sum().backward()
    kinds = [name for name in names(trace) if name in ("Forward", "Recomputation", "Backward")]
    assert kinds == ["Forward", "Recomputation", "Backward"] * 2
    assert of_kind(trace, Backward)[-1].held.norm == 2.0


def test_checkpointed_segments_make_one_backward():
    class Segments(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(nn.Linear(1, 1) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            for part in self.parts:
                x = checkpoint(part, x, use_reentrant=True)
            return x

    model = Segments()
    with record(model) as trace:
        for _ in range(2):
            model(torch.ones(1, 1, requires_grad=True)).sum().backward()
    backwards = of_kind(trace, Backward)
    assert [(b.forwards, b.missing) for b in backwards] == [((1,), ()), ((2,), ())]


def test_a_recomputation_moves_batchnorm_statistics_a_second_time():
    model = nn.BatchNorm1d(1)
    x = torch.tensor([[9.0], [11.0]], requires_grad=True)
    with record(model) as trace:
        checkpoint(model, x, use_reentrant=False).sum().backward()
    changes = of_kind(trace, BufferChange)
    assert [change.in_forward for change in changes] == [True, False]
    assert [change.after.vector[0].item() for change in changes] == pytest.approx([1.0, 1.9])


def test_a_closure_runs_its_backwards_inside_the_step():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 10.0)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1, line_search_fn=None)

    def closure() -> Tensor:
        optimizer.zero_grad()
        losses = [(model(torch.ones(1, 1)) - y).square().sum() / 2 for y in (0.0, 4.0)]
        for loss in losses:
            loss.backward()
        return sum(losses)

    with record(model) as trace:
        optimizer.step(closure)
    (update,) = trace.updates
    assert (update.backwards, update.gradient.norm) == ((1, 2), 16.0)


def test_two_optimizers_have_their_own_windows():
    model = TwoHeads()
    first, second = SGD(model.a.parameters(), lr=1.0), SGD(model.b.parameters(), lr=0.5)
    with record(model) as trace:
        model(1.0, "a").backward()
        model(10.0, "b").backward()
        first.step()
        first.zero_grad()
        model(100.0, "b").backward()
        second.step()
    assert [(u.optimizer, u.backwards, u.gradient.norm) for u in trace.updates] == [
        (1, (1,), 1.0),
        (2, (2, 3), 110.0),
    ]


def test_an_optimizer_of_another_model_is_not_ours():
    model, other = Toy(), Toy()
    with record(model) as trace:
        accumulate(other, 1.0)
        SGD(other.parameters(), lr=1.0).step()
    assert trace.events == ()


def test_a_gradient_scaler_shows_as_unscaling_before_the_step():
    model = Toy()
    optimizer, scaler = SGD(model.parameters(), lr=1.0), torch.amp.GradScaler("cpu", 8.0)
    with record(model) as trace:
        scaler.scale(model(2.0)).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    (update,) = trace.updates
    assert (update.before.norm, update.gradient.norm, update.change.norm) == (16.0, 2.0, 2.0)


def test_a_fused_optimizer_unscales_inside_its_step():
    model = Toy()
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, fused=True)
    scaler = torch.amp.GradScaler("cpu", 8.0)
    with record(model) as trace:
        scaler.scale(model(2.0)).backward()
        scaler.step(optimizer)
    assert (trace.updates[0].before.norm, trace.updates[0].gradient.norm) == (16.0, 2.0)


def test_a_step_skipped_for_infinity_is_no_update():
    model = Toy()
    optimizer, scaler = SGD(model.parameters(), lr=1.0), torch.amp.GradScaler("cpu", 8.0)
    with record(model) as trace:
        for gradient in (float("inf"), 2.0):
            scaler.scale(model(gradient)).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert [update.backwards for update in trace.updates] == [(2,)]
    assert [(c.backwards, c.used) for c in of_kind(trace, Clear)] == [((1,), False), ((2,), True)]


def test_a_gradient_from_before_the_recording_is_backward_0():
    model = Toy()
    optimizer = SGD(model.parameters(), lr=1.0)
    accumulate(model, 1.0)
    with record(model) as trace:
        accumulate(model, 10.0)
        optimizer.step()
    assert (trace.updates[0].backwards, trace.updates[0].gradient.norm) == ((0, 1), 11.0)


def test_a_sparse_gradient_is_measured_as_the_dense_one_it_means():
    model = nn.Embedding(3, 1, sparse=True)
    with record(model) as trace:
        for rows, factors in (([0, 0], [3.0, 4.0]), ([0, 1], [5.0, 2.0])):
            (model(torch.tensor(rows)).squeeze(1) * torch.tensor(factors)).sum().backward()
    assert [b.held.vector.tolist() for b in of_kind(trace, Backward)] == [[7, 0, 0], [12, 2, 0]]


def test_a_large_model_is_measured_as_a_small_one(monkeypatch):
    readings = []
    for elements in (ledger.BLOCK_ELEMENTS, 0):
        monkeypatch.setattr(ledger, "BLOCK_ELEMENTS", elements)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(30, 30), nn.BatchNorm1d(30), nn.Linear(30, 1))
        optimizer = SGD(model.parameters(), lr=1e-4)
        with record(model, keep_vectors_up_to=0) as trace:
            for _ in range(30):
                model(torch.randn(4, 30)).square().mean().backward()
                optimizer.step()
        readings.append([(r.norm, r.fingerprint) for r in all_readings(trace)])
    assert len(readings[0]) == 7 * 30
    for small, large in zip(*readings, strict=True):
        assert small == pytest.approx(large, rel=1e-4, abs=1e-5)


def test_a_long_loop_measured_in_parts_reads_as_one_measured_at_once(monkeypatch):
    readings = []
    for rows in (ledger.BLOCK_ROWS, 3):
        monkeypatch.setattr(ledger, "BLOCK_ROWS", rows)
        model = Toy(1.0, 2.0)
        optimizer = SGD(model.parameters(), lr=0.5)
        with record(model) as trace:
            for x in range(9):
                model(float(x), 1.0).backward()
                optimizer.step()
                assert len(trace.updates) == x + 1
        readings.append([(r.norm, r.fingerprint, r.vector.tolist()) for r in all_readings(trace)])
    assert readings[0] == readings[1]


def all_readings(trace: Trace) -> list[Reading]:
    return [
        value
        for event in trace.events
        for value in vars(event).values()
        if isinstance(value, Reading)
    ]


@pytest.mark.filterwarnings("ignore:Using backward")
def test_a_graph_of_the_gradient_is_left_alone():
    model = Toy(3.0)
    with record(model) as trace:
        (gradient,) = torch.autograd.grad(model(1.0) ** 2, model.weight, create_graph=True)
        gradient.sum().backward(create_graph=True)
    assert of_kind(trace, Backward)[0].added.norm == 2.0


# What it must not touch.


def test_a_recording_may_hold_another():
    model = TwoHeads()
    with record(model) as outer:
        with record(model.a) as inner:
            model(1.0, "a").backward()
        model(10.0, "a").backward()
    assert len(of_kind(outer, Backward)) == 2
    assert len(of_kind(inner, Backward)) == 1


def test_a_copy_made_during_the_recording_is_not_recorded():
    model = nn.Linear(1, 1)
    with record(model) as trace:
        for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.copy(model)):
            copied(torch.ones(1, 1))
    assert trace.events == ()


def hooks_on(model: nn.Module) -> int:
    on_optimizers = (
        optimizer_module._global_optimizer_pre_hooks,
        optimizer_module._global_optimizer_post_hooks,
    )
    on_module = (
        model._forward_hooks,
        model._forward_pre_hooks,
        model._forward_pre_hooks_with_kwargs,
        model._forward_hooks_with_kwargs,
    )
    on_tensors = [p._backward_hooks or () for p in model.parameters()]
    after = [getattr(p, "_post_accumulate_grad_hooks", None) or () for p in model.parameters()]
    return sum(map(len, (*on_optimizers, *on_module, *on_tensors, *after)))


@pytest.mark.parametrize("fails", [False, True])
def test_every_hook_is_gone_afterwards_also_after_an_exception(fails: bool):
    model = nn.Linear(1, 1)
    outputs = []
    with pytest.raises(KeyError) if fails else record(nn.Linear(1, 1)), record(model):
        assert hooks_on(model) > 0
        outputs.append(model(torch.ones(1, 1)))
        outputs[0].sum().backward()
        if fails:
            raise KeyError
    assert hooks_on(model) == 0
    assert len(outputs[0]._backward_hooks) == 0


def test_what_happened_before_an_exception_is_still_there():
    model = Toy()
    with pytest.raises(ValueError, match="too many dimensions"), record(model) as trace:
        accumulate(model, 1.0, "no number")
    assert names(trace) == ["Forward", "Backward", "Forward"]


def test_nothing_is_recorded_after_the_end():
    model = Toy()
    with record(model) as trace:
        items = trace.draws([1.0])
    accumulate(model, *items)
    trace.log(loss=1.0)
    assert trace.events == ()


OPTIMIZERS = {
    "sgd": lambda p: SGD(p, lr=0.1),
    "momentum": lambda p: SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
}


def a_loop(optimizer: str, k: int, size: int, clip: float | None, to_none: bool, watch: bool):
    """Weights, ``.grad``, buffers and random state after a few updates with dropout."""
    torch.manual_seed(size)
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 2))
    stepper = OPTIMIZERS[optimizer](model.parameters())
    scheduler = torch.optim.lr_scheduler.ExponentialLR(stepper, 0.9)

    def run() -> None:
        for i in range(7):
            loss = model(torch.randn(size, 3)).square().mean() / k
            loss.backward()
            if (i + 1) % k == 0:
                if clip is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), clip)
                stepper.step()
                scheduler.step()
                stepper.zero_grad(set_to_none=to_none)

    if watch:
        with record(model, keep_vectors_up_to=size % 2 * 10_000):
            run()
    else:
        run()
    gradients = [p.grad for p in model.parameters()]
    return [*model.state_dict().values(), *gradients, torch.get_rng_state()]


@settings(max_examples=15)
@given(
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    k=st.integers(1, 4),
    size=st.integers(2, 9),
    clip=st.none() | st.floats(0.01, 1.0),
    to_none=st.booleans(),
)
def test_a_watched_loop_ends_where_an_unwatched_one_does(**loop):
    for watched, alone in zip(a_loop(**loop, watch=True), a_loop(**loop, watch=False), strict=True):
        assert watched is alone is None or torch.equal(watched, alone)


@given(st.lists(st.integers(-64, 64).map(float), min_size=1, max_size=9), st.integers(1, 4))
@settings(max_examples=40)
def test_what_backwards_added_is_what_each_update_used(gradients, k):
    model = Toy()
    optimizer = SGD(model.parameters(), lr=1.0)
    with record(model) as trace:
        for i, gradient in enumerate(gradients, start=1):
            model(gradient).backward()
            if i % k == 0 or i == len(gradients):
                optimizer.step()
                optimizer.zero_grad()
    added = {b.number: b.added.fingerprint for b in of_kind(trace, Backward)}
    assert sorted(n for u in trace.updates for n in u.backwards) == sorted(added)
    for update in trace.updates:
        assert update.gradient.fingerprint == sum(added[n] for n in update.backwards)
        assert update.change.fingerprint == -update.gradient.fingerprint


# What it refuses.


def test_no_module_is_refused():
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, got Tensor"):
        record(torch.zeros(1))


@pytest.mark.parametrize("model", [nn.ReLU(), Toy().requires_grad_(False)])
def test_a_model_with_nothing_to_train_is_refused(model: nn.Module):
    with pytest.raises(ValueError, match="model must have a parameter that requires a gradient"):
        record(model)
    assert hooks_on(model) == 0


@pytest.mark.parametrize(
    ("limit", "error"), [(-1, ValueError), (1.5, TypeError), (True, TypeError), ("1", TypeError)]
)
def test_a_limit_that_counts_no_elements_is_refused(limit, error):
    with pytest.raises(error, match="keep_vectors_up_to must be"):
        record(Toy(), keep_vectors_up_to=limit)


@pytest.mark.parametrize("value", ["0.5", torch.zeros(2)])
def test_a_log_of_anything_but_a_number_is_refused(value):
    with record(Toy()) as trace, pytest.raises(ValueError, match="loss must be a number"):
        trace.log(loss=value)


def test_the_recorder_needs_only_torch_and_the_standard_library():
    import ast
    import sys
    from pathlib import Path

    modules = Path(helpers.recorder.__file__).parent.glob("*.py")
    tree = [node for module in modules for node in ast.walk(ast.parse(module.read_text()))]
    roots = {
        name.removeprefix("helpers.").split(".")[0]
        for node in tree
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert roots - set(sys.stdlib_module_names) == {"torch", "recorder"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_loop_on_cuda_is_recorded_as_on_the_cpu():
    model = nn.Linear(2, 1, bias=False).cuda()
    optimizer = SGD(model.parameters(), lr=1.0)
    with record(model) as trace:
        for x in ((3.0, 4.0), (3.0, 4.0)):
            model(torch.tensor([x], device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert names(trace) == ["Forward", "Backward"] * 2 + ["Step", "Clear"]
    assert (trace.updates[0].backwards, trace.updates[0].gradient.norm) == ((1, 2), 10.0)


def test_a_step_is_a_step_record():
    model = Toy()
    optimizer = SGD(model.parameters(), lr=1.0)
    with record(model) as trace:
        accumulate(model, 1.0)
        optimizer.step()
    assert of_kind(trace, Step) == list(trace.updates)
    assert of_kind(trace, Recomputation) == []
