"""Short loops, right ones and faulty ones, and the data to try them on."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from helpers.audit import Report, audit

Train = Callable[[nn.Module, Iterable], Any]
SGD = torch.optim.SGD


class OneWeight(nn.Module):
    """w * x for each sample, so that the gradient of a sample is x, whatever w is."""

    def __init__(self, start: float = 0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(start, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x


def samples(*micro_batches: Sequence[float] | float) -> list[Tensor]:
    """Micro-batches of these numbers, the gradients of their samples."""
    lists = [[m] if isinstance(m, (int, float)) else m for m in micro_batches]
    return [torch.tensor(m, dtype=torch.float64) for m in lists]


def each_output(model: nn.Module, x: Tensor) -> Tensor:
    return model(x)


def windows(batches: Iterable, k: int) -> Iterable[list]:
    """The micro-batches by windows, the last one short, whatever can be iterated."""
    items = iter(batches)
    while window := list(islice(items, k)):
        yield window


def loop(body: Callable[[nn.Module, torch.optim.Optimizer, Iterable], Any], epochs: int = 1, **lr):
    """A train function: an optimizer, and the body once an epoch."""

    def train(model: nn.Module, batches: Iterable) -> None:
        optimizer = SGD(model.parameters(), **({"lr": 0.1} | lr))
        for _ in range(epochs):
            body(model, optimizer, batches)

    return train


def right(k: int, epochs: int = 1) -> Train:
    """Divides by the window's elements, and steps on a short last window."""

    def epoch(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterable) -> None:
        for window in windows(batches, k):
            elements = sum(len(x) for x in window)
            for x in window:
                (model(x).sum() / elements).backward()
            optimizer.step()
            optimizer.zero_grad()

    return loop(epoch, epochs)


def stepping_at(
    boundary: Callable[[int, int], bool],
    divisor: float = 1.0,
    epochs: int = 1,
    clear: bool = True,
) -> Train:
    """Mean losses over a divisor; steps after micro-batch i of n where boundary(i, n) says so."""

    def epoch(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Sequence) -> None:
        for i, x in enumerate(batches):
            (model(x).mean() / divisor).backward()
            if boundary(i, len(batches)):
                optimizer.step()
                if clear:
                    optimizer.zero_grad()

    return loop(epoch, epochs)


def every(k: int, flush: bool = True) -> Callable[[int, int], bool]:
    """After each k-th micro-batch and, to flush, after the last."""
    return lambda i, n: (i + 1) % k == 0 or (flush and i == n - 1)


def audited(
    train: Train, batches: Iterable, k: int, model: nn.Module | None = None, **options: Any
) -> Report:
    model = OneWeight() if model is None else model
    return audit(train, model, batches, options.pop("loss", each_output), k, **options)


def kinds(report: Report) -> set[str]:
    return {finding.kind for finding in report.findings}


def of_updates(report: Report, kind: str) -> tuple[int, ...]:
    """The updates that a kind of finding concerns."""
    (finding,) = [f for f in report.findings if f.kind == kind]
    return finding.updates
