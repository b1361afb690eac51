"""Which samples enter which update, and with what weight: what loops do when the data run out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from helpers.samples import whole_number

POLICIES = {
    "true mean": "step on the short window, every sample weighted alike",
    "divided by k": "step on the short window, its losses divided by k all the same",
    "dropped": "no step on the short window, its gradients thrown away",
    "carried on": "count on into the next epoch, so that every window is full",
    "leaked": "count anew, with the short window still in .grad",
}


@dataclass(frozen=True)
class MicroBatch:
    """Some samples drawn together; numbers count from 0."""

    epoch: int
    samples: range  # their places in the epoch
    weight: float  # what each of its samples counts in the gradient it enters


@dataclass(frozen=True)
class Update:
    """One optimizer step: the micro-batches in its gradient."""

    micro_batches: tuple[MicroBatch, ...]
    epoch: int  # in which it happens

    @property
    def total_weight(self) -> float:
        """Sum of its samples' weights: 1 for a mean, less if shrunken, more if leaked into."""
        return sum(batch.weight * len(batch.samples) for batch in self.micro_batches)


@dataclass(frozen=True)
class Timeline:
    """All updates of a training run, and the micro-batches that no update used."""

    updates: tuple[Update, ...]
    unused: tuple[MicroBatch, ...]


def windows(items: Iterable, accumulation_steps: int) -> Iterator[list]:
    """The items in lists of ``accumulation_steps``, the last one as short as it comes out.

    Works for any iterable, also of unknown length; takes no item before it is needed.
    """
    whole_number("accumulation_steps", accumulation_steps, 1)
    items = iter(items)
    while window := list(islice(items, accumulation_steps)):
        yield window


def timeline(
    samples: int, batch_size: int, accumulation_steps: int, epochs: int, policy: str
) -> Timeline:
    """What a loop with a policy for short windows does with each sample.

    Args:
        samples: in each epoch, drawn in order; the last micro-batch may be smaller.
        batch_size: samples in each micro-batch.
        accumulation_steps: micro-batches in a full window.
        epochs: passes over the samples.
        policy: one of ``POLICIES``. Only "true mean" weights samples of unequal micro-batches
            alike; the others take the mean of each micro-batch and divide it by the steps.

    Raises:
        TypeError, ValueError: a number is no whole number from 1, or there is no such policy.
    """
    numbers = {
        "samples": samples,
        "batch_size": batch_size,
        "accumulation_steps": accumulation_steps,
        "epochs": epochs,
    }
    for name, value in numbers.items():
        whole_number(name, value, 1)
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")

    updates, unused, held = [], [], []
    for epoch in range(epochs):
        starts = range(0, samples, batch_size)
        since_boundary = len(held) if policy == "carried on" else 0
        for start in starts:
            drawn = range(start, min(start + batch_size, samples))
            held.append(MicroBatch(epoch, drawn, 1 / (accumulation_steps * len(drawn))))
            since_boundary += 1
            last = start == starts[-1]
            if since_boundary == accumulation_steps or (last and policy in _FLUSHING):
                updates.append(Update(_weighted(held, policy), epoch))
                held, since_boundary = [], 0
        if policy == "dropped":
            unused, held = unused + held, []
    return Timeline(tuple(updates), tuple(unused + held))


_FLUSHING = ("true mean", "divided by k")


def _weighted(held: list[MicroBatch], policy: str) -> tuple[MicroBatch, ...]:
    if policy != "true mean":
        return tuple(held)
    count = sum(len(batch.samples) for batch in held)
    return tuple(MicroBatch(batch.epoch, batch.samples, 1 / count) for batch in held)
