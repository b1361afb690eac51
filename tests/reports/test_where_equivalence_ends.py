"""Public reports on where equivalence ends: the right value and the one that was reported.

Nothing of helpers/ is used here: PyTorch alone shows what the lesson says.
"""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, dropout
from torch.optim import SGD, Adam
from torch.utils.checkpoint import checkpoint


def batch_norm_after(parts, momentum=0.1):
    norm = nn.BatchNorm1d(1, momentum=momentum)
    outputs = torch.cat(
        [norm(torch.tensor(part, dtype=torch.float32).reshape(-1, 1)) for part in parts]
    ).flatten()
    return outputs[0].item(), norm.running_mean.item(), norm.running_var.item()


@pytest.mark.parametrize(
    ("parts", "momentum", "expected"),
    [
        ([[0, 2, 4, 6]], 0.1, (-1.341639, 0.3, 1.566667)),
        ([[0, 2], [4, 6]], 0.1, (-0.999995, 0.59, 1.19)),
        ([[0, 2], [4, 6]], 0.0513167, (-0.999995, 0.305267, 1.1)),
    ],
)
def test_batch_norm_on_a_batch_of_four_and_on_its_halves(parts, momentum, expected):
    assert batch_norm_after(parts, momentum) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("momentum", "checkpointed", "expected"),
    [(0.1, False, 1.0), (0.1, True, 1.9), (0.0513167, True, 1.0)],
)
def test_batch_norm_under_activation_checkpointing(momentum, checkpointed, expected):
    norm, batch = nn.BatchNorm1d(1, momentum=momentum), torch.tensor([[9.0], [11.0]])
    output = checkpoint(norm, batch, use_reentrant=False) if checkpointed else norm(batch)
    (output * batch).mean().backward()
    assert norm.running_mean.item() == pytest.approx(expected, abs=1e-5)
    assert norm.weight.grad.item() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("size", [4, 2, 1])
def test_in_batch_negatives_without_similarity(size):
    s, losses = torch.zeros((), requires_grad=True), []
    for _ in range(4 // size):
        loss = cross_entropy(s * torch.eye(size), torch.arange(size))
        (loss * size / 4).backward()
        losses.append(loss.item())
    assert losses == pytest.approx([math.log(size)] * (4 // size), abs=1e-6)
    assert s.grad.item() == pytest.approx(-(1 - 1 / size))


@pytest.mark.parametrize(("layers", "same"), [(1, True), (2, False)])
def test_one_seed_gives_the_same_masks_in_pieces_for_one_layer_only(layers, same):
    def masks(sizes):
        torch.manual_seed(0)
        pieces = [[dropout(torch.ones(size)) for _ in range(layers)] for size in sizes]
        return torch.cat([torch.stack(piece) for piece in pieces], dim=1)

    assert torch.equal(masks([64]), masks([32, 32])) == same


def clipped(each_time):
    w = nn.Parameter(torch.zeros(2))
    for micro_gradient in ([3.0, 0.0], [0.0, 4.0]):
        (w @ torch.tensor(micro_gradient)).backward()
        if each_time:
            nn.utils.clip_grad_norm_([w], 1.0)
    nn.utils.clip_grad_norm_([w], 1.0)
    return w.grad.tolist()


def test_clipping_per_micro_batch_turns_the_direction():
    assert clipped(each_time=False) == pytest.approx([0.6, 0.8], abs=1e-5)
    assert clipped(each_time=True) == pytest.approx([0.242536, 0.970143], abs=1e-5)


def one_window(make, each_time=False, divide=4, lr=0.1):
    w = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    optimizer = make([w], lr)
    for i, micro_gradient in enumerate((1, 2, 3, 6)):
        (micro_gradient * w.sum() / divide).backward()
        if each_time or i == 3:
            optimizer.step()
            optimizer.zero_grad()
    return w.item()


def test_a_learning_rate_divided_by_k_is_no_division_of_the_loss():
    def decayed(weights, lr):
        return SGD(weights, lr, weight_decay=0.1)

    assert [one_window(SGD), one_window(SGD, divide=1, lr=0.025)] == pytest.approx([1.7, 1.7])
    assert one_window(decayed) == pytest.approx(1.68)
    assert one_window(decayed, divide=1, lr=0.025) == pytest.approx(1.695)
    assert 2 - one_window(Adam) == pytest.approx(0.1)
    assert 2 - one_window(Adam, divide=1, lr=0.025) == pytest.approx(0.025)


def test_stepping_each_time_decays_and_carries_momentum_four_times():
    def decayed(weights, lr):
        return SGD(weights, lr, weight_decay=0.1)

    def with_momentum(weights, lr):
        return SGD(weights, lr, momentum=0.9)

    w = 2.0
    for micro_gradient in (1, 2, 3, 6):
        w -= 0.1 * (micro_gradient / 4 + 0.1 * w)
    assert one_window(decayed, each_time=True) == pytest.approx(w)
    assert one_window(with_momentum) == pytest.approx(1.7)
    assert one_window(with_momentum, each_time=True) == pytest.approx(1.486, abs=1e-3)
    assert one_window(SGD, each_time=True) == pytest.approx(1.7)  # a straight loss can't see it


@pytest.mark.parametrize(("each_time", "expected"), [(False, 0.6), (True, 0.57561875)])
def test_stepping_each_time_on_a_curved_loss(each_time, expected):
    w = nn.Parameter(torch.zeros((), dtype=torch.float64))
    optimizer = SGD([w], lr=0.1)
    for i, y in enumerate((1, 2, 3, 6)):
        ((w - y) ** 2 / 4).backward()
        if each_time or i == 3:
            optimizer.step()
            optimizer.zero_grad()
    assert w.item() == pytest.approx(expected)


@pytest.mark.parametrize(("to_none", "moved", "decayed"), [(False, 0.81, 0.95), (True, 0.9, 1.0)])
def test_clearing_to_zero_lets_momentum_and_decay_act_and_none_does_not(to_none, moved, decayed):
    w = nn.Parameter(torch.ones(()))
    optimizer = SGD([w], lr=0.1, momentum=0.9)
    w.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=to_none)
    optimizer.step()
    assert w.item() == pytest.approx(moved)
    w = nn.Parameter(torch.ones(()))
    w.grad = None if to_none else torch.zeros(())
    SGD([w], lr=0.1, weight_decay=0.5).step()
    assert w.item() == pytest.approx(decayed)


@pytest.mark.parametrize(("calls", "average", "warmed_up"), [(1, 0.1, 0.25), (4, 0.3439, 1.0)])
def test_averages_and_schedules_count_their_calls(calls, average, warmed_up):
    held = 0.0
    for _ in range(calls):
        held = 0.9 * held + 0.1 * 1
    assert held == pytest.approx(average)
    w = nn.Parameter(torch.zeros(1))
    optimizer = SGD([w], lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda call: min(call / 8, 1))
    for _ in range(2):
        optimizer.step()
        for _ in range(calls):
            schedule.step()
    assert optimizer.param_groups[0]["lr"] == warmed_up


def scaled(*micro_gradients):
    w = nn.Parameter(torch.zeros(1))
    optimizer, scaler = SGD([w], lr=1.0), torch.amp.GradScaler("cpu", init_scale=8.0)
    for micro_gradient in micro_gradients:
        scaler.scale(micro_gradient * w.sum()).backward()
    return w, optimizer, scaler


def test_a_scaled_window_is_unscaled_once():
    w, optimizer, scaler = scaled(0.5, 0.25)
    scaler.unscale_(optimizer)
    assert w.grad.item() == 0.75
    with pytest.raises(RuntimeError, match=r"unscale_\(\) has already been called"):
        scaler.unscale_(optimizer)


def test_unscaling_by_hand_each_time_divides_the_first_twice():
    w, _, _ = scaled(0.5)
    w.grad /= 8
    (8 * 0.25 * w.sum()).backward()
    w.grad /= 8
    assert w.grad.item() == 0.3125


def test_a_scale_that_changes_inside_the_window_spoils_the_sum():
    w, optimizer, scaler = scaled(0.5)
    scaler.update(16.0)
    scaler.scale(0.25 * w.sum()).backward()
    scaler.unscale_(optimizer)
    assert w.grad.item() == 0.5


def test_an_overflow_in_one_micro_batch_costs_the_whole_window():
    w, optimizer, scaler = scaled(0.5, math.inf, 0.25)
    scaler.step(optimizer)
    scaler.update()
    assert w.item() == 0
    assert scaler.get_scale() == 4


def test_the_logged_loss_is_taken_before_scale():
    scaler = torch.amp.GradScaler("cpu")
    loss = torch.tensor(0.5)
    assert (loss.item(), scaler.scale(loss).item()) == (0.5, 32768)


def held_by(dtype, gradients):
    w = nn.Parameter(torch.zeros(1, dtype=dtype))
    for gradient in gradients:
        (gradient * w).sum().backward()
    return w.grad.item()


@pytest.mark.parametrize(
    ("dtype", "expected"), [(torch.bfloat16, 1.0), (torch.float32, 2.0), (torch.float64, 2.0)]
)
def test_1_and_256_additions_of_a_256th(dtype, expected):
    assert held_by(dtype, [1.0] + [2**-8] * 256) == expected


def test_ten_thousand_hundredths_stall_at_32_in_float16():
    hundredth = torch.tensor(0.01).half().item()
    assert held_by(torch.float16, [hundredth] * 10_000) == 32
    assert held_by(torch.float32, [hundredth] * 10_000) == pytest.approx(100.02, abs=0.005)


def test_autocast_accumulates_in_the_parameters_own_type():
    layer = nn.Linear(1, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = layer(torch.ones(1, 1))
    output.float().sum().backward()
    assert (output.dtype, layer.weight.grad.dtype) == (torch.bfloat16, torch.float32)
