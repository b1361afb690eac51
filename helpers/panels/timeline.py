"""Lesson 03: which samples enter which update, for any data size."""

from collections import Counter
from collections.abc import Sequence

import ipywidgets as widgets

from helpers.figures import Table, TimelinePicture, number
from helpers.panels.panel import Panel, buttons, labelled
from helpers.windows import POLICIES, MicroBatch, timeline


class TimelinePanel(Panel):
    """Windows over a run: each sample's weight in its update, by what becomes of the last window.

    Controls:
        samples: in each epoch, 1 to 40.
        batch_size: samples in each micro-batch, 1 to 8.
        accumulation_steps: micro-batches in a full window, 1 to 6.
        epochs: 1 to 3.
        policy: one of :data:`helpers.windows.POLICIES`.

    After every move: ``run``, a :class:`helpers.windows.Timeline`, and ``shares``, for each sample
    in the order drawn its weight in fair shares (1 is fair, 0 unused).
    """

    title = "Windows of a training run"

    def __init__(self):
        self.samples = widgets.IntSlider(7, 1, 40)
        self.batch_size = widgets.IntSlider(1, 1, 8)
        self.accumulation_steps = widgets.IntSlider(3, 1, 6)
        self.epochs = buttons([1, 2, 3], 2, 36)
        self.policy = buttons(list(POLICIES), "divided by k", 110)
        numbers = (self.samples, self.batch_size, self.accumulation_steps)
        rows = [
            widgets.HBox([labelled("samples", self.samples), labelled("epochs", self.epochs)]),
            widgets.HBox(
                [
                    labelled("batch size", self.batch_size),
                    labelled("steps k", self.accumulation_steps),
                ]
            ),
            labelled("last window", self.policy),
        ]
        super().__init__(
            TimelinePicture(), (*numbers, self.epochs, self.policy), widgets.VBox(rows)
        )

    def follow(self) -> tuple[Table, Sequence[str]]:
        samples, epochs = self.samples.value, self.epochs.value
        self.run = timeline(
            samples, self.batch_size.value, self.accumulation_steps.value, epochs, self.policy.value
        )
        self.shares, belongs = [0.0] * (samples * epochs), [None] * (samples * epochs)
        for i, update in enumerate(self.run.updates):
            count = sum(len(batch.samples) for batch in update.micro_batches)
            for batch in update.micro_batches:
                for place in self._places(batch):
                    self.shares[place], belongs[place] = batch.weight * count, i
        self.picture.update(
            self.shares,
            belongs,
            sorted(self._places(batch).stop for batch in self._micro_batches()),
            [self._places(update.micro_batches[-1]).stop for update in self.run.updates],
            [samples * (epoch + 1) for epoch in range(epochs)],
            POLICIES[self.policy.value],
        )
        return self._table(), ()

    def _places(self, batch: MicroBatch) -> range:
        """Where in the run its samples are drawn."""
        before = batch.epoch * self.samples.value
        return range(before + batch.samples.start, before + batch.samples.stop)

    def _micro_batches(self) -> list[MicroBatch]:
        used = [batch for update in self.run.updates for batch in update.micro_batches]
        return [*used, *self.run.unused]

    def _table(self) -> Table:
        kinds = Counter(
            (
                len(update.micro_batches),
                sum(len(batch.samples) for batch in update.micro_batches),
                number(update.total_weight, 3),
            )
            for update in self.run.updates
        )
        rows = [(f"{times} ×", *map(str, kind)) for kind, times in kinds.items()]
        unused = sum(len(batch.samples) for batch in self.run.unused)
        return Table(
            ("updates", "micro-batches", "samples", "weights add up to"),
            tuple(rows) or (("0 ×", "–", "–", "–"),),
            f"updates: {len(self.run.updates)}, samples unused: {unused}",
        )
