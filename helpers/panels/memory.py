"""Lesson 06: a memory budget, and the split that fits into it."""

from collections.abc import Sequence

import ipywidgets as widgets

from helpers.figures import MemoryPicture, Table, number
from helpers.figures.memory import PART_COLOURS
from helpers.memory.estimating import (
    PRECISIONS,
    RECOMPUTED_FORWARD,
    SHAPES,
    STATES,
    estimate,
    update_time,
)
from helpers.panels.panel import Panel, buttons, labelled

GIB = 2**30
ALLOWANCE = 1343 * 2**20  # the CUDA context that Hugging Face measured on a V100
# Seconds of a launch and of a sample, from the same measurements (lesson 06 works them out).
LAUNCH, SAMPLE = 0.0215, 0.1075


class MemoryPanel(Panel):
    """The largest micro-batch that fits a budget, what fills the memory, and what it costs.

    Controls:
        model: one of :data:`helpers.memory.estimating.SHAPES`.
        sequence: tokens in each sample.
        effective_batch: samples in each update.
        budget: GiB.
        precision, optimizer: see :func:`helpers.memory.estimating.estimate`.
        checkpointing: whether activations are recomputed.

    After every move: ``micro_batch`` (None where not even one sample fits), ``steps``, ``parts``
    (bytes of each part for the micro-batch shown) and ``times`` (of an update, by micro-batch, the
    largest that would do without accumulation taking 1).
    """

    title = "A plan for a memory budget"

    def __init__(self):
        self.model = buttons(list(SHAPES), "GPT-2 small", 120)
        self.optimizer = buttons(list(STATES), "Adam", 150)
        self.sequence = _choices((128, 256, 512, 1024, 2048), 512)
        self.effective_batch = _choices((1, 2, 4, 8, 16, 32, 64, 128, 256), 64)
        self.budget = _choices((4, 8, 12, 16, 24, 40, 80), 16)
        self.precision = buttons(list(PRECISIONS), "float32", 90)
        self.checkpointing = buttons([("off", False), ("on", True)], False, 60)
        rows = [
            (("model", self.model),),
            (("optimizer", self.optimizer),),
            (("sequence", self.sequence), ("effective batch", self.effective_batch)),
            (("budget, GiB", self.budget),),
            (("precision", self.precision), ("checkpointing", self.checkpointing)),
        ]
        controls = tuple(control for row in rows for _, control in row)
        boxes = [widgets.HBox([labelled(*pair) for pair in row]) for row in rows]
        super().__init__(MemoryPicture(), controls, widgets.VBox(boxes))

    def _parts(self, micro_batch: int) -> dict[str, int]:
        parts = estimate(
            SHAPES[self.model.value],
            self.sequence.value,
            micro_batch,
            self.precision.value,
            self.optimizer.value,
            self.checkpointing.value,
        )
        return {**parts, "allowance": ALLOWANCE}

    def _fits(self, micro_batch: int) -> bool:
        return sum(self._parts(micro_batch).values()) <= self.budget.value * GIB

    def follow(self) -> tuple[Table, Sequence[str]]:
        effective = self.effective_batch.value
        fitting = [m for m in range(1, effective + 1) if self._fits(m)]
        self.micro_batch = max(fitting, default=None)
        self.steps = -(-effective // self.micro_batch) if self.micro_batch else None
        self.parts = self._parts(self.micro_batch or 1)
        sample = SAMPLE * (RECOMPUTED_FORWARD if self.checkpointing.value else 1)
        whole = update_time(effective, effective, LAUNCH, SAMPLE)
        self.times = {
            m: update_time(effective, m, LAUNCH, sample) / whole
            for m in fitting
            if m & (m - 1) == 0 or m == self.micro_batch
        }
        self.picture.update(
            {part: size / GIB for part, size in self.parts.items()},
            self.budget.value,
            self.times,
            self.micro_batch,
            self._verdict(),
        )
        rows = [(part, number(size / GIB, 3)) for part, size in self.parts.items()]
        rows.append(("all", number(sum(self.parts.values()) / GIB, 3)))
        return Table(("part", "GiB"), tuple(rows), self._verdict()), (*PART_COLOURS.values(),)

    def _verdict(self) -> str:
        if self.micro_batch is None:
            largest = max(self.parts, key=self.parts.__getitem__)
            need = number(sum(self.parts.values()) / GIB, 3)
            return f"not even one sample fits: it takes {need} GiB, most of it {largest}"
        effective, last = self.effective_batch.value, self.effective_batch.value % self.micro_batch
        short = f", the last of {last}" if last else ""
        cost = number(self.times[self.micro_batch], 3)
        return (
            f"{effective} samples as {self.steps} × {self.micro_batch}{short}, "
            f"{cost} times the time of one batch"
        )


def _choices(values: tuple[int, ...], value: int) -> widgets.SelectionSlider:
    return widgets.SelectionSlider(options=values, value=value)
