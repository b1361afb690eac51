"""The fewest micro-batches with which an update fits into a budget of bytes."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor, nn

from helpers import checks
from helpers.gradients import Loss
from helpers.memory.tally import Memory, in_words, parts_in_words
from helpers.memory.trying import OptimizerFactory, trying

REMEDIES = {
    "parameters": "hold them in lower precision, or shard them over devices",
    "gradients": "hold weights and gradients in lower precision, or shard them over devices",
    "optimizer state": "take an optimizer with a smaller state: per weight Adam keeps two numbers, "
    "momentum one, plain SGD none",
    "activations": "checkpoint the model (recompute instead of keeping), compute in lower "
    "precision, or make each sample shorter",
    "other": "temporaries and inputs: compute in lower precision, make each sample shorter, or "
    "split the operation with the largest output (often the loss over a vocabulary)",
    "allowance": "it is your own estimate of context and fragmentation: check it",
}


class DoesNotFit(ValueError):
    """No micro-batch fits, not even the smallest; the message says what is too large.

    Attributes:
        budget, allowance: as given, in bytes.
        peak: bytes for the smallest micro-batches.
        at_peak: the peak's bytes for each of ``CATEGORIES``.
        largest: the part to shrink first, a key of ``at_peak`` or ``"allowance"``.
    """

    def __init__(self, memory: Memory, size: int, budget: int, allowance: int):
        self.budget, self.allowance = budget, allowance
        self.peak, self.at_peak = memory.peak, memory.at_peak
        parts = {**memory.at_peak, "allowance": allowance}
        self.largest = max(parts, key=parts.__getitem__)
        smallest = "one sample" if size == 1 else f"{size} samples"
        super().__init__(
            f"budget={budget} ({in_words(budget)}) must hold at least micro-batches of {smallest}, "
            f"which take {in_words(self.peak + allowance)}: {parts_in_words(parts)}. The largest "
            f"part is {self.largest}: {REMEDIES[self.largest]}"
        )


@dataclass(frozen=True)
class Plan:
    """How to cut a batch so that it fits, and what it will take; prints as two sentences."""

    sizes: tuple[int, ...]  # samples in each; where they differ, weight each mean by its share
    peak: int  # bytes, without the allowance
    at_peak: dict[str, int]  # the peak's bytes by category
    peak_with_one_fewer: int | None  # with one micro-batch fewer; None where there is only one
    budget: int
    allowance: int

    @property
    def micro_batch(self) -> int:
        """Samples in the largest micro-batch."""
        return self.sizes[0]

    @property
    def accumulation_steps(self) -> int:
        return len(self.sizes)

    def __str__(self) -> str:
        runs = [f"{len(list(run))} x {size}" for size, run in groupby(self.sizes)]
        allowance = f" + {in_words(self.allowance)} allowance" if self.allowance else ""
        return (
            f"{' and '.join(runs)} samples.\n"
            f"Peak {in_words(self.peak)}{allowance} of {in_words(self.budget)}: "
            f"{parts_in_words(self.at_peak)}."
        )


def plan(
    model: nn.Module,
    loss_fn: Loss,
    x: Tensor,
    y: Tensor,
    optimizer: OptimizerFactory,
    effective_batch: int,
    budget: int,
    allowance: int = 0,
    device: torch.device | str | None = None,
) -> Plan:
    """The fewest and most even micro-batches with which one update fits into the budget.

    Nothing is allocated and nothing of yours is touched: copies of fake tensors run the loop of
    :func:`helpers.memory.accumulated_update` once the optimizer has its state, with one
    micro-batch at a time on the device. The answer was measured so, and one micro-batch fewer
    measured not to fit. Your own loop takes more if it keeps outputs or graphs from one
    micro-batch to the next. Forward hooks of the model run on the copy.

    Args:
        model: on any device, "meta" too.
        loss_fn: takes (outputs, targets), returns a scalar.
        x, y: example batch, shapes (samples, ...); only shapes and types matter.
        optimizer: makes an optimizer of the parameters it is handed, e.g. ``torch.optim.AdamW``;
            for groups by name their ``named`` has (name, parameter).
        effective_batch: samples in one update.
        budget: bytes there are.
        allowance: bytes of it set aside for what tensors don't show: the CUDA context, kernels'
            workspaces, blocks and fragments of the allocator, and data that stay on the device.
        device: whose kernels to plan for; by default the model's, for "meta" the CPU.

    Raises:
        DoesNotFit: even the smallest micro-batches that the model takes need more.
        TypeError, ValueError: an argument is of the wrong kind or out of range, or the model,
            the loss or the optimizer fails or depends on values, which fake tensors don't have.
    """
    _check(model, loss_fn, x, y, optimizer)
    checks.whole_number("effective_batch", effective_batch, 1)
    checks.whole_number("budget", budget, 1)
    checks.whole_number("allowance", allowance, 0)
    with trying(model, loss_fn, x, y, optimizer, effective_batch, device) as memory_of:
        smallest = _smallest(memory_of, effective_batch)
        most = effective_batch // smallest

        def with_steps(steps: int) -> Memory:
            return memory_of(_telling(even_cut(effective_batch, steps)))

        steps = _fewest(lambda k: with_steps(k).peak, most, budget - allowance)
        if steps is None:
            raise DoesNotFit(with_steps(most), smallest, budget, allowance)
        memory = with_steps(steps)
        fewer = with_steps(steps - 1).peak if steps > 1 else None
    sizes = even_cut(effective_batch, steps)
    return Plan(sizes, memory.peak, memory.at_peak, fewer, budget, allowance)


def even_cut(samples: int, steps: int) -> tuple[int, ...]:
    """The sizes of ``steps`` micro-batches that differ by one at most: (3, 3, 2) for 8 in 3."""
    size, larger = divmod(samples, steps)
    return (size + 1,) * larger + (size,) * (steps - larger)


def _smallest(memory_of: Callable[[tuple[int, ...]], Memory], samples: int) -> int:
    """The smallest micro-batch that the model takes; BatchNorm in training wants two samples."""
    for size in range(1, samples):
        try:
            memory_of((size,))
        except ValueError:
            continue
        return size
    return samples


def _telling(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The micro-batches that decide the peak: the first, one beside its gradients, a smaller last.

    From the second on, all of one size find the same memory.
    """
    return sizes[:2] + (sizes[-1:] if len(sizes) > 2 and sizes[-1] != sizes[1] else ())


def _fewest(peak: Callable[[int], int], most: int, room: int) -> int | None:
    """The fewest steps whose peak fits into ``room``; None where not even ``most`` do.

    One micro-batch meets no gradients. From two on the peak falls as they get smaller.
    """
    if peak(1) <= room:
        return 1
    if peak(most) > room:
        return None
    low, high = 1, most  # low does not fit, high does
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if peak(middle) <= room else (middle, high)
    while peak(high - 1) <= room:  # where the peak does not fall as assumed
        high -= 1
    return high


def _check(model: nn.Module, loss_fn: Loss, x: Tensor, y: Tensor, optimizer: object) -> None:
    checks.trainable(model)
    if isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError("optimizer must make an optimizer of parameters, got one already made")
    for name, value in (("loss_fn", loss_fn), ("optimizer", optimizer)):
        if not callable(value):
            raise TypeError(f"{name} must be callable, got {value!r}")
    checks.one_batch(x, y)
