"""Lesson 08: a memory budget, and the split that fits into it."""

from collections.abc import Sequence

import ipywidgets as widgets

from helpers.figures import MemoryPicture, Table, number
from helpers.figures.memory import PART_COLOURS
from helpers.panels.panel import Panel, buttons, labelled, side_by_side
from helpers.subjects.memory import GIB, PRECISIONS, SHAPES, STATES, Split, split_for


class MemoryPanel(Panel):
    """The fewest micro-batches that fit a budget, what fills the memory, and what it costs.

    Controls:
        model: one of :data:`helpers.subjects.memory.SHAPES`.
        sequence: tokens in each sample.
        effective_batch: samples in each update.
        budget: GiB.
        precision, optimizer: see :func:`helpers.subjects.memory.estimate`.
        checkpointing: whether activations are recomputed.

    After every move: ``split``, a :class:`helpers.subjects.memory.Split`.
    """

    title = "A plan for a memory budget"

    def __init__(self):
        self.model = buttons(list(SHAPES), "GPT-2 small")
        self.optimizer = buttons(list(STATES), "Adam")
        self.sequence = _choices((128, 256, 512, 1024, 2048), 512)
        self.effective_batch = _choices((1, 2, 4, 8, 16, 32, 64, 128, 256), 64)
        self.budget = _choices((4, 8, 12, 16, 24, 40, 80), 16)
        self.precision = buttons(list(PRECISIONS), "float32")
        self.checkpointing = buttons([("off", False), ("on", True)], False)
        rows = [
            (("model", self.model),),
            (("optimizer", self.optimizer),),
            (("sequence", self.sequence), ("effective batch", self.effective_batch)),
            (("budget, GiB", self.budget),),
            (("precision", self.precision), ("checkpointing", self.checkpointing)),
        ]
        controls = tuple(control for row in rows for _, control in row)
        boxes = [side_by_side(*(labelled(*pair) for pair in row)) for row in rows]
        super().__init__(MemoryPicture(), controls, boxes)

    def follow(self) -> tuple[Table, Sequence[str]]:
        self.split = split = split_for(
            SHAPES[self.model.value],
            self.sequence.value,
            self.effective_batch.value,
            self.budget.value * GIB,
            self.precision.value,
            self.optimizer.value,
            self.checkpointing.value,
        )
        verdict = _verdict(split, self.effective_batch.value, self.checkpointing.value)
        self.picture.update(
            {part: size / GIB for part, size in split.parts.items()},
            self.budget.value,
            split.times,
            split.micro_batch,
            verdict,
        )
        rows = [(part, number(size / GIB, 3)) for part, size in split.parts.items()]
        rows.append(("all", number(sum(split.parts.values()) / GIB, 3)))
        return Table(("part", "GiB"), tuple(rows), verdict), (*PART_COLOURS.values(),)


def _verdict(split: Split, effective_batch: int, checkpointing: bool) -> str:
    if split.micro_batch is None:
        most, need = max(split.parts.values()), number(sum(split.parts.values()) / GIB, 3)
        largest = [part for part, size in split.parts.items() if size == most]
        named = f"part{'s' if len(largest) > 1 else ''} {', '.join(largest)}"
        return f"not even one sample fits: it takes {need} GiB, its largest {named}"
    samples = "1 sample" if effective_batch == 1 else f"{effective_batch} samples"
    cost = f"{number(split.times[split.micro_batch], 3)} times the time"
    if split.steps == 1:
        # One batch is its own measure, unless its activations are computed twice.
        return f"{samples} in one batch" + (f", {cost} without checkpointing" * checkpointing)
    size, larger = divmod(effective_batch, split.steps)
    cut = f"{split.steps} × {size}"
    if larger:
        cut = f"{larger} × {size + 1} and {split.steps - larger} × {size}"
    return f"{samples} as {cut}, {cost} of one batch" + " without checkpointing" * checkpointing


def _choices(values: tuple[int, ...], value: int) -> widgets.SelectionSlider:
    return widgets.SelectionSlider(options=values, value=value)
