"""The eight samples cut into micro-batches: what each adds to ``.grad``, and the sum."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from helpers.gradients import (
    Comparison,
    accumulated_gradient,
    compare,
    full_batch_gradient,
    per_sample_gradients,
    scale_factors,
)
from helpers.models import one_neuron
from helpers.samples import eight_samples


@dataclass(frozen=True)
class EightGradients:
    """The loss and the gradient (weight, bias) of each of the eight samples, and of them all."""

    losses: Tensor  # (8,)
    gradients: Tensor  # (8, 2)
    full_loss: float
    full_batch: Tensor  # (2,)


@cache
def eight_gradients(device: torch.device | str = "cpu") -> EightGradients:
    """What autograd finds for the eight samples on ``device``."""
    model, (x, y) = one_neuron(device), eight_samples(device)
    with torch.no_grad():
        losses = nn.functional.mse_loss(model(x), y, reduction="none").flatten()
    return EightGradients(
        losses,
        per_sample_gradients(model, nn.MSELoss(), x, y),
        losses.mean().item(),
        full_batch_gradient(model, nn.MSELoss(), x, y),
    )


@dataclass(frozen=True)
class Cut:
    """What comes of a batch cut into micro-batches."""

    sizes: tuple[int, ...]
    losses: tuple[float, ...]  # mean of each micro-batch
    factors: tuple[float, ...]  # what each is multiplied by
    contributions: tuple[Tensor, ...]  # what each adds to .grad
    accumulated: Tensor  # what .grad holds in the end
    comparison: Comparison  # with the full batch


def cut(sizes: Sequence[int], scaling: str, device: torch.device | str = "cpu") -> Cut:
    """The eight samples cut into micro-batches of ``sizes``.

    Args:
        sizes: samples in each micro-batch, eight in all.
        scaling: "none", "steps" or "samples", see :func:`helpers.gradients.scale_factors`.
        device: where to compute.

    Raises:
        TypeError, ValueError: the sizes are not those of eight samples, or there is no such
            scaling.
    """
    eight, sizes = eight_gradients(device), tuple(sizes)
    accumulated = accumulated_gradient(
        one_neuron(device), nn.MSELoss(), *eight_samples(device), sizes, scaling
    )
    factors = scale_factors(sizes, scaling)
    means = [part.mean(0) for part in eight.gradients.split(sizes)]
    return Cut(
        sizes=sizes,
        losses=tuple(part.mean().item() for part in eight.losses.split(sizes)),
        factors=factors,
        contributions=tuple(m * factor for m, factor in zip(means, factors, strict=True)),
        accumulated=accumulated,
        comparison=compare(accumulated, eight.full_batch),
    )
