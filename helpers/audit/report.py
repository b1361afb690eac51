"""What an audit found: as text, as a table with a picture, and as an assertion."""

from collections.abc import Collection
from dataclasses import dataclass, field

from torch import Tensor

from helpers.audit.kinds import KINDS, NOT_EQUAL
from helpers.gradients import Comparison

Key = tuple[int, int]


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
        updates = f" (updates {_spans(self.updates)})" if self.updates else ""
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
        inside = _places(self.micro_batches) or "nothing"
        difference = self.comparison.relative_difference
        against = "right" if not self.kinds else f"off by {100 * difference:.3g} %"
        return f"{self.number}  {inside}  {against}  {', '.join(self.kinds)}".rstrip()


@dataclass(frozen=True)
class Report:
    """What an audit found; ``print`` it, or show it in a notebook."""

    updates: tuple[Update, ...]
    findings: tuple[Finding, ...]
    choices: tuple[str, ...]  # what the loop does that may be meant so

    @property
    def ok(self) -> bool:
        """Whether nothing was found, so that every update is that of the large batch."""
        return not self.findings

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """The findings that are faults of the loop."""
        return tuple(f for f in self.findings if f.nature != NOT_EQUAL)

    def assert_ok(self, allow: Collection[str] = ()) -> None:
        """Raise an AssertionError with the report unless all findings are of the kinds allowed.

        Raises:
            ValueError: ``allow`` names no kind.
        """
        if isinstance(allow, str):
            raise TypeError(f"allow must be a collection of kinds, got {allow!r}")
        for kind in allow:
            if kind not in KINDS:
                raise ValueError(f"allow must name kinds, one of {', '.join(KINDS)}, got {kind!r}")
        if any(finding.kind not in allow for finding in self.findings):
            raise AssertionError(str(self))

    def __str__(self) -> str:
        return "\n".join([self.verdict, *self._lines()])

    @property
    def verdict(self) -> str:
        """One sentence on the whole loop."""
        count = f"{len(self.updates)} update{'s' * (len(self.updates) != 1)}"
        if self.ok:
            return f"Right: {count}, each that of the large batch."
        if not self.wrong:
            return f"No fault in the loop, but its {count} cannot equal those of a large batch."
        kinds = ", ".join(finding.kind for finding in self.findings)
        return f"Wrong: {count}; {kinds}."

    def _lines(self) -> list[str]:
        lines = ["", *map(str, self.findings)] if self.findings else []
        if self.choices:
            lines += ["", *(f"choice: {choice}" for choice in self.choices)]
        if self.updates:
            lines += ["", "update  micro-batches (epoch:position)", *map(str, self.updates)]
        return lines


def _places(keys: tuple[Key, ...]) -> str:
    epochs: dict[int, list[int]] = {}
    for epoch, position in keys:
        epochs.setdefault(epoch, []).append(position)
    return ", ".join(f"{epoch}:{_spans(tuple(places))}" for epoch, places in epochs.items())


def _spans(numbers: tuple[int, ...]) -> str:
    """(1, 2, 3, 5) as "1-3, 5"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)
