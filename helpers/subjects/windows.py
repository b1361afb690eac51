"""Which samples enter which update, and with what weight: what loops do when the data run out."""

from dataclasses import dataclass

from helpers import checks

POLICIES = {
    "true mean": "step on the short window, with the mean over its own samples",
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
class Window:
    """The micro-batches in the gradient of one update."""

    micro_batches: tuple[MicroBatch, ...]

    @property
    def samples(self) -> int:
        """How many there are in it."""
        return sum(len(batch.samples) for batch in self.micro_batches)

    @property
    def total_weight(self) -> float:
        """Sum of its samples' weights: 1 for a mean, less if shrunken, more if leaked into."""
        return sum(batch.weight * len(batch.samples) for batch in self.micro_batches)


@dataclass(frozen=True)
class Timeline:
    """All updates of a training run, and the micro-batches that no update used."""

    samples: int  # in each epoch
    epochs: int
    updates: tuple[Window, ...]
    unused: tuple[MicroBatch, ...]

    def place(self, batch: MicroBatch) -> range:
        """Where its samples are among all those drawn in the run."""
        before = batch.epoch * self.samples
        return range(before + batch.samples.start, before + batch.samples.stop)

    def shares(self) -> list[float]:
        """For each sample drawn its weight in fair shares: 1 is fair, 0 unused."""
        shares = [0.0] * (self.samples * self.epochs)
        for window in self.updates:
            for batch in window.micro_batches:
                for place in self.place(batch):
                    shares[place] = batch.weight * window.samples
        return shares

    def owners(self) -> list[int | None]:
        """For each sample drawn the number of its update, from 0; None where there is none."""
        owners: list[int | None] = [None] * (self.samples * self.epochs)
        for number, window in enumerate(self.updates):
            for batch in window.micro_batches:
                for place in self.place(batch):
                    owners[place] = number
        return owners

    def batch_ends(self) -> list[int]:
        """After how many samples each micro-batch ends."""
        used = [batch for window in self.updates for batch in window.micro_batches]
        return sorted(self.place(batch).stop for batch in (*used, *self.unused))

    def step_ends(self) -> list[int]:
        """After how many samples the optimizer steps."""
        return [self.place(window.micro_batches[-1]).stop for window in self.updates]

    def epoch_ends(self) -> list[int]:
        """After how many samples each epoch ends."""
        return [self.samples * (epoch + 1) for epoch in range(self.epochs)]


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
        checks.whole_number(name, value, 1)
    checks.one_of("policy", policy, POLICIES)

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
                updates.append(Window(_weighted(held, policy)))
                held, since_boundary = [], 0
        if policy == "dropped":
            unused, held = unused + held, []
    return Timeline(samples, epochs, tuple(updates), tuple(unused + held))


_FLUSHING = ("true mean", "divided by k")


def _weighted(held: list[MicroBatch], policy: str) -> tuple[MicroBatch, ...]:
    if policy != "true mean":
        return tuple(held)
    count = sum(len(batch.samples) for batch in held)
    return tuple(MicroBatch(batch.epoch, batch.samples, 1 / count) for batch in held)
