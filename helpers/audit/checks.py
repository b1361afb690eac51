"""What can be audited: each argument is refused before anything runs."""

from collections.abc import Iterable, Iterator, Sequence
from numbers import Real
from typing import Any

from torch import nn

from helpers import checks
from helpers.audit.windows import LAST_WINDOWS

REDUCTIONS = ("mean", "sum")


def check_arguments(
    train: Any,
    model: nn.Module,
    batches: Iterable,
    loss: Any,
    accumulation_steps: int,
    optimizer_updates: int | None,
) -> None:
    """Raise a TypeError or ValueError that names the argument, its value and what is allowed."""
    for name, call in (("train", train), ("loss", loss)):
        if not callable(call) or isinstance(call, nn.Module):
            wanted = "train(model, batches)" if name == "train" else "loss(model, batch)"
            raise TypeError(f"{name} must be a function, {wanted}, got {type(call).__name__}")
    checks.trainable(model)
    check_batches(batches)
    checks.whole_number("accumulation_steps", accumulation_steps, 1)
    if optimizer_updates is not None:
        checks.whole_number("optimizer_updates", optimizer_updates, 0)


def check_choices(last_window: str | None, reduction: str | None, max_norm: float | None) -> None:
    """Raise a TypeError or ValueError unless these are choices that a loop may make."""
    checks.one_of("last_window", last_window, (None, *LAST_WINDOWS))
    checks.one_of("reduction", reduction, (None, *REDUCTIONS))
    if max_norm is not None and (isinstance(max_norm, bool) or not isinstance(max_norm, Real)):
        raise TypeError(f"max_norm must be a number, got {max_norm!r}")
    if max_norm is not None and not max_norm > 0:
        raise ValueError(f"max_norm must be above 0, got {max_norm}")


def check_extras(learning_rates: Any, logged: Any, averaged: Any, decay: float | None) -> None:
    """Raise a TypeError or ValueError unless these tell of what the audit cannot see itself."""
    if learning_rates is not None:
        if isinstance(learning_rates, str) or not isinstance(learning_rates, Sequence):
            got = type(learning_rates).__name__
            raise TypeError(f"learning_rates must be a sequence of one for each update, got {got}")
        if not learning_rates or not all(isinstance(rate, Real) for rate in learning_rates):
            raise ValueError(f"learning_rates must be numbers, at least one, got {learning_rates}")
    for name, function in (("logged", logged), ("averaged", averaged)):
        if function is not None and not callable(function):
            got = type(function).__name__
            raise TypeError(f"{name} must be a function of what train returns, got {got}")
    if (averaged is None) != (decay is None):
        raise ValueError(f"averaged and decay must be given together, got decay={decay}")
    if decay is not None and (not isinstance(decay, Real) or not 0 <= decay < 1):
        raise ValueError(f"decay must be a number from 0 to 1, 1 excluded, got {decay!r}")


def check_batches(batches: Iterable) -> None:
    """Raise unless ``batches`` can be iterated again and again."""
    if isinstance(batches, (str, bytes, dict)) or not isinstance(batches, Iterable):
        raise TypeError(
            f"batches must be an iterable of micro-batches, got {type(batches).__name__}"
        )
    if isinstance(batches, Iterator):
        raise ValueError(
            f"batches must be something that can be iterated again, as a list or a DataLoader, got "
            f"{type(batches).__name__}, which can be read once"
        )
    if hasattr(batches, "__len__") and len(batches) == 0:
        raise ValueError("batches must hold at least one micro-batch, got none")
