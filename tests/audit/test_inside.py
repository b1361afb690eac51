"""What a loop does to gradients and weights inside a window: each fault gets its kind."""

import copy
from collections import deque

import pytest
import torch
from torch import nn

from tests.audit.loops import (
    SGD,
    OneWeight,
    audited,
    each_output,
    kinds,
    loop,
    of_updates,
    right,
    samples,
    windows,
)

POWERS = samples(1, 2, 4, 8)
SIX = samples(*[[1.0, 2.0, 5.0]] * 3, *[[4.0, 3.0, 8.0]] * 3)


class Plane(nn.Module):
    """Two weights; the gradient of a sample's output is the sample."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2, dtype=torch.float64))

    def forward(self, x):
        return x @ self.weight


RIGHT_ANGLE = [torch.tensor([x], dtype=torch.float64) for x in ([6.0, 0.0], [0.0, 8.0])]


def clip(model, length):
    nn.utils.clip_grad_norm_(model.parameters(), length)


def test_transformers_986_clipping_after_each_backward():
    def epoch(model, optimizer, batches):
        for x in batches:
            (model(x).mean() / 2).backward()
            clip(model, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    report = audited(loop(epoch), RIGHT_ANGLE, 2, Plane())
    assert kinds(report) == {"clipped-every-micro-batch"}
    assert report.updates[0].gradient.tolist() == pytest.approx([0.242536, 0.970143], rel=1e-5)


@pytest.mark.parametrize("max_norm", [None, 1.0])
def test_clipping_once_is_a_choice(max_norm):
    def epoch(model, optimizer, batches):
        for x in batches:
            (model(x).mean() / 2).backward()
        clip(model, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    report = audited(loop(epoch), RIGHT_ANGLE, 2, Plane(), max_norm=max_norm)
    assert report.ok
    assert report.updates[0].gradient.tolist() == pytest.approx([0.6, 0.8], rel=1e-5)
    torch.testing.assert_close(report.updates[0].right, report.updates[0].gradient)
    assert "length of 1" in report.choices[0]


def scaled(scale, before, after):
    """Losses times ``scale``; ``before`` and ``after`` the gradients are divided by it again."""

    def epoch(model, optimizer, batches):
        for window in windows(batches, 2):
            for x in window:
                (model(x).mean() / 2 * scale).backward()
            before(model)
            for parameter in model.parameters():
                parameter.grad /= scale
            after(model)
            optimizer.step()
            optimizer.zero_grad()

    return loop(epoch)


def nothing(model):
    """Leaves the gradients alone."""


def test_clipping_before_unscaling():
    wrong = scaled(1024, lambda model: clip(model, 1.0), nothing)
    assert kinds(audited(wrong, RIGHT_ANGLE, 2, Plane(), max_norm=1.0)) == {
        "clipped-before-unscaling"
    }


@pytest.mark.parametrize("length", [1.0, 100.0])
def test_clipping_after_unscaling_is_right(length):
    mended = scaled(1024, nothing, lambda model: clip(model, length))
    for max_norm in (None, length):
        assert audited(mended, RIGHT_ANGLE, 2, Plane(), max_norm=max_norm).ok


def test_accelerate_641_unscaling_by_hand_after_each_backward():
    def epoch(model, optimizer, batches):
        for x in batches:
            (model(x).mean() / len(batches) * 8).backward()
            for parameter in model.parameters():
                parameter.grad /= 8
        optimizer.step()
        optimizer.zero_grad()

    report = audited(loop(epoch), samples(1.0, 0.5), 2)
    assert kinds(report) == {"scaler-inside-window"}
    assert report.updates[0].gradient.item() == 0.3125


def test_a_scale_that_changes_between_micro_batches():
    def epoch(model, optimizer, batches):
        for window in windows(batches, 2):
            for x, scale in zip(window, (8, 16), strict=True):
                (model(x).mean() / 2 * scale).backward()
            for parameter in model.parameters():
                parameter.grad /= 16
            optimizer.step()
            optimizer.zero_grad()

    assert kinds(audited(loop(epoch), SIX, 2)) == {"scaler-inside-window"}


def test_a_grad_scaler_used_once_a_window_is_right():
    def train(model, batches):
        optimizer = SGD(model.parameters(), 0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1)
        for window in windows(batches, 2):
            for x in window:
                scaler.scale(model(x).mean() / 2).backward()
            scaler.unscale_(optimizer)
            clip(model, 3.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

    assert audited(train, SIX, 2).ok


def test_a_grad_scaler_updated_after_each_micro_batch():
    def train(model, batches):
        optimizer = SGD(model.parameters(), 0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1)
        for window in windows(batches, 3):
            for n, x in enumerate(window):
                scaler.scale(model(x).mean() / 3).backward()
                if n == 2:
                    scaler.step(optimizer)
                    optimizer.zero_grad()
                else:
                    scaler._scale *= 2
            scaler.update()

    assert kinds(audited(train, SIX, 3)) == {"scaler-inside-window"}


def test_a_decay_by_hand_inside_the_window_moves_weights():
    def epoch(model, optimizer, batches):
        for window in windows(batches, 3):
            for x in window:
                (model(x).square().mean() / 3).backward()
                with torch.no_grad():
                    model.weight.mul_(0.9)
            optimizer.step()
            optimizer.zero_grad()

    def squared(model, x):
        return model(x).square()

    report = audited(loop(epoch), SIX, 3, OneWeight(1.0), loss=squared)
    assert kinds(report) == {"weights-moved-between-updates"}


def test_a_projection_once_an_update_is_right():
    def epoch(model, optimizer, batches):
        for window in windows(batches, 3):
            for x in window:
                (model(x).mean() / 3).backward()
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                model.weight.clamp_(-0.2, 0.2)

    assert audited(loop(epoch), SIX, 3).ok


def squares(model, x):
    return (model(x) - 1).square()


def test_backwards_of_graphs_from_before_the_last_update_are_stale():
    def epoch(model, optimizer, batches):
        waiting = deque()
        for window in windows(batches, 2):
            waiting.append([squares(model, x).mean() / 2 for x in window])
            if len(waiting) == 2:
                for loss in waiting.popleft():
                    loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        for loss in waiting.popleft():
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    report = audited(loop(epoch, lr=0.01), SIX, 2, loss=squares)
    assert "stale-gradients" in kinds(report)
    assert of_updates(report, "stale-gradients") == (2, 3)
    assert kinds(report) <= {"stale-gradients", "graph-kept-alive"}


def with_nan(skip, divisor):
    def epoch(model, optimizer, batches):
        for window in windows(batches, 3):
            whole = [x for x in window if x.isfinite().all()]
            for x in whole if skip else window:
                (model(x).mean() / divisor(window, whole)).backward()
            optimizer.step()
            optimizer.zero_grad()

    return loop(epoch)


NAN_INSIDE = samples([1, 2], [float("nan"), 3], [4, 4], [2, 2], [3, 1], [7, 5])


def test_pytorch_116349_a_micro_batch_without_a_finite_loss():
    taken = audited(with_nan(False, lambda window, whole: 3), NAN_INSIDE, 3)
    assert kinds(taken) == {"nan-micro-batch"}
    counted = audited(with_nan(True, lambda window, whole: len(window)), NAN_INSIDE, 3)
    assert kinds(counted) == {"nan-micro-batch"}
    assert of_updates(counted, "nan-micro-batch") == (1,)
    assert audited(with_nan(True, lambda window, whole: len(whole)), NAN_INSIDE, 3).ok


def tokens(model, x):
    """Negative numbers are labels to be ignored."""
    return model(x)[x >= 0]


EMPTY_INSIDE = samples([1, 2, 3], [-1, -1, -1])


def on_tokens(step_on_nothing, k=2):
    def train(model, batches):
        optimizer = SGD(model.parameters(), 0.1, weight_decay=0.1)
        for window in windows(batches, k):
            count = sum(int((x >= 0).sum()) for x in window)
            for x in window:
                (tokens(model, x).sum() / max(count, 1)).backward()
            if count or step_on_nothing:
                optimizer.step()
            optimizer.zero_grad()

    return train


def test_nanochat_623_a_window_without_elements_is_stepped_on():
    data = [*EMPTY_INSIDE, *samples([-1, -1], [-2])]
    report = audited(on_tokens(True), data, 2, OneWeight(2.0), loss=tokens)
    assert kinds(report) == {"empty-window-stepped"}
    assert of_updates(report, "empty-window-stepped") == (2,)
    assert audited(on_tokens(False), data, 2, OneWeight(2.0), loss=tokens).ok


def test_an_empty_micro_batch_that_counts_in_the_divisor():
    def epoch(model, optimizer, batches):
        for x in batches:
            found = tokens(model, x)
            if len(found):
                (found.mean() / 2).backward()
        optimizer.step()
        optimizer.zero_grad()

    report = audited(loop(epoch), EMPTY_INSIDE, 2, loss=tokens)
    assert kinds(report) == {"nan-micro-batch"}
    assert (report.updates[0].gradient.item(), report.updates[0].right.item()) == (1, 2)


class HalfWeight(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros((), dtype=dtype))

    def forward(self, x):
        return self.weight * x


@pytest.mark.parametrize(
    ("dtype", "first", "rest"),
    [(torch.bfloat16, 1.0, 2.0**-8), (torch.float16, 32.0, 0.01)],
    ids=["DeepSpeed 2768", "mxnet 17703"],
)
def test_contributions_lost_in_a_narrow_gradient(dtype, first, rest):
    def sums(model, optimizer, batches):
        for x in batches:
            model(x).sum().backward()
        optimizer.step()

    data = [torch.tensor([x], dtype=dtype) for x in [first] + [rest] * 256]
    report = audited(loop(sums), data, 257, HalfWeight(dtype), reduction="sum")
    assert kinds(report) == {"low-precision-accumulator"}
    assert report.wrong == ()
    wide = [x.float() for x in data]
    assert audited(loop(sums), wide, 257, HalfWeight(torch.float32), reduction="sum").ok


def test_a_right_loop_keeps_its_copy_of_the_model_to_itself():
    model = OneWeight(3.0)
    before = copy.deepcopy(model.state_dict())
    audited(right(2), POWERS, 2, model, loss=each_output)
    assert model.state_dict() == before
    assert model.weight.grad is None
