"""Lesson 01: cut the eight samples anywhere and watch the gradients add up."""

import itertools
from collections.abc import Sequence

import ipywidgets as widgets
import torch
from torch import nn

from helpers.figures import (
    FULL_BATCH,
    MICRO_BATCH_COLOURS,
    CuttingPicture,
    Table,
    number,
    vector,
)
from helpers.gradients import (
    accumulated_gradient,
    compare,
    full_batch_gradient,
    per_sample_gradients,
    scale_factors,
)
from helpers.panels.panel import SCALING_CHOICES, Panel, buttons, labelled
from helpers.samples import eight_samples, equal_sizes, one_neuron

PIXELS_PER_INCH = 96
GAP_WIDTH = 48


class CuttingPanel(Panel):
    """The eight samples with a cut allowed in each of the seven gaps, and the scaling to choose.

    Controls:
        gaps: seven toggles; ``gaps[2].value = True`` cuts between sample 3 and sample 4.
        steps: 1, 2, 4 or 8 equal micro-batches at once; None when the cuts are not equal.
        scaling: "none", "steps" or "samples".

    After every move: ``sizes``, ``losses`` (mean of each micro-batch), ``contributions`` (what
    each adds to ``.grad``), ``accumulated``, ``full_batch`` and ``comparison``.
    """

    title = "Eight samples cut into micro-batches"

    def __init__(self, device: torch.device | str = "cpu"):
        self.model, self.loss_fn = one_neuron(device), nn.MSELoss()
        self.x, self.y = eight_samples(device)
        self.sample_gradients = per_sample_gradients(self.model, self.loss_fn, self.x, self.y)
        self.full_batch = full_batch_gradient(self.model, self.loss_fn, self.x, self.y)
        with torch.no_grad():
            losses = nn.functional.mse_loss(self.model(self.x), self.y, reduction="none").flatten()
        self.sample_losses, self.full_loss = losses, losses.mean().item()

        self.gaps = tuple(
            widgets.ToggleButton(
                description=f"{i}|{i + 1}",
                tooltip=f"cut between sample {i} and sample {i + 1}",
                layout=widgets.Layout(width=f"{GAP_WIDTH}px", padding="0"),
            )
            for i in range(1, 8)
        )
        self.steps = buttons([1, 2, 4, 8], None, 36)
        self.scaling = buttons(SCALING_CHOICES, "steps", 160)
        self.gaps[3].value = True
        picture = CuttingPicture(losses.tolist(), self.sample_gradients.tolist())
        super().__init__(picture, (*self.gaps, self.steps, self.scaling), self._layout())
        self.control_moved(self.gaps[0])

    def _layout(self) -> widgets.Widget:
        """The toggles in a row, each above the gap between the two tiles it cuts."""
        pitch, first = CuttingPicture.tile_pitch, CuttingPicture.first_tile
        left = (first + pitch / 2) * PIXELS_PER_INCH - GAP_WIDTH / 2
        between = pitch * PIXELS_PER_INCH - GAP_WIDTH
        for i, gap in enumerate(self.gaps):
            gap.layout.margin = f"2px 0 0 {between if i else left:g}px"
        rows = [
            labelled("each loss", self.scaling),
            labelled("equal steps", self.steps),
            widgets.HBox(self.gaps),
        ]
        return widgets.VBox(rows, layout=widgets.Layout(width="870px"))

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
        scaling, self.sizes = self.scaling.value, self._sizes_cut()
        factors = scale_factors(self.sizes, scaling)
        means = [part.mean(0) for part in self.sample_gradients.split(self.sizes)]
        self.contributions = [mean * factor for mean, factor in zip(means, factors, strict=True)]
        self.losses = [part.mean().item() for part in self.sample_losses.split(self.sizes)]
        self.accumulated = accumulated_gradient(
            self.model, self.loss_fn, self.x, self.y, self.sizes, scaling
        )
        self.comparison = compare(self.accumulated, self.full_batch)

        scaled = [loss * factor for loss, factor in zip(self.losses, factors, strict=True)]
        written = [_factor(size, len(self.sizes), scaling) for size in self.sizes]
        shares = [
            f"{number(loss)}{times} = {number(share)}" if times else number(loss)
            for loss, times, share in zip(self.losses, written, scaled, strict=True)
        ]
        self.picture.update(
            self.sizes,
            shares,
            [part.tolist() for part in self.contributions],
            self.full_batch.tolist(),
            scaling,
            self._verdict(),
        )
        return self._table(shares), (*MICRO_BATCH_COLOURS[: len(self.sizes)], FULL_BATCH)

    def _verdict(self) -> str:
        accumulated, full = vector(self.accumulated.tolist()), vector(self.full_batch.tolist())
        if self.comparison.exact:
            return f"{accumulated} = full batch, to the bit"
        return f"{accumulated} ≠ {full}, off by {self.comparison.relative_difference:.0%}"

    def _table(self, shares: Sequence[str]) -> Table:
        rows, last = [], 0
        for size, share, part in zip(self.sizes, shares, self.contributions, strict=True):
            first, last = last + 1, last + size
            samples = f"{first} to {last}" if size > 1 else f"{first}"
            rows.append((samples, share, vector(part.tolist())))
        rows.append(("full batch", number(self.full_loss), vector(self.full_batch.tolist())))
        return Table(
            heading=("samples", "mean loss, scaled", "adds to .grad"),
            rows=tuple(rows),
            closing=f"accumulated {vector(self.accumulated.tolist())}, {self.comparison}",
        )


def _factor(size: int, steps: int, scaling: str) -> str:
    """How the scaling of one micro-batch is written: ÷ 2, × 5/8, or nothing."""
    return {"none": "", "steps": f" ÷ {steps}", "samples": f" × {size}/8"}[scaling]
