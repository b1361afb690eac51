"""What an audit found: as text, as a table with a picture, and as an assertion."""

from collections.abc import Collection
from dataclasses import dataclass

from helpers.audit.kinds import KINDS, NOT_EQUAL
from helpers.audit.page import page_of
from helpers.audit.records import Finding, Update


@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return page_of(self.verdict, self.updates, self.findings, self.choices)
