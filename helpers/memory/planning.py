"""The largest micro-batch that fits into a budget of bytes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)

from helpers import checks
from helpers.gradients import Batch, Loss, accumulate
from helpers.memory.faking import fake, fake_copy, same_kernels
from helpers.memory.measuring import Memory, in_words, measure, one_device, parts_in_words

OptimizerFactory = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]

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
    """No micro-batch fits, not even of one sample; the message says what is too large.

    Attributes:
        budget, allowance: as given, in bytes.
        peak: bytes for micro-batches of one sample.
        at_peak: the peak's bytes for each of ``CATEGORIES``.
        largest: the part to shrink first, a key of ``at_peak`` or ``"allowance"``.
    """

    def __init__(self, memory: Memory, budget: int, allowance: int):
        self.budget, self.allowance = budget, allowance
        self.peak, self.at_peak = memory.peak, memory.at_peak
        parts = {**memory.at_peak, "allowance": allowance}
        self.largest = max(parts, key=parts.__getitem__)
        super().__init__(
            f"budget={budget} ({in_words(budget)}) must hold at least micro-batches of one sample, "
            f"which take {in_words(self.peak + allowance)}: {parts_in_words(parts)}. The largest "
            f"part is {self.largest}: {REMEDIES[self.largest]}"
        )


@dataclass(frozen=True)
class Plan:
    """How to cut a batch so that it fits, and what it will take; prints as two sentences."""

    micro_batch: int  # samples in each micro-batch but, perhaps, the last
    sizes: tuple[int, ...]  # samples in each; divide sums by the batch's count if the last differs
    peak: int  # bytes, without the allowance
    at_peak: dict[str, int]  # the peak's bytes by category
    peak_with_one_more: int | None  # with micro-batches of one sample more; None: there are none
    budget: int
    allowance: int

    @property
    def accumulation_steps(self) -> int:
        return len(self.sizes)

    def __str__(self) -> str:
        last = "" if self.sizes[-1] == self.micro_batch else f", the last of {self.sizes[-1]}"
        allowance = f" + {in_words(self.allowance)} allowance" if self.allowance else ""
        return (
            f"{self.accumulation_steps} x {self.micro_batch} samples{last}.\n"
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
    """The largest micro-batch with which one update of the effective batch fits into the budget.

    Nothing is allocated and nothing of yours is touched: copies of fake tensors run the loop of
    :func:`accumulated_update` once the optimizer has its state, with one micro-batch at a time on
    the device. The answer was measured so, and one sample more measured not to fit. Your own loop
    takes more if it keeps outputs or graphs from one micro-batch to the next. Forward hooks of the
    model run on the copy.

    Where the peak lies in the optimizer's step, during which the loop still holds the last
    micro-batch, a far larger size whose last one is shorter may fit again: none is looked for.

    Args:
        model: on any device, "meta" too.
        loss_fn: takes (outputs, targets), returns a scalar.
        x, y: example batch, shapes (samples, ...); only shapes and types matter.
        optimizer: makes an optimizer of parameters, e.g. ``torch.optim.AdamW``.
        effective_batch: samples in one update.
        budget: bytes there are.
        allowance: bytes of it set aside for what tensors don't show: the CUDA context, kernels'
            workspaces, blocks and fragments of the allocator, and data that stay on the device.
        device: whose kernels to plan for; by default the model's, for "meta" the CPU.

    Raises:
        DoesNotFit: even micro-batches of one sample take more than the budget.
        TypeError, ValueError: an argument is of the wrong kind or out of range, or the model's
            memory depends on values, which fake tensors don't have.
    """
    _check(model, loss_fn, x, y, optimizer)
    checks.whole_number("effective_batch", effective_batch, 1)
    checks.whole_number("budget", budget, 1)
    checks.whole_number("allowance", allowance, 0)
    with _measuring(model, loss_fn, x, y, optimizer, device) as memory_of:
        room = budget - allowance
        micro_batch = _largest_micro_batch(memory_of, effective_batch, room)
        if micro_batch == 0:
            raise DoesNotFit(memory_of(_telling(cut(effective_batch, 1))), budget, allowance)
        sizes = cut(effective_batch, micro_batch)
        memory = memory_of(_telling(sizes))
        more = None
        if micro_batch < effective_batch:
            more = memory_of(_telling(cut(effective_batch, micro_batch + 1))).peak
    return Plan(micro_batch, sizes, memory.peak, memory.at_peak, more, budget, allowance)


def accumulated_update(
    model: nn.Module,
    loss_fn: Loss,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[Batch],
    shares: Sequence[float],
) -> None:
    """One update: each micro-batch's mean loss times its share of the samples, then one step.

    ``batches`` may be a generator, so that one micro-batch at a time is alive.
    """
    optimizer.zero_grad()  # clear
    for batch, share in zip(batches, shares, strict=True):
        accumulate(model, loss_fn, [batch], [share])
    optimizer.step()  # step


def cut(samples: int, micro_batch: int) -> tuple[int, ...]:
    """``cut(10, 4)`` is (4, 4, 2)."""
    full, rest = divmod(samples, micro_batch)
    return (micro_batch,) * full + ((rest,) if rest else ())


@contextmanager
def _measuring(
    model: nn.Module,
    loss_fn: Loss,
    x: Tensor,
    y: Tensor,
    optimizer: OptimizerFactory,
    device: torch.device | str | None,
) -> Iterator[Callable[[tuple[int, ...]], Memory]]:
    """A function from the sizes of micro-batches to the memory of their update, under fakes."""
    device = one_device(model, device)
    device = torch.device("cpu") if device.type == "meta" else device
    with fake() as mode:
        model = fake_copy(model, device, mode)
        loss_fn = fake_copy(loss_fn, device, mode) if isinstance(loss_fn, nn.Module) else loss_fn
        made = optimizer(model.parameters())
        same_kernels(made)

        def samples_of(example: Tensor, samples: int) -> Tensor:
            return torch.empty((samples, *example.shape[1:]), dtype=example.dtype, device=device)

        @cache
        def memory_of(sizes: tuple[int, ...]) -> Memory:
            batches = ((samples_of(x, size), samples_of(y, size)) for size in sizes)
            with _values_wanted(), measure(model, made, device=device) as memory:
                accumulated_update(model, loss_fn, made, batches, [1.0] * len(sizes))
            return memory

        memory_of((1,))  # the first step makes the optimizer's state
        memory_of.cache_clear()
        yield memory_of


@contextmanager
def _values_wanted() -> Iterator[None]:
    try:
        yield
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise ValueError(
            f"model and loss_fn must not depend on values ({error}): measure() such code for real"
        ) from error


def _telling(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The micro-batches that decide the peak: the first, one beside its gradients, a shorter last.

    From the second on, all full ones find the same memory.
    """
    return sizes[:2] + (sizes[-1:] if len(sizes) > 2 and sizes[-1] != sizes[0] else ())


def _largest_micro_batch(
    memory_of: Callable[[tuple[int, ...]], Memory], samples: int, room: int
) -> int:
    """The largest size whose cut of the batch fits into ``room``; 0 if there is none.

    The first micro-batch meets no gradients. So the peak rises with the size up to half the batch,
    but then the second gets smaller, and a larger first one may fit where half does not.
    """

    def alone(size: int) -> int:
        return memory_of((size,)).peak

    def whole(size: int) -> int:
        return memory_of(_telling(cut(samples, size))).peak

    if alone(samples) <= room:
        return samples
    half, found = samples // 2, 0
    if half + 1 < samples and alone(half + 1) <= room:
        largest = _largest(alone, half + 1, samples, room)
        found = largest if whole(largest) <= room else 0
    if not found and half and whole(1) <= room:
        found = _largest(whole, 1, half, room)
    while found and found < samples and whole(found + 1) <= room:
        found += 1  # where the peak does not rise as assumed
    return found


def _largest(peak: Callable[[int], int], low: int, high: int, room: int) -> int:
    """The largest size from ``low``, which is known to fit, to ``high``, if the peak rises.

    Guesses lie on the line through the ends of what is left, which finds the place at once where
    the peak is a straight line; every third one halves it, so that no curve takes long.
    """
    if peak(high) <= room:
        return high
    turn = 0
    while high - low > 1:
        turn += 1
        guess = low + (room - peak(low)) * (high - low) // (peak(high) - peak(low))
        if turn % 3 == 0:
            guess = (low + high) // 2
        guess = min(max(guess, low + 1), high - 1)
        low, high = (guess, high) if peak(guess) <= room else (low, guess)
    return low


def _check(model: object, loss_fn: object, x: object, y: object, optimizer: object) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a Module, got {type(model).__name__}")
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("model must have trainable parameters, got none with requires_grad")
    if isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError("optimizer must make an optimizer of parameters, got one already made")
    for name, value in (("loss_fn", loss_fn), ("optimizer", optimizer)):
        if not callable(value):
            raise TypeError(f"{name} must be callable, got {value!r}")
    for name, tensor in (("x", x), ("y", y)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
        if tensor.dim() == 0 or len(tensor) == 0:
            raise ValueError(f"{name} must hold at least one sample, got {tuple(tensor.shape)}")
    if len(x) != len(y):
        raise ValueError(f"x and y must hold as many samples, got {len(x)} and {len(y)}")
