"""Lesson 01: cut the eight samples anywhere and watch the gradients add up."""

import itertools
from collections.abc import Sequence

import ipywidgets as widgets
import torch

from helpers.figures import (
    FULL_BATCH,
    MICRO_BATCH_COLOURS,
    CuttingPicture,
    Table,
    number,
    vector,
)
from helpers.panels.panel import SCALING_CHOICES, Panel, buttons, labelled
from helpers.samples import equal_sizes
from helpers.subjects.cutting import Cut, cut, eight_gradients


class CuttingPanel(Panel):
    """The eight samples with a cut allowed in each of the seven gaps, and the scaling to choose.

    Controls:
        gaps: seven toggles; ``gaps[2].value = True`` cuts between sample 3 and sample 4.
        steps: 1, 2, 4 or 8 equal micro-batches at once; None when the cuts are not equal.
        scaling: "none", "steps" or "samples".

    After every move: ``cut``, a :class:`helpers.subjects.cutting.Cut`.
    """

    title = "Eight samples cut into micro-batches"

    def __init__(self, device: torch.device | str = "cpu"):
        self.device, self.eight = device, eight_gradients(device)
        self.gaps = tuple(
            widgets.ToggleButton(
                description=f"{i}|{i + 1}",
                tooltip=f"cut between sample {i} and sample {i + 1}",
                layout=widgets.Layout(width="98%", max_width="48px", margin="2px 0 0", padding="0"),
            )
            for i in range(1, 8)
        )
        self.steps = buttons([1, 2, 4, 8], 2)
        self.scaling = buttons(SCALING_CHOICES, "steps")
        self.gaps[3].value = True
        picture = CuttingPicture(self.eight.losses.tolist(), self.eight.gradients.tolist())
        rows = [
            labelled("each loss", self.scaling),
            labelled("equal steps", self.steps),
            self._above_the_tiles(),
        ]
        super().__init__(picture, (*self.gaps, self.steps, self.scaling), rows)

    def _above_the_tiles(self) -> widgets.Widget:
        """The toggles in a row as wide as the picture, each above the gap that it cuts."""
        width, _ = CuttingPicture.size
        first = f"{CuttingPicture.first_tile / width:.4%}"  # up to the middle of the first tile
        pitch = f"{CuttingPicture.tile_pitch / width:.4%}"
        for i, gap in enumerate(self.gaps):
            # Not grid_column: JupyterLab clears that when it finds grid_area empty.
            gap.layout.grid_area = f"1 / {i + 2} / 2 / {i + 3}"
        layout = widgets.Layout(
            grid_template_columns=f"{first} repeat(7, {pitch})",
            justify_items="center",
            max_width=f"{width:g}in",
        )
        return widgets.GridBox(self.gaps, layout=layout)

    def control_moved(self, control: widgets.ValueWidget) -> None:
        if control is self.steps and self.steps.value is not None:
            size = 8 // self.steps.value
            for i, gap in enumerate(self.gaps, start=1):
                gap.value = i % size == 0
        elif control in self.gaps:
            sizes = self._sizes_cut()
            equal = len(sizes) in (1, 2, 4, 8) and sizes == equal_sizes(8, len(sizes))
            self.steps.value = len(sizes) if equal else None

    def _sizes_cut(self) -> tuple[int, ...]:
        edges = [0, *(i for i, gap in enumerate(self.gaps, start=1) if gap.value), 8]
        return tuple(end - start for start, end in itertools.pairwise(edges))

    def follow(self) -> tuple[Table, Sequence[str]]:
        scaling = self.scaling.value
        self.cut = now = cut(self._sizes_cut(), scaling, self.device)
        shares = _shares(now, scaling)
        verdict = _verdict(now, self.eight.full_batch)
        self.picture.update(
            now.sizes,
            shares,
            [part.tolist() for part in now.contributions],
            self.eight.full_batch.tolist(),
            scaling,
            verdict,
        )
        return self._table(shares), (*MICRO_BATCH_COLOURS[: len(now.sizes)], FULL_BATCH)

    def _table(self, shares: Sequence[str]) -> Table:
        rows, last = [], 0
        for size, share, part in zip(self.cut.sizes, shares, self.cut.contributions, strict=True):
            first, last = last + 1, last + size
            samples = f"{first} to {last}" if size > 1 else f"{first}"
            rows.append((samples, share, vector(part.tolist())))
        full = self.eight
        rows.append(("full batch", number(full.full_loss), vector(full.full_batch.tolist())))
        accumulated = vector(self.cut.accumulated.tolist())
        return Table(
            heading=("samples", "mean loss, scaled", "adds to .grad"),
            rows=tuple(rows),
            closing=f"accumulated {accumulated}, {self.cut.comparison}",
        )


def _verdict(now: Cut, full_batch: torch.Tensor) -> str:
    accumulated, full = vector(now.accumulated.tolist()), vector(full_batch.tolist())
    if now.comparison.exact:
        return f"{accumulated} = full batch, to the bit"
    return f"{accumulated} ≠ {full}, off by {now.comparison.relative_difference:.0%}"


def _shares(now: Cut, scaling: str) -> list[str]:
    """What is written under each micro-batch: 3 ÷ 2 = 1.5, 3.2 × 5/8 = 2, or 3."""
    shares = []
    for size, loss, factor in zip(now.sizes, now.losses, now.factors, strict=True):
        times = {"none": "", "steps": f" ÷ {len(now.sizes)}", "samples": f" × {size}/8"}[scaling]
        shares.append(number(loss) + (f"{times} = {number(loss * factor)}" if times else ""))
    return shares
