"""The gradient of a batch: all at once, accumulated from micro-batches, or sample by sample.

A gradient is handed back as one flat tensor, the parameters in the order of
``model.parameters()``; for :func:`helpers.samples.one_neuron` that is (weight, bias).
Functions that only measure leave the model as it was: weights, ``.grad``, buffers, random state.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from helpers.samples import batch_length, check_numbers, check_sizes, micro_batches, whole_number

Loss = Callable[[Tensor, Tensor], Tensor]
Batch = tuple[Tensor, Tensor]

SCALINGS = ("none", "steps", "samples")


def scale_factors(sizes: Sequence[int], scaling: str) -> tuple[float, ...]:
    """What each micro-batch's mean loss is multiplied by before its backward().

    ``"none"`` leaves it alone, ``"steps"`` divides by the number of micro-batches, ``"samples"``
    multiplies by the micro-batch's share of all samples, which is right for any sizes.
    """
    check_sizes(sizes, sum(sizes))
    _one_of("scaling", scaling, SCALINGS)
    if scaling == "samples":
        return tuple(size / sum(sizes) for size in sizes)
    return (1.0 if scaling == "none" else 1 / len(sizes),) * len(sizes)


def accumulate(
    model: nn.Module, loss_fn: Loss, batches: Sequence[Batch], factors: Sequence[float]
) -> list[Tensor]:
    """The mean loss of each micro-batch, after adding its scaled gradient to ``.grad``."""
    losses = []
    for (x, y), factor in zip(batches, factors, strict=True):
        loss = loss_fn(model(x), y)  # forward
        check_loss(loss)
        (loss * factor).backward()  # scale, backward
        losses.append(loss.detach())
    return losses


def full_batch_gradient(model: nn.Module, loss_fn: Loss, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of ``loss_fn`` over the whole batch in one forward and one backward.

    Args:
        model: any module with trainable parameters; it is left as it was.
        loss_fn: takes (outputs, targets), returns a scalar mean over the samples.
        x: inputs, shape (samples, ...), on the model's device.
        y: targets, shape (samples, ...).

    Returns:
        A flat tensor with one number for each trainable parameter.
    """
    _check_batch(model, x, y)
    with _untouched(model):
        accumulate(model, loss_fn, [(x, y)], (1.0,))
        return flat_gradient(model)


def accumulated_gradient(
    model: nn.Module,
    loss_fn: Loss,
    x: Tensor,
    y: Tensor,
    sizes: Sequence[int],
    scaling: str = "steps",
) -> Tensor:
    """The gradient that accumulation over micro-batches of ``sizes`` leaves in ``.grad``.

    Args:
        model, loss_fn, x, y: as for :func:`full_batch_gradient`.
        sizes: samples in each micro-batch, e.g. (4, 4); they must add up to the batch.
        scaling: ``"none"``, ``"steps"`` or ``"samples"``, see :func:`scale_factors`.
    """
    _check_batch(model, x, y)
    batches = micro_batches(x, y, sizes)
    factors = scale_factors(sizes, scaling)
    with _untouched(model):
        accumulate(model, loss_fn, batches, factors)
        return flat_gradient(model)


def per_sample_gradients(model: nn.Module, loss_fn: Loss, x: Tensor, y: Tensor) -> Tensor:
    """Each sample's own gradient, one row a sample, by torch.func: shape (samples, parameters).

    The model must treat samples apart: BatchNorm in training mode makes this meaningless.
    """
    _check_batch(model, x, y)
    parameters = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def loss_of_one(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        outputs = functional_call(model, parameters, (x.unsqueeze(0),))
        return loss_fn(outputs, y.unsqueeze(0))

    by_name = vmap(grad(loss_of_one), in_dims=(None, 0, 0))(parameters, x, y)
    return torch.cat([by_name[name].flatten(1) for name in parameters], dim=1)


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
        model, loss_fn: as for :func:`full_batch_gradient`; the model is trained in place.
        optimizer: any that steps without a closure.
        batches: one (x, y) for each update; every batch must divide by ``accumulation_steps``.
        accumulation_steps: micro-batches in each update; 1 is the full batch.
        scaling: see :func:`scale_factors`.
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
        norm = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
        optimizer.step()  # step
        weights = flat_weights(model).cpu() if keep_weights else None
        updates.append(Update(float(torch.stack(losses).mean()), float(norm), weights))
    return updates


@dataclass(frozen=True)
class Comparison:
    """How one gradient differs from the one it should be; prints as a sentence."""

    exact: bool  # every element equal to the bit
    largest_difference: float
    relative_difference: float  # length of the difference over the length of the expected one
    length_ratio: float  # length of the one over the length of the expected one

    def __str__(self) -> str:
        if self.exact:
            return "equal to the bit"
        largest, share = f"{self.largest_difference:.4g}", f"{100 * self.relative_difference:.3g} %"
        return (
            f"different: largest difference {largest}, {share} of its length; "
            f"{self.length_ratio:.4g} times as long"
        )


def compare(gradient: Tensor, expected: Tensor) -> Comparison:
    """The difference between two gradients of one shape: exact or not, and how large."""
    if gradient.shape != expected.shape:
        shapes = f"{tuple(gradient.shape)} and {tuple(expected.shape)}"
        raise ValueError(f"gradient and expected must have one shape, got {shapes}")
    if gradient.device != expected.device:
        devices = f"{gradient.device} and {expected.device}"
        raise ValueError(f"gradient and expected must be on one device, got {devices}")
    difference = gradient - expected
    length = expected.norm().item()
    return Comparison(
        exact=torch.equal(gradient, expected),
        largest_difference=difference.abs().max().item(),
        relative_difference=_ratio(difference.norm().item(), length),
        length_ratio=_ratio(gradient.norm().item(), length),
    )


def flat_gradient(model: nn.Module) -> Tensor:
    """A copy of ``.grad`` of all trainable parameters, flat; zeros where there is none."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    filled = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    return torch.cat([g.detach().flatten() for g in filled])


def flat_weights(model: nn.Module) -> Tensor:
    """A copy of all trainable parameters as one flat tensor."""
    return torch.cat([p.detach().flatten() for p in model.parameters() if p.requires_grad])


def check_loss(loss: Tensor) -> None:
    """Raise unless ``loss`` is a scalar tensor with a number in it."""
    if not isinstance(loss, Tensor) or loss.dim() != 0:
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise ValueError(f"loss_fn must return a scalar tensor (a mean over samples), got {got}")
    if not math.isfinite(loss.item()):
        raise ValueError(f"loss must be a finite number, got {loss.item()}")


@contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """Empty ``.grad`` inside; afterwards ``.grad``, buffers and random state as before."""
    gradients = [(p, p.grad) for p in model.parameters()]
    buffers = [(b, b.clone()) for b in model.buffers()]
    cuda = {p.device.index for p in model.parameters() if p.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(cuda)):
        try:
            for parameter, _ in gradients:
                parameter.grad = None
            yield
        finally:
            for parameter, gradient in gradients:
                parameter.grad = gradient
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)


def _check_batch(model: nn.Module, x: Tensor, y: Tensor) -> None:
    batch_length(x, y)
    trainable = next((p for p in model.parameters() if p.requires_grad), None)
    if trainable is None:
        raise ValueError("model must have trainable parameters, got none with requires_grad")
    if trainable.device != x.device:
        raise ValueError(f"model is on {trainable.device} but x is on {x.device}")
    check_numbers(x, y)


def _check_training(
    model: nn.Module, batches: Sequence[Batch], accumulation_steps: int, scaling: str
) -> None:
    whole_number("accumulation_steps", accumulation_steps, 1)
    _one_of("scaling", scaling, SCALINGS)
    if not batches:
        raise ValueError("batches must hold at least one batch, got an empty loader")
    for x, y in batches:
        _check_batch(model, x, y)
        if len(x) % accumulation_steps:
            raise ValueError(
                f"accumulation_steps={accumulation_steps} must divide each batch, got {len(x)}"
            )


def _one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def _ratio(a: float, b: float) -> float:
    return a / b if b else (0.0 if a == 0 else math.inf)
