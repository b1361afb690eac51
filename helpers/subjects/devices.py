"""When ranks compute and when they talk: an update's time, with and without no_sync.

The counts are measured ones, of DistributedDataParallel's buckets; the times follow from them by
the cost model stated here. Times are in milliseconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from helpers import checks

FORWARD, BACKWARD = 10.0, 20.0  # of a micro-batch
LATENCY = 0.05  # of each step of a ring
BYTES_A_MILLISECOND = 125_000  # at 1 Gbit/s
SPEEDS = (1, 10, 100, 1000)  # Gbit/s


@dataclass(frozen=True)
class Span:
    """What a rank or its link is busy with, and how long."""

    kind: str  # "forward", "backward" or "all-reduce"
    micro_batch: int  # from 0
    start: float
    end: float


@dataclass(frozen=True)
class Update:
    """One update of a rank, from the first forward until the optimizer may step."""

    spans: tuple[Span, ...]
    bytes_sent: float  # by each rank

    @property
    def all_reduces(self) -> int:
        """How many there are."""
        return len(self._of("all-reduce"))

    @property
    def computing(self) -> float:
        """Time in forward and backward."""
        return sum(span.end - span.start for span in self._of("forward", "backward"))

    @property
    def end(self) -> float:
        """When the gradients are there."""
        return max(span.end for span in self.spans)

    @property
    def waiting(self) -> float:
        """Time in which the rank computes nothing."""
        return self.end - self.computing

    def _of(self, *kinds: str) -> list[Span]:
        return [span for span in self.spans if span.kind in kinds]


def all_reduce_time(size: int, ranks: int, speed: float) -> float:
    """Milliseconds for a ring to add up ``size`` bytes of each rank at ``speed`` Gbit/s.

    Each of 2 (ranks - 1) steps sends one part of ``ranks`` to a neighbour: once round to add up,
    once to hand round the sum. Source: doc/PERFORMANCE.md of NVIDIA/nccl-tests.
    """
    steps = 2 * (ranks - 1)
    return steps * (LATENCY + size / ranks / (speed * BYTES_A_MILLISECOND))


def update(
    bucket_sizes: Sequence[int], ranks: int, accumulation_steps: int, speed: float, no_sync: bool
) -> Update:
    """The timeline of one update.

    A bucket is sent as soon as backward has filled it and the link is free; backward goes on
    meanwhile. The next forward waits until the link is done.

    Args:
        bucket_sizes: bytes of each bucket, in the order in which backward fills them.
        ranks: how many share the work, 1 or more.
        accumulation_steps: micro-batches of each rank in the update.
        speed: of the link between neighbours, in Gbit/s.
        no_sync: whether only the last micro-batch is synchronised, or each.

    Raises:
        TypeError, ValueError: a number is none of those, or there is no bucket.
    """
    checks.whole_number("ranks", ranks, 1)
    checks.whole_number("accumulation_steps", accumulation_steps, 1)
    if not bucket_sizes:
        raise ValueError("bucket_sizes must hold at least one size, got none")
    for size in bucket_sizes:
        checks.whole_number("each of bucket_sizes", size, 1)
    if not speed > 0:
        raise ValueError(f"speed must be above 0 Gbit/s, got {speed}")

    spans, sent, now = [], 0.0, 0.0
    for i in range(accumulation_steps):
        start = now + FORWARD
        now = start + BACKWARD
        spans += [Span("forward", i, start - FORWARD, start), Span("backward", i, start, now)]
        last = i + 1 == accumulation_steps
        if ranks > 1 and (last or not no_sync):
            reduced = _all_reduces(bucket_sizes, ranks, speed, i, start)
            spans += reduced
            sent += 2 * (ranks - 1) / ranks * sum(bucket_sizes)
            now = max(now, reduced[-1].end)
    return Update(tuple(spans), sent)


def _all_reduces(
    bucket_sizes: Sequence[int], ranks: int, speed: float, micro_batch: int, start: float
) -> list[Span]:
    """One for each bucket of a backward that begins at ``start``."""
    spans, filled, free = [], 0, start
    for size in bucket_sizes:
        filled += size
        begin = max(free, start + BACKWARD * filled / sum(bucket_sizes))
        free = begin + all_reduce_time(size, ranks, speed)
        spans.append(Span("all-reduce", micro_batch, begin, free))
    return spans
