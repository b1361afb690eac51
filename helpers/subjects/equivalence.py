"""One small net trained twice, on whole batches and accumulated, with causes of difference.

The accumulated run is as right as a loop can be: equal micro-batches, each loss divided by their
number. Each cause in :class:`helpers.subjects.causes.Causes` takes away one thing that makes a
window a large batch. All these runs are on the CPU, where so small a net is quickest.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.optim import SGD

from helpers import checks
from helpers.device import same_on_every_device
from helpers.gradients import flat_gradient, flat_weights
from helpers.subjects.causes import (
    FEATURES,
    HIDDEN,
    OUTPUTS,
    Accumulator,
    Causes,
    Clipping,
    Dropout,
    LossScale,
    Objective,
    Often,
    SmallNet,
    contrastive_loss,
    own_loss,
)

SAMPLES = 16
STEPS = (1, 2, 4, 8)
UPDATES = WARM_UP = 8
LR, MOMENTUM, WEIGHT_DECAY, MAX_NORM = 0.1, 0.9, 0.1, 0.25
EMA_DECAY = 0.9


@dataclass(frozen=True)
class Trail:
    """What a run left. Row u of each table is after u updates, row 0 the start."""

    gradient: Tensor  # what the optimizer was handed in the first window
    weights: Tensor
    averaged: Tensor  # weights, by the moving average; float64, for it moves little at first
    statistics: Tensor  # running means and variances; no columns without BatchNorm


@lru_cache(maxsize=2048)
@same_on_every_device()
def train_with(causes: Causes, accumulation_steps: int) -> Trail:
    """Eight updates on the same 16 samples, each window cut into that many micro-batches.

    Raises:
        TypeError, ValueError: ``accumulation_steps`` is not 1, 2, 4 or 8.
    """
    checks.whole_number("accumulation_steps", accumulation_steps, 1, STEPS[-1])
    checks.one_of("accumulation_steps", accumulation_steps, STEPS)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small a net only loses time on waking others
    try:
        return accumulate_with(causes, accumulation_steps)
    finally:
        torch.set_num_threads(threads)


def accumulate_with(causes: Causes, k: int) -> Trail:
    """The loop behind :func:`train_with`."""
    loss_fn = own_loss if causes.loss is Objective.OWN else contrastive_loss
    model = SmallNet(causes, k)
    optimizer = SGD(model.parameters(), LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    averaged, scheduled, handed_over = flat_weights(model).double(), 0, 0
    trail = [(flat_weights(model), averaged, running_statistics(model))]
    for update in range(UPDATES):
        optimizer.zero_grad()  # clear
        window = draw_window(causes, k, update)
        cached = embedding_gradients(model, window) if causes.loss is Objective.CACHED else None
        for i, (x, y, mask) in enumerate(window):
            complete = i == k - 1
            scale = 2 if causes.loss_scale is LossScale.GROWS and i >= k / 2 else 1
            outputs = model(x, mask)  # forward
            if cached:
                outputs.backward(scale * cached[i])  # backward
            else:
                loss = scale * loss_fn(outputs, y) / k  # scale
                loss.backward()  # backward
            if causes.accumulator is Accumulator.BFLOAT16:
                change_gradients(model, lambda held: held.bfloat16().float())
            if causes.clipping is Clipping.EACH:
                nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
            if complete or causes.stepping is Often.EACH:
                change_gradients(model, lambda held, scale=scale: held / scale)
                if causes.clipping is Clipping.ONCE:
                    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
                if update == 0:
                    handed_over = handed_over + flat_gradient(model)
                optimizer.param_groups[0]["lr"] = LR * min((scheduled + 1) / WARM_UP, 1)
                optimizer.step()  # step
                optimizer.zero_grad()  # clear
            if complete or causes.schedule is Often.EACH:
                scheduled += 1
            if complete or causes.averaging is Often.EACH:
                averaged = averaged.lerp(flat_weights(model).double(), 1 - EMA_DECAY)
        trail.append((flat_weights(model), averaged, running_statistics(model)))
    return Trail(handed_over, *map(torch.stack, zip(*trail, strict=True)))


def draw_window(causes: Causes, k: int, update: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Inputs, targets and dropout factors of each micro-batch; the samples are always the same."""
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(SAMPLES, FEATURES, generator=chance)
    y = torch.randn(SAMPLES, OUTPUTS, generator=chance)
    masks = torch.ones(SAMPLES, HIDDEN)
    if causes.dropout is not Dropout.OFF:
        # Each run that draws its own gets other masks: k is part of the seed.
        chance.manual_seed(1000 * update + (k if causes.dropout is Dropout.OTHER_MASKS else 0))
        masks = 2.0 * (torch.rand(SAMPLES, HIDDEN, generator=chance) < 0.5)
    size = SAMPLES // k
    return list(zip(x.split(size), y.split(size), masks.split(size), strict=True))


def embedding_gradients(
    model: Callable[[Tensor, Tensor], Tensor], window: Sequence[tuple[Tensor, Tensor, Tensor]]
) -> list[Tensor]:
    """First of two passes: for each micro-batch the gradient of the whole window's contrastive
    loss with respect to its outputs, which no graph of the model is kept for.

    Source: Gao, Zhang, Han and Callan, Scaling Deep Contrastive Learning Batch Size under Memory
    Limited Setup (2021).
    """
    with torch.no_grad():
        outputs = [model(x, mask) for x, _, mask in window]
    together = torch.cat(outputs).requires_grad_()
    loss = contrastive_loss(together, torch.cat([y for _, y, _ in window]))
    (gradient,) = torch.autograd.grad(loss, together)
    return list(gradient.split([len(part) for part in outputs]))


def change_gradients(model: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
    """Put ``change(held)`` in the place of each ``.grad``."""
    for parameter in model.parameters():
        parameter.grad = change(parameter.grad)


def running_statistics(model: SmallNet) -> Tensor:
    """Running means and variances as one flat tensor, empty without BatchNorm."""
    kept = [b for b in model.buffers() if b.is_floating_point()]
    return torch.cat([b.flatten() for b in kept]).clone() if kept else torch.zeros(0)


@dataclass(frozen=True)
class Distances:
    """How far an accumulated run is from the run on whole batches.

    The gradient in lengths of the full batch's; all else, for each number of updates from 0, in
    shares of the way that the full batch's run has gone by then.
    """

    gradient: float
    weights: tuple[float, ...]
    averaged: tuple[float, ...]
    statistics: tuple[float, ...] | None  # None where there are none


def distances(causes: Causes, accumulation_steps: int) -> Distances:
    """The accumulated run with these causes against whole batches, measured."""
    run = train_with(causes, accumulation_steps)
    full = train_with(causes.of_the_full_batch, 1)
    gradient = (run.gradient - full.gradient).norm() / full.gradient.norm()
    return Distances(
        gradient.item(),
        _shares(run.weights, full.weights),
        _shares(run.averaged, full.averaged),
        _shares(run.statistics, full.statistics) if full.statistics.numel() else None,
    )


def _shares(run: Tensor, full: Tensor) -> tuple[float, ...]:
    """Row by row the distance between two runs over the way one has gone; 0 where neither moved."""
    apart, gone = (run - full).norm(dim=1).tolist(), (full - full[0]).norm(dim=1).tolist()
    return tuple(a / g if g else (math.inf if a else 0.0) for a, g in zip(apart, gone, strict=True))
