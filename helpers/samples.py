"""The data of the course, the models small enough to follow, and cutting a batch into pieces."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from helpers.device import same_on_every_device

EIGHT_INPUTS = (-2, 3, -1, 2, 4, 1, -2, 0)
EIGHT_TARGETS = (-1, 2, 2, 3, 6, 3, 2, 2)


def eight_samples(device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """The eight inputs and targets of the course, both float32 of shape (8, 1).

    With the model of :func:`one_neuron` and squared error every loss and gradient is a small
    dyadic number, so float32, and bfloat16 too, holds each of them exactly on every device.
    """
    x = torch.tensor(EIGHT_INPUTS, dtype=torch.float32, device=device)
    y = torch.tensor(EIGHT_TARGETS, dtype=torch.float32, device=device)
    return x.unsqueeze(1), y.unsqueeze(1)


@dataclass(frozen=True)
class LossSurface:
    """The mean loss of the eight samples over a grid of (weight, bias), and its lowest point."""

    weights: tuple[float, ...]
    biases: tuple[float, ...]
    losses: tuple[tuple[float, ...], ...]  # one row for each bias
    minimum: tuple[float, float]  # (weight, bias)


def loss_surface(points: int = 60) -> LossSurface:
    """The surface around the start (1, 0) and the minimum, ``points`` along each side."""
    whole_number("points", points, 2)
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


def one_neuron(device: torch.device | str = "cpu") -> nn.Linear:
    """A line y = weight * x + bias with weight 1 and bias 0; no random number is drawn."""
    model = nn.utils.skip_init(nn.Linear, 1, 1, device=device)
    nn.init.ones_(model.weight)
    nn.init.zeros_(model.bias)
    return model


def digits(samples: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """The first handwritten digits of scikit-learn's set: images (n, 1, 8, 8) in 0..1, labels (n,).

    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI (1998).
    """
    from sklearn.datasets import load_digits  # takes a second, and only one lesson needs it

    images, labels = load_digits(return_X_y=True)
    whole_number("samples", samples, 1, len(images))
    x = torch.tensor(images[:samples] / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    return x.to(device), torch.tensor(labels[:samples], dtype=torch.int64).to(device)


def small_convnet(device: torch.device | str = "cpu", seed: int = 0) -> nn.Sequential:
    """A convolutional net for 8x8 digits without BatchNorm: 1,898 parameters, 10 logits.

    The weights are drawn on the CPU from ``seed``, so they are the same on every device, and the
    caller's random state stays as it was.
    """
    with same_on_every_device(seed):
        model = nn.Sequential(
            nn.Conv2d(1, 8, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64, 10),
        )
    return model.to(device)


def equal_sizes(samples: int, steps: int) -> tuple[int, ...]:
    """The sizes of ``steps`` equal micro-batches of a batch: ``equal_sizes(8, 2)`` is (4, 4).

    Raises:
        TypeError: an argument is not a whole number.
        ValueError: the batch does not divide into that many equal micro-batches.
    """
    whole_number("samples", samples, 2)
    whole_number("steps", steps, 1, samples)
    if samples % steps:
        divisors = [k for k in range(1, samples + 1) if samples % k == 0]
        raise ValueError(f"steps={steps} must divide samples={samples}: one of {divisors}")
    return (samples // steps,) * steps


def micro_batches(x: Tensor, y: Tensor, sizes: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """The batch cut, in order, into micro-batches of ``sizes`` samples; views, nothing is copied.

    Args:
        x: inputs, shape (samples, ...).
        y: targets, shape (samples, ...), on the same device.
        sizes: how many samples each micro-batch holds, e.g. (4, 4) or (5, 3).

    Raises:
        TypeError: x or y is no tensor, or a size is no whole number.
        ValueError: the sizes don't add up to the batch, one is below 1, the batch holds fewer than
            two samples or a NaN, or x and y differ in length or device.
    """
    samples = batch_length(x, y)
    check_sizes(sizes, samples)
    check_numbers(x, y)
    if samples < 2:
        raise ValueError("a batch of 1 sample leaves nothing to accumulate: take 2 or more")
    return list(zip(x.split(tuple(sizes)), y.split(tuple(sizes)), strict=True))


def batch_length(x: Tensor, y: Tensor) -> int:
    """How many samples x and y hold, after checking that they are one batch."""
    for name, tensor in (("x", x), ("y", y)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
        if tensor.dim() == 0 or len(tensor) == 0:
            raise ValueError(f"{name} must hold at least one sample, got shape {_shape(tensor)}")
    if len(x) != len(y):
        raise ValueError(f"x and y must hold as many samples, got {len(x)} and {len(y)}")
    if x.device != y.device:
        raise ValueError(f"x and y must be on one device, got {x.device} and {y.device}")
    return len(x)


def check_numbers(x: Tensor, y: Tensor) -> None:
    """Raise, naming the first such sample, if x or y holds a NaN."""
    for name, tensor in (("x", x), ("y", y)):
        if tensor.isnan().any():
            broken = tensor.isnan().reshape(len(tensor), -1).any(1)
            sample = int(broken.int().argmax())
            raise ValueError(f"{name} must hold no NaN, got one in sample {sample}")


def check_sizes(sizes: Sequence[int], samples: int) -> None:
    """Raise unless ``sizes`` are micro-batches that make up a batch of ``samples``."""
    if isinstance(sizes, (str, int)) or not isinstance(sizes, Sequence):
        raise TypeError(f"sizes must be a sequence of whole numbers, got {sizes!r}")
    for size in sizes:
        whole_number("each of sizes", size, 1)
    if sum(sizes) != samples:
        raise ValueError(
            f"sizes={tuple(sizes)} must add up to the batch of {samples} samples, not {sum(sizes)}"
        )


def whole_number(name: str, value: int, low: int, high: int | None = None) -> None:
    """Raise, naming the argument, unless ``value`` is an int (no bool) from ``low`` to ``high``."""
    allowed = f"a whole number of at least {low}" if high is None else f"from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be {allowed}, got {value!r}")
    if value < low or (high is not None and value > high):
        raise ValueError(f"{name} must be {allowed}, got {value}")


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)
