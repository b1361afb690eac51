"""Lesson 08: what fills the memory, and what a split costs in time."""

import math
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import PolyCollection

from helpers.figures.drawing import FULL_BATCH_LINE, STYLE, new_figure, number
from helpers.figures.pictures import MovingPicture, Picture, Table

PART_COLOURS = {
    "weights": "#0072B2",
    "gradients": "#D55E00",
    "optimizer state": "#CC79A7",
    "activations": "#56B4E9",
    "logits": "#F0E442",
    "allowance": "#BBBBBB",
}


STEPS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25)  # GiB between ticks, of which there are four
UPDATE_TIME = "time of an update"


class MemoryPicture(MovingPicture):
    """What fills the memory as one bar against the budget, and the time of each split beside it."""

    size = (9.0, 3.2)

    def draw(self) -> None:
        self.axes = axes = self.figure.add_axes([0.03, 0.16, 0.55, 0.59])
        axes.set(xlabel="GiB", ylim=(0, 1.05), yticks=[])
        self.bars = {
            part: axes.add_collection(
                PolyCollection([], facecolors=colour, edgecolors="#555555", label=part)
            )
            for part, colour in PART_COLOURS.items()
        }
        (self.budget,) = axes.plot([], [], label="budget", **FULL_BATCH_LINE)
        self.verdict = axes.set_title("", loc="left", pad=25)
        look = {"handlelength": 1, "handletextpad": 0.3, "columnspacing": 0.8}
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 0.99), ncols=7, fontsize=9, borderpad=0.2, **look
        )
        self.beside = times = self.figure.add_axes([0.68, 0.16, 0.31, 0.59])
        times.set_title(f"{UPDATE_TIME}, one batch = 1", loc="right", fontsize=10)
        times.set(xlabel="micro-batch", xscale="log")
        times.set(ylim=(0.9, 1.6), yticks=[1, 1.1, 1.2, 1.3, 1.4, 1.5])
        (self.times,) = times.plot([], [], "o-", color="#0072B2", ms=4, label=UPDATE_TIME)
        ring = {"ms": 12, "mfc": "none", "mew": 2, "color": "#000000"}
        (self.chosen,) = times.plot([], [], "o", label="the plan", **ring)
        times.legend(handles=[self.chosen], loc="upper right", fontsize=9, borderpad=0)
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
            parts: GiB of each part of ``PART_COLOURS``, in the order in which they are stacked.
            budget: in GiB; a dashed line.
            times: for each micro-batch that fits the time of an update, of one batch 1.
            chosen: the micro-batch of the plan, or None where nothing fits.
            verdict: one line on the plan.
        """
        ends = np.cumsum(list(parts.values()))
        for (part, size), b in zip(parts.items(), ends, strict=True):
            a = b - size
            self.bars[part].set_verts([[(a, 0.1), (b, 0.1), (b, 0.95), (a, 0.95)]])
        self.budget.set_data([budget, budget], [0, 1.05])
        enough = max(ends[-1], budget) * 1.04
        step = next((s for s in STEPS if 4 * s >= enough), math.ceil(enough / 4))
        self.axes.set(xlim=(0, 4 * step), xticks=[i * step for i in range(5)])
        self._show_times(times, chosen)
        self.verdict.set_text(verdict)

    def _show_times(self, times: Mapping[int, float], chosen: int | None) -> None:
        self.times.set_data(list(times), list(times.values()))
        self.chosen.set_data([chosen] if chosen else [], [times[chosen]] if chosen else [])
        reach = max((4, *times))
        ticks = [2**i for i in range(int(math.log2(reach)) + 1)]
        self.beside.set(xlim=(0.75, 1.4 * reach), xticks=ticks, xticklabels=map(str, ticks))

    @property
    def moving(self) -> list[Artist]:
        return [*self.bars.values(), self.budget, self.times, self.chosen, self.verdict]


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
