"""Lesson 06: what fills the memory, and what a split costs in time."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import PolyCollection

from helpers.figures.drawing import STYLE, new_figure, number
from helpers.figures.pictures import MovingPicture, Picture, Table

PART_COLOURS = {
    "weights": "#0072B2",
    "gradients": "#D55E00",
    "optimizer state": "#CC79A7",
    "activations": "#56B4E9",
    "allowance": "#BBBBBB",
}


class MemoryPicture(MovingPicture):
    """What fills the memory as one bar against the budget, and the time of each split beside it."""

    size = (9.0, 3.0)

    def draw(self) -> None:
        self.axes = axes = self.figure.add_axes([0.03, 0.17, 0.55, 0.62])
        axes.set(xlabel="GiB", ylim=(0, 1.25), yticks=[])
        self.bars = axes.add_collection(PolyCollection([], edgecolors="#555555"))
        (self.budget,) = axes.plot([], [], color="#000000", lw=1.6, ls=(0, (4, 2)))
        self.names = [axes.text(0, 1.06, "", ha="center", fontsize=9) for _ in PART_COLOURS]
        self.verdict = axes.set_title("", loc="left")
        self.beside = times = self.figure.add_axes([0.66, 0.17, 0.33, 0.62])
        times.set(xlabel="micro-batch", title="time of an update, largest = 1", xscale="log")
        times.set(ylim=(0.9, 1.35), yticks=[1, 1.1, 1.2, 1.3])
        (self.times,) = times.plot([], [], "o-", color="#0072B2", ms=4)
        (self.chosen,) = times.plot([], [], "o", ms=12, mfc="none", mew=2, color="#000000")
        times.minorticks_off()

    def update(
        self,
        parts: Mapping[str, float],
        budget: float,
        times: Mapping[int, float],
        chosen: int | None,
        verdict: str,
    ) -> None:
        """Show a plan.

        Args:
            parts: GiB of each part of ``PART_COLOURS``, in its order.
            budget: in GiB; a dashed line.
            times: for each micro-batch that fits the time of an update, the largest taking 1.
            chosen: the micro-batch of the plan, or None where nothing fits.
            verdict: one line on the plan.
        """
        ends = np.cumsum(list(parts.values()))
        starts = ends - list(parts.values())
        full = max(ends[-1], budget)
        reach = next((r for r in (8, 16, 32, 64, 128) if full < 1.02 * r), 128)
        self.axes.set(xlim=(0, reach), xticks=np.linspace(0, reach, 5))
        self.bars.set_verts(
            [[(a, 0.1), (b, 0.1), (b, 0.95), (a, 0.95)] for a, b in zip(starts, ends, strict=True)]
        )
        self.bars.set_facecolor([PART_COLOURS[part] for part in parts])
        for text, part, start, end in zip(self.names, parts, starts, ends, strict=True):
            wide = end - start > 0.13 * reach and end <= reach
            text.set_text(part if wide else "")
            text.set_x((start + end) / 2)
        self.budget.set_data([budget, budget], [0, 1.25])
        self._show_times(times, chosen)
        self.verdict.set_text(verdict)

    def _show_times(self, times: Mapping[int, float], chosen: int | None) -> None:
        self.times.set_data(list(times), list(times.values()))
        self.chosen.set_data([chosen] if chosen else [], [times[chosen]] if chosen else [])
        largest = max(times, default=1)
        ticks = [m for m in (1, 4, 16, 64, 256) if m <= max(largest, 4)]
        self.beside.set(xlim=(0.8, 1.3 * ticks[-1]), xticks=ticks, xticklabels=map(str, ticks))

    @property
    def moving(self) -> list[Artist]:
        lines = [self.budget, self.times, self.chosen]
        return [self.bars, *lines, *self.names, self.verdict]


def line_through(
    title: str,
    x: Sequence[float],
    measured: Sequence[float],
    line: Sequence[float],
    x_label: str,
) -> Picture:
    """Measured points and a line; the table has both.

    Args:
        title: what the picture shows; begins the alt text.
        x: the values along the x axis.
        measured: the points.
        line: the line's height at each x.
        x_label: what x is.
    """
    with matplotlib.rc_context(STYLE):
        figure = new_figure(7, 3)
        axes = figure.add_axes([0.13, 0.17, 0.85, 0.7])
        axes.plot(x, line, color="#777777", lw=1.6, ls=(0, (4, 2)), label="line")
        axes.plot(x, measured, "o", color="#0072B2", ms=7, label="measured")
        axes.set(title=title, xlabel=x_label, ylim=(0, None))
        axes.legend(fontsize=9)
    rows = [
        ("measured", *(number(value) for value in measured)),
        ("line", *(number(value) for value in line)),
    ]
    table = Table((x_label, *(number(value) for value in x)), tuple(rows))
    points = ", ".join(f"{number(a)}: {number(b)}" for a, b in zip(x, measured, strict=True))
    return Picture(figure, f"{title}. {points}", table)
