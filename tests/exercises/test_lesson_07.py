"""Lesson 07's whole loop and its faults, what the lesson says, and whether its checks can tell."""

import contextlib
import io
import itertools

import pytest
import torch

from helpers.gradients import flat_weights
from helpers.loops import Setting, check_loop
from helpers.subjects.tokens import pad, sequences
from helpers.subjects.whole_loop import parts, restored, saved
from tests.exercises.answering import is_right, ran, sources, verdict

WHOLE = sources("07")["whole-loop"]
TAKES = (
    *("model", "optimizer", "loader", "accumulation_steps", "epochs"),
    *("scheduler", "max_norm", "scaler", "ema"),
)
SETTINGS = (
    Setting((2,) * 6, 3),
    Setting((3, 1, 4, 1, 5), 2, epochs=2),
    Setting((3, 0, 4, 1), 2),
    Setting((0, 0, 4, 1), 2),
    Setting((2, 6, 3), 4, stream=True),
)


@pytest.fixture(scope="module")
def lesson():
    return ran("07", "set-up", "whole-loop")


def loop(source=WHOLE):
    space = {}
    exec(source, space)
    return space["train"]


def graded(train) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        check_loop(train, TAKES, SETTINGS, data="tokens")
    return printed.getvalue()


# the whole loop


def test_the_whole_loop_is_right():
    assert is_right(graded(loop()))


STEP = "                    scaler.step(optimizer)  # step\n"
FAULTS = {
    "divided by k": ("loss / targets).backward", "loss / k).backward"),
    "not divided": ("loss / targets).backward", "loss).backward"),
    "mean of means": (
        'reduction="sum")\n                scaler.scale(loss / targets)',
        "ignore_index=-100)\n                scaler.scale(loss / len(window))",
    ),
    "a window without targets stepped on": ("            if targets:", "            if True:"),
    "not unscaled": ("                scaler.unscale_(optimizer)\n", ""),
    "not clipped": ("clip_grad_norm_(model.parameters(), max_norm)", "torch.tensor(0.0)"),
    "clipped each time": (
        "                mean_loss += loss.detach() / targets",
        "                mean_loss += loss.detach() / targets\n"
        "                clip_grad_norm_(model.parameters(), max_norm * scaler.get_scale())",
    ),
    "not cleared": ("                optimizer.zero_grad()  # clear\n", ""),
    "cleared before the step": (STEP, "                    optimizer.zero_grad()\n" + STEP),
    "schedule in each micro-batch": (
        "                mean_loss += loss.detach() / targets",
        "                mean_loss += loss.detach() / targets; scheduler.step()",
    ),
    "no schedule": ("                    scheduler.step()\n", ""),
    "average in each micro-batch": (
        "                mean_loss += loss.detach() / targets",
        "                mean_loss += loss.detach() / targets; ema.update_parameters(model)",
    ),
    "no average": ("                    ema.update_parameters(model)\n", ""),
    "no update of the scale": ("                scaler.update()\n", ""),
    "one epoch only": ('range(at["epoch"], epochs)', "range(1)"),
    "the short window dropped": (
        "while window := list(islice(batches, k)):",
        "while len(window := list(islice(batches, k))) == k:",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_whole_loop_is_told(fault):
    right, wrong = FAULTS[fault]
    assert WHOLE.count(right) == 1
    assert "✗" in graded(loop(WHOLE.replace(right, wrong)))


def loader():
    batches = [sequences([3, 9, 4], seed) for seed in range(5)]
    return [pad(batch) for batch in batches]


def finished(train, snapshot=None, k=2, epochs=2, batches=None):
    """The weights and average at the end, the logs, and a checkpoint after each window."""
    model, optimizer, warm_up, scaler, ema = everything = parts()
    at = restored(snapshot, everything) if snapshot else None
    logs, snapshots = [], []

    def boundary(at, loss, norm):
        logs.append((loss, norm))
        snapshots.append(saved(at, everything))

    train(
        *(model, optimizer, batches or loader(), k, epochs, warm_up, 1.0, scaler, ema),
        *(at, boundary),
    )
    return flat_weights(model), flat_weights(ema), logs, snapshots


def test_resumed_at_any_boundary_the_end_is_the_same_to_the_bit():
    weights, average, logs, snapshots = finished(loop())
    assert [snapshot["at"] for snapshot in snapshots] == [
        {"epoch": epoch, "micro_batches": n} for epoch in (0, 1) for n in (2, 4, 5)
    ]
    for number, snapshot in enumerate(snapshots, start=1):
        again = finished(loop(), snapshot)
        assert torch.equal(again[0], weights)
        assert torch.equal(again[1], average)
        assert again[2] == logs[number:]


def test_a_run_resumed_at_updates_and_not_micro_batches_ends_elsewhere():
    weights, _, _, snapshots = finished(loop())
    wrong = {**snapshots[1], "at": {"epoch": 0, "micro_batches": 2}}
    assert not torch.allclose(finished(loop(), wrong)[0], weights, atol=1e-4)


def test_the_logged_loss_is_the_windows_mean_over_its_targets():
    model, *_ = parts()
    batches = loader()[:2]
    total = count = 0
    for tokens, labels in batches:
        losses = torch.nn.functional.cross_entropy(
            model(tokens).flatten(0, 1), labels.flatten(), reduction="none"
        )
        total, count = total + losses.sum().item(), count + (labels != -100).sum().item()
    (loss, _), *_ = finished(loop())[2]
    assert loss == pytest.approx(total / count)


def test_where_we_were_is_not_changed_by_the_loop():
    at = {"epoch": 0, "micro_batches": 2}
    model, optimizer, warm_up, scaler, ema = parts()
    loop()(model, optimizer, loader(), 2, 1, warm_up, 1.0, scaler, ema, at)
    assert at == {"epoch": 0, "micro_batches": 2}


def test_a_nan_costs_its_window_and_nothing_else():
    model, optimizer, warm_up, scaler, ema = everything = parts()
    spoil = itertools.count(1)

    def spoiling(module, args, output):
        return output * float("nan") if next(spoil) == 4 else output

    model.register_forward_hook(spoiling)
    seen = []

    def boundary(at, loss, norm):
        seen.append((flat_weights(model), warm_up.last_epoch, int(ema.n_averaged), loss, norm))
        assert all(p.grad is None for p in model.parameters())

    loop()(
        model,
        optimizer,
        loader() + loader(),
        2,
        1,
        *everything[2:3],
        1.0,
        scaler,
        ema,
        None,
        boundary,
    )
    before, spoilt, after = seen[0], seen[1], seen[2]
    assert torch.equal(before[0], spoilt[0])
    assert before[1:3] == spoilt[1:3] == (1, 1)
    assert spoilt[3] != spoilt[3]
    assert spoilt[4] != spoilt[4]
    assert after[1:3] == (2, 2)
    assert after[0].isfinite().all()
    assert not torch.equal(after[0], spoilt[0])
    assert scaler.get_scale() == 512


def test_a_disabled_scaler_and_bfloat16_hand_through():
    model, optimizer, warm_up, _, ema = parts()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    losses = []
    loop()(
        *(model, optimizer, loader(), 2, 6, warm_up, 1.0, scaler, ema),
        *(None, lambda at, loss, norm: losses.append(loss), torch.bfloat16),
    )
    assert len(losses) == 18
    assert losses[-1] < losses[0]


def test_the_update_of_step_2_leaves_a_spoilt_windows_weights_alone():
    space = ran("07", "set-up", "step-1", "step-2", "step-1-shown")
    model, nan = space["model"], float("nan")
    model.head.bias.grad[0] *= nan
    before = flat_weights(model)
    parts_ = (space["optimizer"], space["warm_up"], 1.0, space["scaler"], space["ema"])
    norm = space["make_update"](model, *parts_)
    assert not norm.isfinite()
    assert torch.equal(before, flat_weights(model))
    assert model.head.bias.grad is None


# the exercises

FINITE = (
    """
def mean_of_the_finite(window):
    fine = [(s, n) for s, n in window if s == s and abs(s) != float("inf")]
    count = sum(n for _, n in fine)
    if count:
        return sum(s for s, _ in fine) / count
""",
    """
import math
def mean_of_the_finite(window):
    total, count = 0.0, 0
    for s, n in window:
        if not math.isfinite(s):
            continue
        total += s
        count += n
    return None if count == 0 else total / count
""",
    """
def mean_of_the_finite(window):
    sums, counts = torch.tensor(window, dtype=torch.float64).T
    fine = sums.isfinite()
    return sums[fine].sum() / counts[fine].sum() if counts[fine].any() else None
""",
)
NOT_FINITE = (
    "def mean_of_the_finite(window): return sum(s for s, _ in window) / sum(n for _, n in window)",
    """
def mean_of_the_finite(window):
    return sum(s for s, _ in window if s == s) / max(1, sum(n for _, n in window))
""",
    """
def mean_of_the_finite(window):
    fine = [s / n for s, n in window if s == s and n]
    return sum(fine) / len(fine) if fine else None
""",
    """
def mean_of_the_finite(window):
    fine = [(s, n) for s, n in window if s == s]
    count = sum(n for _, n in fine)
    return sum(s for s, _ in fine) / count if count else None
""",
    """
def mean_of_the_finite(window):
    fine = [(s, n) for s, n in window if abs(s) < float("inf")]
    return sum(s for s, _ in fine) / max(1, sum(n for _, n in fine))
""",
)


@pytest.mark.parametrize("answer", FINITE)
def test_any_right_mean_of_the_finite_is_taken(answer, lesson):
    assert is_right(verdict("07", "exercise-1", answer, lesson))


@pytest.mark.parametrize("answer", NOT_FINITE)
def test_a_wrong_mean_of_the_finite_is_told(answer, lesson):
    assert "✗" in verdict("07", "exercise-1", answer, lesson)


LOOPS = {
    "a window at a time": """
def train_pairs(model, criterion, optimizer, loader, k, scheduler, max_norm, ema):
    batches = iter(loader)
    optimizer.zero_grad()
    while window := list(islice(batches, k)):
        samples = sum(len(y) for _, y in window)
        for x, y in window:
            (criterion(model(x), y) * (len(y) / samples)).backward()
        clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        ema.update_parameters(model)
""",
    "sums, rescaled at the end": """
def train_pairs(net, loss_fn, opt, data, steps, schedule, limit, average):
    def update(samples):
        for p in net.parameters():
            p.grad /= samples
        clip_grad_norm_(net.parameters(), limit)
        opt.step()
        schedule.step()
        average.update_parameters(net)
        opt.zero_grad(set_to_none=False)
    samples = held = 0
    for x, y in data:
        (len(x) * loss_fn(net(x), y)).backward()
        samples, held = samples + len(x), held + 1
        if held == steps:
            update(samples)
            samples = held = 0
    if held:
        update(samples)
""",
    "one ahead": """
def train_pairs(model, criterion, optimizer, loader, k, scheduler, max_norm, ema):
    source = iter(loader)
    upcoming, window = next(source, None), []
    while upcoming is not None:
        window.append(upcoming)
        upcoming = next(source, None)
        if len(window) < k and upcoming is not None:
            continue
        n = sum(x.shape[0] for x, _ in window)
        model.zero_grad()
        for x, y in window:
            torch.nn.functional.mse_loss(model(x), y, reduction="sum").div(n).backward()
        norm = torch.sqrt(sum(p.grad.square().sum() for p in model.parameters()))
        for p in model.parameters():
            p.grad *= min(1.0, max_norm / norm.item())
        optimizer.step()
        ema.update_parameters(model)
        scheduler.step()
        window = []
""",
}
CORE = LOOPS["a window at a time"]
BACKWARD = "            (criterion(model(x), y) * (len(y) / samples)).backward()\n"
LOOP_FAULTS = {
    "divided by k": ("(len(y) / samples)", "(1 / k)"),
    "divided by the window": ("(len(y) / samples)", "(1 / len(window))"),
    "not divided": (" * (len(y) / samples)", ""),
    "sum not divided": ("(len(y) / samples)", "len(y)"),
    "not clipped": ("        clip_grad_norm_(model.parameters(), max_norm)\n", ""),
    "clipped each time": (
        BACKWARD,
        BACKWARD + "            clip_grad_norm_(model.parameters(), max_norm)\n",
    ),
    "stepped each time": (BACKWARD, BACKWARD + "            optimizer.step()\n"),
    "schedule each time": (BACKWARD, BACKWARD + "            scheduler.step()\n"),
    "average each time": (BACKWARD, BACKWARD + "            ema.update_parameters(model)\n"),
    "no schedule": ("        scheduler.step()\n", ""),
    "no average": ("        ema.update_parameters(model)\n", ""),
    "cleared too often": (BACKWARD, "            optimizer.zero_grad()\n" + BACKWARD),
    "never cleared": ("step()\n        optimizer.zero_grad()\n", "step()\n"),
    "the short window dropped": (
        "while window := list(islice(batches, k)):",
        "while len(window := list(islice(batches, k))) == k:",
    ),
    "asks for a length": ("iter(loader)", "iter(loader); len(loader)"),
    "all in one backward": (
        BACKWARD,
        "            pass\n        x, y = (torch.cat(column) for column in zip(*window))\n"
        "        criterion(model(x), y).backward()\n",
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_any_right_loop_is_taken(name, lesson):
    assert is_right(verdict("07", "loop-to-write", LOOPS[name], lesson))


@pytest.mark.parametrize("fault", LOOP_FAULTS)
def test_a_fault_in_the_loop_is_told(fault, lesson):
    right, wrong = LOOP_FAULTS[fault]
    assert CORE.count(right) == 1
    assert "✗" in verdict("07", "loop-to-write", CORE.replace(right, wrong), lesson)


@pytest.mark.parametrize("cell", ["exercise-1", "loop-to-write"])
def test_a_stub_is_not_written_yet(cell, lesson):
    assert "not written yet" in verdict("07", cell, "", lesson)
