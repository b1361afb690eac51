"""How much each sample or token counts in its update, as bars."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from helpers.figures.drawing import MICRO_BATCH_COLOURS, pale

UNUSED = "#ffffff"


class ShareBars:
    """How much each sample or token counts, as bars; a dashed line at 1, the fair share.

    Args:
        axes: where to draw; its y axis is named here.
        heights: upper limits to choose from, so that few sets of ticks are ever drawn.
    """

    widths = (10, 20, 40, 80, 120)

    def __init__(self, axes: Axes, heights: Sequence[float]):
        self.axes, self.heights = axes, heights
        axes.set_ylabel("weight, 1 is fair")
        axes.axhline(1, color="#000000", lw=1.6, ls=(0, (4, 2)), zorder=3, label="1 is fair")
        self.bars = axes.add_collection(PolyCollection([], linewidths=0.8, label="weight"))

    def set(
        self, shares: Sequence[float], belongs: Sequence[int | None], ends: Sequence[int]
    ) -> float:
        """Show the shares, one bar up to each of ``ends``; the upper limit chosen.

        Args:
            shares: what each sample counts, 1 being fair; alike up to each end.
            belongs: which colour each has; None is drawn white.
            ends: after how many samples each bar ends.
        """
        width = first_above(len(shares) - 0.5, self.widths)
        top = first_above(max(shares, default=1), self.heights)
        self.axes.set(xlim=(0, width), ylim=(0, top), xticks=np.linspace(0, width, 6))
        self.axes.set_yticks(_ticks(top))
        starts = [0, *ends]
        spans = [(start, end) for start, end in zip(starts, ends, strict=False) if start < end]
        self.bars.set_verts(
            [[(a, 0), (a, shares[a]), (b, shares[a]), (b, 0)] for a, b in spans],
        )
        owners = [belongs[start] for start, _ in spans]
        colours = [UNUSED if i is None else pale(MICRO_BATCH_COLOURS[i % 4]) for i in owners]
        self.bars.set(facecolors=colours or "none", edgecolors="#555555")
        return top


def first_above(value: float, limits: Sequence[float]) -> float:
    """The first of the limits above ``value``; beyond them the last one, doubled until it is."""
    for limit in limits:
        if limit > value:
            return limit
    limit = limits[-1]
    while limit <= value:
        limit *= 2
    return limit


def _ticks(top: float) -> Sequence[float]:
    """Ticks up to ``top``, the fair share of 1 always among them, none on another's label."""
    if top < 3:
        return (0, 1, 2)
    return (0, 1, top / 2, top) if top < 15 else (1, top / 2, top)
