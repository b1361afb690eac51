"""What a report is made of: findings, and updates beside the right ones."""

from dataclasses import dataclass, field

from torch import Tensor

from helpers.audit.kinds import KINDS
from helpers.gradients import Comparison

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

    def __str__(self) -> str:
        numbers = ", ".join(f"{name} {value:.6g}" for name, value in self.evidence.items())
        updates = f" (updates {spans_of(self.updates)})" if self.updates else ""
        parts = [f"{self.kind}{updates}: {self.cause}", numbers and f"  seen: {numbers}"]
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

    def __str__(self) -> str:
        inside = places_of(self.micro_batches) or "nothing"
        difference = self.comparison.relative_difference
        against = "right" if not self.kinds else f"off by {100 * difference:.3g} %"
        return f"{self.number}  {inside}  {against}  {', '.join(self.kinds)}".rstrip()


def places_of(keys: tuple[Key, ...]) -> str:
    """((1, 4), (1, 5), (2, 1)) as "1:4-5, 2:1": epoch and positions."""
    epochs: dict[int, list[int]] = {}
    for epoch, position in keys:
        epochs.setdefault(epoch, []).append(position)
    return ", ".join(f"{epoch}:{spans_of(tuple(places))}" for epoch, places in epochs.items())


def spans_of(numbers: tuple[int, ...]) -> str:
    """(1, 2, 3, 5) as "1-3, 5"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)
