"""Lesson 11: faults planted in a loop, several at once, and what the audit says of it."""

from collections.abc import Sequence

from helpers.figures import MuseumPicture, Table, UpdateBar, number
from helpers.panels.panel import Panel, buttons, labelled
from helpers.subjects.museum_faults import (
    BOUNDARIES,
    CLEARING,
    DATA,
    EPOCHS,
    SCALES,
    audited,
    step_ends,
)


class MuseumPanel(Panel):
    """A loop with faults to choose, run for two epochs with k = 3, and the audit's verdict.

    Controls:
        data: one of :data:`helpers.subjects.museum_faults.DATA`.
        scale, boundary, clearing: what the loop does, of ``SCALES``, ``BOUNDARIES`` and
            ``CLEARING`` there; "right" is no fault.

    After every move: ``report``, the audit's.
    """

    title = "A loop with planted faults"

    def __init__(self):
        self.data = buttons(list(DATA), "unequal, one over")
        self.scale = buttons(list(SCALES), "by k")
        self.boundary = buttons(list(BOUNDARIES), "right")
        self.clearing = buttons(list(CLEARING), "right")
        self.faults = {"scale": self.scale, "steps": self.boundary, "clears": self.clearing}
        rows = [labelled("micro-batches", self.data)]
        rows += [labelled(name, control) for name, control in self.faults.items()]
        controls = (self.data, *self.faults.values())
        super().__init__(MuseumPicture(), controls, rows)

    def follow(self) -> tuple[Table, Sequence[str]]:
        self.report = audited(*self._setting)
        sizes = DATA[self.data.value] * EPOCHS
        owners = {
            (epoch - 1) * (len(sizes) // EPOCHS) + place - 1: update.number - 1
            for update in self.report.updates
            for epoch, place in update.micro_batches
        }
        ends = step_ends(self.data.value, self.boundary.value)
        bars = [
            UpdateBar(end, update.gradient.item(), update.right.item(), bool(update.kinds))
            for end, update in zip(ends, self.report.updates, strict=True)
        ]
        found = ", ".join(finding.kind for finding in self.report.findings) or "nothing"
        self.picture.update(
            sizes, [owners.get(i) for i in range(len(sizes))], bars, f"the audit finds: {found}"
        )
        planted = [f"{n} {c.value}" for n, c in self.faults.items() if c.value != "right"]
        closing = f"{', '.join(planted) or 'no fault'}, {self.data.value}. Found: {found}"
        return self._table(closing), ()

    def set(self, data: str, scale: str, boundary: str, clearing: str) -> None:
        """Move all controls at once."""
        with self.hold():
            for control, value in zip(
                self.controls, (data, scale, boundary, clearing), strict=True
            ):
                control.value = value

    @property
    def _setting(self) -> tuple[str, ...]:
        return tuple(control.value for control in self.controls)

    def _table(self, closing: str) -> Table:
        rows = tuple(
            (
                str(update.number),
                number(update.gradient.item(), 4),
                number(update.right.item(), 4),
                ", ".join(update.kinds) or "–",
            )
            for update in self.report.updates
        )
        return Table(("update", "gradient", "large batch", "found"), rows, closing)
