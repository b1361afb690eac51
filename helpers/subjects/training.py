"""What a scale does to training: the loop of the lesson, and the eight samples trained on."""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from helpers import checks
from helpers.gradients import SCALINGS, Batch, Loss, accumulate, flat_weights, scale_factors
from helpers.models import one_neuron
from helpers.samples import eight_samples

UPDATES = 12
OPTIMIZERS: dict[str, Callable[[Iterable[Tensor], float], Optimizer]] = {
    "SGD": lambda parameters, lr: SGD(parameters, lr),
    "SGD, momentum 0.9": lambda parameters, lr: SGD(parameters, lr, momentum=0.9),
    "Adam": lambda parameters, lr: Adam(parameters, lr),
    "AdamW": lambda parameters, lr: AdamW(parameters, lr),
}


@dataclass(frozen=True)
class Update:
    """One optimizer step: what was known just before it, and the weights it left behind."""

    loss: float  # mean over the update's micro-batches, never the scaled one
    gradient_norm: float  # length of .grad as the optimizer saw it
    weights: Tensor | None  # flat, after the step, on the CPU; None unless asked for


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: Loss,
    batches: Iterable[Batch],
    accumulation_steps: int,
    scaling: str = "steps",
    keep_weights: bool = False,
) -> list[Update]:
    """The updates of a loop that cuts each batch into equal micro-batches and accumulates.

    Args:
        model: any module with trainable parameters; it is trained in place.
        loss_fn: takes (outputs, targets), returns a scalar mean over the samples.
        optimizer: any that steps without a closure.
        batches: one (x, y) for each update; every batch must divide by ``accumulation_steps``.
        accumulation_steps: micro-batches in each update; 1 is the full batch.
        scaling: see :func:`helpers.gradients.scale_factors`.
        keep_weights: whether each update carries a copy of all weights.
    """
    batches = list(batches)
    _check_training(model, batches, accumulation_steps, scaling)
    updates = []
    for x, y in batches:
        sizes = (len(x) // accumulation_steps,) * accumulation_steps
        cut = list(zip(x.split(sizes), y.split(sizes), strict=True))
        optimizer.zero_grad()  # clear
        losses = accumulate(model, loss_fn, cut, scale_factors(sizes, scaling))
        checks.finite_losses(losses)
        norm = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
        optimizer.step()  # step
        weights = flat_weights(model).cpu() if keep_weights else None
        updates.append(Update(float(torch.stack(losses).mean()), float(norm), weights))
    return updates


def _check_training(
    model: nn.Module, batches: Sequence[Batch], accumulation_steps: int, scaling: str
) -> None:
    checks.whole_number("accumulation_steps", accumulation_steps, 1)
    checks.one_of("scaling", scaling, SCALINGS)
    if not batches:
        raise ValueError("batches must hold at least one batch, got an empty loader")
    for x, y in batches:
        checks.batch_for(model, x, y)
        if len(x) % accumulation_steps:
            raise ValueError(
                f"accumulation_steps={accumulation_steps} must divide each batch, got {len(x)}"
            )


@dataclass(frozen=True)
class Run:
    """Twelve updates on the eight samples."""

    losses: tuple[float, ...]  # one for each update
    gradient_norms: tuple[float, ...]
    weights: tuple[tuple[float, float], ...]  # (weight, bias), the start first

    @property
    def first_step(self) -> float:
        """How far the first update moved the weights."""
        (w0, b0), (w1, b1) = self.weights[:2]
        return ((w1 - w0) ** 2 + (b1 - b0) ** 2) ** 0.5


@functools.cache  # a reader moves a control and back again, and most leave the full batch as it was
def run_on_eight(
    optimizer: str,
    lr: float,
    effective_batch: int,
    accumulation_steps: int,
    scaling: str,
    device: torch.device | str = "cpu",
) -> Run:
    """The run of one of ``OPTIMIZERS`` over batches of that many samples, in order and over again.

    Raises:
        TypeError, ValueError: a number or name is not allowed; it says what is.
    """
    checks.one_of("optimizer", optimizer, OPTIMIZERS)
    checks.one_of("effective_batch", effective_batch, (1, 2, 4, 8))
    model, (x, y) = one_neuron(device), eight_samples(device)
    cut = list(zip(x.split(effective_batch), y.split(effective_batch), strict=True))
    start = flat_weights(model).tolist()
    updates = train(
        model,
        OPTIMIZERS[optimizer](model.parameters(), lr),
        nn.MSELoss(),
        [cut[update % len(cut)] for update in range(UPDATES)],
        accumulation_steps,
        scaling,
        keep_weights=True,
    )
    return Run(
        losses=tuple(update.loss for update in updates),
        gradient_norms=tuple(update.gradient_norm for update in updates),
        weights=tuple(map(tuple, (start, *(update.weights.tolist() for update in updates)))),
    )


@dataclass(frozen=True)
class LossSurface:
    """The mean loss of the eight samples over a grid of (weight, bias), and its lowest point."""

    weights: tuple[float, ...]
    biases: tuple[float, ...]
    losses: tuple[tuple[float, ...], ...]  # one row for each bias
    minimum: tuple[float, float]  # (weight, bias)


def loss_surface(points: int = 60) -> LossSurface:
    """The surface around the start (1, 0) and the minimum, ``points`` along each side."""
    checks.whole_number("points", points, 2)
    x, y = (tensor.double() for tensor in eight_samples())
    weights = torch.linspace(-1, 2.4, points, dtype=torch.float64)
    biases = torch.linspace(-0.8, 4.2, points, dtype=torch.float64)
    errors = weights.reshape(1, -1, 1) * x.flatten() + biases.reshape(-1, 1, 1) - y.flatten()
    minimum = torch.linalg.lstsq(torch.cat([x, torch.ones_like(x)], 1), y).solution.flatten()
    return LossSurface(
        tuple(weights.tolist()),
        tuple(biases.tolist()),
        tuple(map(tuple, errors.square().mean(2).tolist())),
        tuple(minimum.tolist()),
    )
