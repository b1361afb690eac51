"""Lesson 10: which samples enter which update, in every library, for any sizes and data."""

from collections.abc import Iterator, Sequence

import ipywidgets as widgets

from helpers.figures import LibrariesPicture, LibraryRow, Table, number
from helpers.panels.panel import Panel, buttons, labelled, side_by_side
from helpers.subjects.libraries import LOOPS, WAYS, expected, measured
from helpers.subjects.windows import Timeline, timeline

RIGHT = "right"
EPOCHS = 2


class LibrariesPanel(Panel):
    """Each sample's weight in its update, in every library, below the right ones.

    Controls:
        samples: in each of two epochs, 2 to 16.
        batch_size: samples in each micro-batch, 1 to 4; the last one may be smaller.
        accumulation_steps: micro-batches in a full window, 1 to 4.
        way: one of :data:`helpers.subjects.libraries.WAYS`.

    After every move: ``runs``, a :class:`helpers.subjects.windows.Timeline` for each library, by
    the rules of :func:`helpers.subjects.libraries.expected`, and ``right``.
    """

    title = "The same samples in every library"

    def __init__(self):
        self.samples = widgets.IntSlider(7, 2, 16)
        self.batch_size = buttons([1, 2, 3, 4], 2)
        self.accumulation_steps = buttons([1, 2, 3, 4], 3)
        self.way = buttons(WAYS, "as it comes")
        rows = [
            side_by_side(
                labelled("samples", self.samples), labelled("batch size", self.batch_size)
            ),
            side_by_side(
                labelled("steps k", self.accumulation_steps), labelled("loss and data", self.way)
            ),
        ]
        controls = (self.samples, self.batch_size, self.accumulation_steps, self.way)
        super().__init__(LibrariesPicture((RIGHT, *LOOPS)), controls, rows)

    def follow(self) -> tuple[Table, Sequence[str]]:
        self.right = timeline(*self._numbers, "true mean")
        self.runs = {name: expected(name, *self._numbers, self.way.value) for name in LOOPS}
        runs = {RIGHT: self.right, **self.runs}
        rows = [
            LibraryRow(
                run.shares(),
                run.owners(),
                run.batch_ends(),
                run.step_ends(),
                _verdict(run, self.right),
            )
            for run in runs.values()
        ]
        self.picture.update(rows, self.right.epoch_ends())
        return self._table(runs), ()

    def set(self, samples: int, batch_size: int, accumulation_steps: int) -> None:
        """Move three controls at once."""
        with self.hold():
            self.samples.value, self.batch_size.value = samples, batch_size
            self.accumulation_steps.value = accumulation_steps

    def run_them(self) -> Iterator[tuple[str, bool]]:
        """Each library and whether a run of it, at these settings, gives what is drawn."""
        for name, run in self.runs.items():
            found = measured(name, *self._numbers, self.way.value)
            near = zip(run.shares(), found.shares(), strict=True)
            alike = all(abs(share - other) < 1e-5 for share, other in near)
            yield name, alike and run.owners() == found.owners()

    @property
    def _numbers(self) -> tuple[int, int, int, int]:
        return self.samples.value, self.batch_size.value, self.accumulation_steps.value, EPOCHS

    def _table(self, runs: dict[str, Timeline]) -> Table:
        rows = []
        for name, run in runs.items():
            used = _used(run)
            lightest, heaviest = (number(end(used), 3) if used else "–" for end in (min, max))
            unused = str(len(run.shares()) - len(used))
            rows.append((name, str(len(run.updates)), lightest, heaviest, unused))
        alike = [name for name, run in self.runs.items() if _same(run, self.right)]
        return Table(
            ("two epochs", "updates", "lightest sample", "heaviest sample", "unused"),
            tuple(rows),
            f"as the right ones: {', '.join(alike) or 'none'}",
        )


def _used(run: Timeline) -> list[float]:
    """The shares of the samples that are in an update."""
    owned = zip(run.shares(), run.owners(), strict=True)
    return [share for share, owner in owned if owner is not None]


def _same(run: Timeline, right: Timeline) -> bool:
    near = zip(run.shares(), right.shares(), strict=True)
    return run.owners() == right.owners() and all(abs(a - b) < 1e-9 for a, b in near)


def _verdict(run: Timeline, right: Timeline) -> str:
    """In a few words what is wrong with a run."""
    if _same(run, right):
        return "every sample alike"
    wrong = []
    if any(owner is None for owner in run.owners()):
        wrong.append("samples unused")
    elif run.owners() != right.owners():
        wrong.append("other windows")
    if any(abs(share - 1) > 1e-9 for share in _used(run)):
        wrong.append("unequal weights")
    return ",\n".join(wrong)
