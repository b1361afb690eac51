"""Lesson 03: which samples enter which update, for any data size."""

from collections import Counter
from collections.abc import Sequence

import ipywidgets as widgets

from helpers.figures import Table, WindowsPicture, number
from helpers.panels.panel import Panel, buttons, labelled, side_by_side
from helpers.subjects.windows import POLICIES, timeline


class WindowsPanel(Panel):
    """Windows over a run: each sample's weight in its update, by what becomes of the last window.

    Controls:
        samples: in each epoch, 1 to 40.
        batch_size: samples in each micro-batch, 1 to 8.
        accumulation_steps: micro-batches in a full window, 1 to 6.
        epochs: 1 to 3.
        policy: one of :data:`helpers.subjects.windows.POLICIES`.

    After every move: ``run``, a :class:`helpers.subjects.windows.Timeline`.
    """

    title = "Windows of a training run"

    def __init__(self):
        self.samples = widgets.IntSlider(7, 1, 40)
        self.batch_size = widgets.IntSlider(1, 1, 8)
        self.accumulation_steps = widgets.IntSlider(3, 1, 6)
        self.epochs = buttons([1, 2, 3], 2)
        self.policy = buttons(list(POLICIES), "divided by k")
        numbers = (self.samples, self.batch_size, self.accumulation_steps)
        rows = [
            side_by_side(labelled("samples", self.samples), labelled("epochs", self.epochs)),
            side_by_side(
                labelled("batch size", self.batch_size),
                labelled("steps k", self.accumulation_steps),
            ),
            labelled("last window", self.policy),
        ]
        super().__init__(WindowsPicture(), (*numbers, self.epochs, self.policy), rows)

    def follow(self) -> tuple[Table, Sequence[str]]:
        self.run = run = timeline(
            self.samples.value,
            self.batch_size.value,
            self.accumulation_steps.value,
            self.epochs.value,
            self.policy.value,
        )
        self.picture.update(
            run.shares(),
            run.owners(),
            run.batch_ends(),
            run.step_ends(),
            run.epoch_ends(),
            POLICIES[self.policy.value],
        )
        return self._table(), ()

    def _table(self) -> Table:
        kinds = Counter(
            (len(window.micro_batches), window.samples, number(window.total_weight, 3))
            for window in self.run.updates
        )
        rows = [(f"{times} ×", *map(str, kind)) for kind, times in kinds.items()]
        unused = sum(len(batch.samples) for batch in self.run.unused)
        return Table(
            ("updates", "micro-batches", "samples", "weights add up to"),
            tuple(rows) or (("0 ×", "–", "–", "–"),),
            f"updates: {len(self.run.updates)}, samples unused: {unused}",
        )
