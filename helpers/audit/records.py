"""What a report is made of: findings, and updates beside the right ones."""

from dataclasses import dataclass, field

from torch import Tensor

from helpers.audit.kinds import KINDS
from helpers.gradients import Comparison
from helpers.recorder.table import spans_of

Key = tuple[int, int]  # epoch and position of a micro-batch, both from 1


@dataclass(frozen=True)
class Finding:
    """A fault, or a reason why the updates cannot be those of the large batch."""

    kind: str
    updates: tuple[int, ...]  # that it concerns, counted from 1; () where it is none of them
    evidence: dict[str, float] = field(default_factory=dict)

    @property
    def cause(self) -> str:
        """One sentence."""
        return KINDS[self.kind].cause

    @property
    def remedy(self) -> str:
        """One sentence."""
        return KINDS[self.kind].remedy

    @property
    def lesson(self) -> str:
        """The notebook that explains it."""
        return KINDS[self.kind].lesson

    @property
    def nature(self) -> str:
        """``"wrong"``, or ``"cannot be equal"``, which no change of the loop's arithmetic mends."""
        return KINDS[self.kind].nature

    @property
    def seen(self) -> str:
        """The evidence in words."""
        return ", ".join(f"{name} {value:.6g}" for name, value in self.evidence.items())

    def __str__(self) -> str:
        updates = f" (updates {spans_of(self.updates)})" if self.updates else ""
        parts = [f"{self.kind}{updates}: {self.cause}", self.seen and f"  seen: {self.seen}"]
        parts += [f"  mend: {self.remedy}", f"  read: {self.lesson}"]
        return "\n".join(part for part in parts if part)


@dataclass(frozen=True)
class Update:
    """One update of the loop, beside the one that the large batch gives."""

    number: int
    micro_batches: tuple[Key, ...]  # (epoch, position) of those that are in it, both from 1
    expected: tuple[Key, ...]  # of those that should be
    gradient: Tensor  # as the optimizer saw it, flat
    right: Tensor  # of the expected ones at the weights the update started from, clipped alike
    comparison: Comparison
    kinds: tuple[str, ...]  # of the findings that concern it

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Its number, what is in it, whether it is right, and the kinds of what is wrong."""
        inside = places_of(self.micro_batches) or "nothing"
        off = f"off by {100 * self.comparison.relative_difference:.3g} %"
        return str(self.number), inside, off if self.kinds else "right", ", ".join(self.kinds)

    def __str__(self) -> str:
        return "  ".join(self.cells).rstrip()


def places_of(keys: tuple[Key, ...]) -> str:
    """((1, 4), (1, 5), (2, 1)) as "1:4-5, 2:1": epoch and positions."""
    epochs: dict[int, list[int]] = {}
    for epoch, position in keys:
        epochs.setdefault(epoch, []).append(position)
    return ", ".join(f"{epoch}:{spans_of(tuple(places))}" for epoch, places in epochs.items())
