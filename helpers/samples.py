"""The data of the course, and cutting a batch into micro-batches."""

from collections.abc import Sequence

import torch
from torch import Tensor

from helpers import checks

EIGHT_INPUTS = (-2, 3, -1, 2, 4, 1, -2, 0)
EIGHT_TARGETS = (-1, 2, 2, 3, 6, 3, 2, 2)


def eight_samples(device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """The eight inputs and targets of the course, both float32 of shape (8, 1).

    With the model of :func:`helpers.models.one_neuron` and squared error every loss and gradient
    is a small dyadic number, so float32, and bfloat16 too, holds each of them exactly on every
    device.
    """
    x = torch.tensor(EIGHT_INPUTS, dtype=torch.float32, device=device)
    y = torch.tensor(EIGHT_TARGETS, dtype=torch.float32, device=device)
    return x.unsqueeze(1), y.unsqueeze(1)


def digits(samples: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """The first handwritten digits of scikit-learn's set: images (n, 1, 8, 8) in 0..1, labels (n,).

    Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI (1998).
    """
    from sklearn.datasets import load_digits  # takes a second, and only one lesson needs it

    images, labels = load_digits(return_X_y=True)
    checks.whole_number("samples", samples, 1, len(images))
    x = torch.tensor(images[:samples] / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    return x.to(device), torch.tensor(labels[:samples], dtype=torch.int64).to(device)


def random_numbers(*shape: int, device: torch.device | str = "cpu") -> Tensor:
    """Normal random numbers, drawn on the CPU, the same at every call for one shape."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)


def equal_sizes(samples: int, steps: int) -> tuple[int, ...]:
    """The sizes of ``steps`` equal micro-batches of a batch: ``equal_sizes(8, 2)`` is (4, 4).

    Raises:
        TypeError: an argument is not a whole number.
        ValueError: the batch does not divide into that many equal micro-batches.
    """
    checks.whole_number("samples", samples, 2)
    checks.whole_number("steps", steps, 1, samples)
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
    checks.one_batch(x, y)
    checks.micro_batch_sizes(sizes, len(x))
    checks.no_nan(x, y)
    if len(x) < 2:
        raise ValueError("a batch of 1 sample leaves nothing to accumulate: take 2 or more")
    return list(zip(x.split(tuple(sizes)), y.split(tuple(sizes)), strict=True))
