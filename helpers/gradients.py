"""The gradient of a batch: all at once, accumulated from micro-batches, or sample by sample.

A gradient is handed back as one flat tensor, the parameters in the order of
``model.parameters()``; for :func:`helpers.models.one_neuron` that is (weight, bias).
Functions that only measure leave the model as it was: weights, ``.grad``, buffers, random state.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from helpers import checks
from helpers.device import same_on_every_device
from helpers.samples import micro_batches

Loss = Callable[[Tensor, Tensor], Tensor]
Batch = tuple[Tensor, Tensor]

SCALINGS = ("none", "steps", "samples")


def scale_factors(sizes: Sequence[int], scaling: str) -> tuple[float, ...]:
    """What each micro-batch's mean loss is multiplied by before its backward().

    ``"none"`` leaves it alone, ``"steps"`` divides by the number of micro-batches, ``"samples"``
    multiplies by the micro-batch's share of all samples, which is right for any sizes.
    """
    checks.micro_batch_sizes(sizes, sum(sizes))
    checks.one_of("scaling", scaling, SCALINGS)
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
        checks.scalar_loss(loss)
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
    checks.batch_for(model, x, y)
    return _gradient_of(model, loss_fn, [(x, y)], (1.0,))


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
    checks.batch_for(model, x, y)
    batches = micro_batches(x, y, sizes)
    return _gradient_of(model, loss_fn, batches, scale_factors(sizes, scaling))


def _gradient_of(
    model: nn.Module, loss_fn: Loss, batches: Sequence[Batch], factors: Sequence[float]
) -> Tensor:
    with _untouched(model):
        checks.finite_losses(accumulate(model, loss_fn, batches, factors))
        return flat_gradient(model)


def per_sample_gradients(model: nn.Module, loss_fn: Loss, x: Tensor, y: Tensor) -> Tensor:
    """Each sample's own gradient, one row a sample, by torch.func: shape (samples, parameters).

    Args:
        model, loss_fn, x, y: as for :func:`full_batch_gradient`.

    Raises:
        ValueError: a layer treats samples together (BatchNorm in training mode) or draws random
            numbers (dropout in training mode), so that no sample has a gradient of its own.
    """
    checks.batch_for(model, x, y)
    checks.samples_apart(model)
    parameters = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def loss_of_one(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        outputs = functional_call(model, parameters, (x.unsqueeze(0),))
        return loss_fn(outputs, y.unsqueeze(0))

    with _untouched(model), _dense_embeddings(model):
        try:
            rows = vmap(grad(loss_of_one), in_dims=(None, 0, 0))(parameters, x, y)
        except RuntimeError as error:
            if "random operation" not in str(error):
                raise
            raise ValueError(
                "model must draw no random numbers, so that a sample has one gradient: "
                "call model.eval(), or set its dropout to 0"
            ) from error
    return torch.cat([rows[name].flatten(1) for name in parameters], dim=1)


def whole_window_gradient(
    net: nn.Module, loss_fn: Callable[[Tensor], Tensor], parts: Sequence[Tensor], first_seed: int
) -> Tensor:
    """The gradient of a loss over all outputs at once, the graphs of all parts kept for it.

    Part i is run with seed ``first_seed + i``, so that its dropout masks are known. ``.grad`` is
    left with the gradient, the random state of the CPU as it was.
    """
    outputs = []
    with same_on_every_device():
        for i, part in enumerate(parts):
            torch.manual_seed(first_seed + i)
            outputs.append(net(part))
        net.zero_grad()
        loss_fn(torch.cat(outputs)).backward()
    return flat_gradient(net)


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
    filled = [torch.zeros_like(p) if p.grad is None else p.grad.detach() for p in parameters]
    return torch.cat([(g.to_dense() if g.is_sparse else g).flatten() for g in filled])


def flat_weights(model: nn.Module) -> Tensor:
    """A copy of all trainable parameters as one flat tensor."""
    return torch.cat([p.detach().flatten() for p in model.parameters() if p.requires_grad])


@contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """Empty ``.grad`` inside; afterwards ``.grad``, buffers and random state as before.

    A buffer may be changed in place, or another tensor put in its place.
    """
    gradients = [(p, p.grad) for p in model.parameters()]
    buffers = [(m, dict(m._buffers)) for m in model.modules()]
    contents = [(b, b.clone()) for b in model.buffers()]
    cuda = {p.device.index for p in model.parameters() if p.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(cuda)):
        try:
            for parameter, _ in gradients:
                parameter.grad = None
            yield
        finally:
            for parameter, gradient in gradients:
                parameter.grad = gradient
            for module, held in buffers:
                module._buffers.clear()
                module._buffers.update(held)
            with torch.no_grad():
                for buffer, before in contents:
                    buffer.copy_(before)


@contextmanager
def _dense_embeddings(model: nn.Module) -> Iterator[None]:
    """Embeddings give dense gradients inside: torch.func can't batch sparse ones."""
    sparse = [m for m in model.modules() if getattr(m, "sparse", False) is True]
    try:
        for module in sparse:
            module.sparse = False
        yield
    finally:
        for module in sparse:
            module.sparse = True


def _ratio(a: float, b: float) -> float:
    return a / b if b else (0.0 if a == 0 else math.inf)
