"""How much each sample or token counts in its update, as bars."""

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from helpers.figures.drawing import MICRO_BATCH_COLOURS, pale

UNUSED = "#ffffff"


class ShareBars:
    """How much each sample or token counts, as bars; a dashed line at 1, the fair share.

    Args:
        axes: where to draw.
        heights: upper limits to choose from, so that few sets of ticks are ever drawn.
    """

    widths = (10, 20, 40, 80, 120)

    def __init__(self, axes: Axes, heights: Sequence[float]):
        self.axes, self.heights = axes, heights
        axes.axhline(1, color="#000000", lw=1.6, ls=(0, (4, 2)), zorder=3)
        self.bars = axes.add_collection(PolyCollection([], linewidths=0.8))
        (self.crosses,) = axes.plot([], [], "x", color="#D55E00", ms=6, mew=2, zorder=4)

    def set(
        self, shares: Sequence[float], belongs: Sequence[int | None], ends: Sequence[int]
    ) -> float:
        """Show the shares, one bar up to each of ``ends``; the upper limit chosen.

        Args:
            shares: what each sample counts, 1 being fair; alike up to each end.
            belongs: which colour each has; None is marked as unused.
            ends: after how many samples each bar ends.
        """
        width = next(w for w in self.widths if w >= len(shares))
        top = next(h for h in self.heights if h > max(shares, default=1))
        self.axes.set(xlim=(0, width), ylim=(0, top), xticks=np.linspace(0, width, 6))
        self.axes.set_yticks([0, 1, 2] if top < 3 else [0, 1, *np.linspace(0, top, 3)[1:]])
        starts = [0, *ends]
        spans = [(start, end) for start, end in zip(starts, ends, strict=False) if start < end]
        self.bars.set_verts(
            [[(a, 0), (a, shares[a]), (b, shares[a]), (b, 0)] for a, b in spans],
        )
        owners = [belongs[start] for start, _ in spans]
        colours = [UNUSED if i is None else pale(MICRO_BATCH_COLOURS[i % 4]) for i in owners]
        self.bars.set(facecolors=colours or "none", edgecolors="#555555")
        unused = [i + 0.5 for i, owner in enumerate(belongs) if owner is None]
        self.crosses.set_data(unused, [0.12 * top] * len(unused))
        return top

    @property
    def artists(self) -> list[Artist]:
        return [self.bars, self.crosses]
