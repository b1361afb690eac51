"""What arguments must be: each check raises, naming the argument, its value and what is allowed."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd


def whole_number(name: str, value: int, low: int, high: int | None = None) -> None:
    """Raise unless ``value`` is an int (no bool) from ``low`` to ``high``."""
    allowed = f"a whole number of at least {low}" if high is None else f"from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be {allowed}, got {value!r}")
    if value < low or (high is not None and value > high):
        raise ValueError(f"{name} must be {allowed}, got {value}")


def one_of(name: str, value: object, allowed: Iterable[object]) -> None:
    """Raise unless ``value`` is one of those allowed."""
    allowed = list(allowed)
    if value not in allowed:
        names = ", ".join(f"'{a}'" if isinstance(a, str) else str(a) for a in allowed)
        raise ValueError(f"{name} must be one of {names}, got {value!r}")


def micro_batch_sizes(sizes: Sequence[int], samples: int) -> None:
    """Raise unless ``sizes`` are those of micro-batches that make up a batch of ``samples``."""
    if isinstance(sizes, (str, int)) or not isinstance(sizes, Sequence):
        raise TypeError(f"sizes must be a sequence of whole numbers, got {sizes!r}")
    for size in sizes:
        whole_number("each of sizes", size, 1)
    if sum(sizes) != samples:
        raise ValueError(
            f"sizes={tuple(sizes)} must add up to the batch of {samples} samples, not {sum(sizes)}"
        )


def attention_heads(hidden: int, heads: int) -> None:
    """Raise unless ``hidden`` features divide into ``heads``."""
    whole_number("hidden", hidden, 1)
    whole_number("heads", heads, 1)
    if hidden % heads:
        raise ValueError(f"heads={heads} must divide hidden={hidden}")


def one_batch(x: Tensor, y: Tensor) -> None:
    """Raise unless x and y are tensors of as many samples, at least one, on one device."""
    for name, tensor in (("x", x), ("y", y)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
        if tensor.dim() == 0 or len(tensor) == 0:
            shape = tuple(tensor.shape)
            raise ValueError(f"{name} must hold at least one sample, got shape {shape}")
    if len(x) != len(y):
        raise ValueError(f"x and y must hold as many samples, got {len(x)} and {len(y)}")
    if x.device != y.device:
        raise ValueError(f"x and y must be on one device, got {x.device} and {y.device}")


def no_nan(x: Tensor, y: Tensor) -> None:
    """Raise, naming the first such sample, if x or y holds a NaN."""
    for name, tensor in (("x", x), ("y", y)):
        if tensor.isnan().any():
            broken = tensor.isnan().reshape(len(tensor), -1).any(1)
            sample = int(broken.int().argmax())
            raise ValueError(f"{name} must hold no NaN, got one in sample {sample}")


def trainable(model: nn.Module) -> None:
    """Raise unless ``model`` is a module of which a parameter requires a gradient."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a Module, got {type(model).__name__}")
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("model must have trainable parameters, got none with requires_grad")


def batch_for(model: nn.Module, x: Tensor, y: Tensor) -> None:
    """Raise unless x and y are a batch without NaN that ``model``, trainable, can be given."""
    one_batch(x, y)
    trainable(model)
    device = next(p.device for p in model.parameters() if p.requires_grad)
    if device != x.device:
        raise ValueError(f"model is on {device} but x is on {x.device}")
    no_nan(x, y)


def samples_apart(model: nn.Module) -> None:
    """Raise, naming the layer, if one mixes the samples of a batch or draws at random."""
    for name, layer in model.named_modules():
        kind = f"{type(layer).__name__} {name!r}"
        if isinstance(layer, _BatchNorm) and (layer.training or layer.running_mean is None):
            raise ValueError(f"model must treat samples apart, but {kind} takes batch statistics")
        if isinstance(layer, _DropoutNd) and layer.training and layer.p > 0:
            raise ValueError(
                f"model must draw no random numbers, but {kind} drops {layer.p:g} of its input: "
                "call model.eval(), or set its p to 0"
            )


def scalar_loss(loss: Tensor) -> None:
    """Raise unless ``loss`` is a tensor of no dimension."""
    if not isinstance(loss, Tensor) or loss.dim() != 0:
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise ValueError(f"loss_fn must return a scalar tensor (a mean over samples), got {got}")


def finite_losses(losses: Sequence[Tensor]) -> None:
    """Raise if a loss is NaN or infinite; a GPU is waited for once, however many there are."""
    values = torch.stack(list(losses))
    if not values.isfinite().all():
        broken = next(value for value in values.tolist() if value - value != 0)
        raise ValueError(f"loss must be a finite number, got {broken}")
