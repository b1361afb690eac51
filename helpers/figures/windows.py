"""Lesson 03: every sample's weight in its update."""

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure

from helpers.figures.drawing import MICRO_BATCH_COLOURS, STYLE, new_figure, pale

UNUSED = "#ffffff"


class TimelinePicture:
    """A bar for every sample in the order drawn: how much it counts, 1 being its fair share.

    Bars of one update have one colour; a triangle marks each optimizer step, a dashed line each
    end of an epoch, and a cross each sample that no update uses.

    Args:
        figure: an empty figure of 9 by 3.1 inches; a new one unless given.
    """

    size = (9.0, 3.1)

    def __init__(self, figure: Figure | None = None):
        with matplotlib.rc_context(STYLE):
            self.figure = figure or new_figure(*self.size)
            self.axes = axes = self.figure.add_axes([0.07, 0.17, 0.92, 0.7])
            axes.set(xlabel="samples in the order drawn", ylabel="weight, 1 is fair")
            axes.axhline(1, color="#000000", lw=1.6, ls=(0, (4, 2)), zorder=3)
            self.bars = axes.add_collection(PolyCollection([], linewidths=0.8))
            self.epochs = axes.add_collection(
                LineCollection([], colors="#777777", linestyles=[(0, (6, 3))], linewidths=1.4)
            )
            (self.steps,) = axes.plot([], [], "v", color="#000000", ms=6, zorder=4, clip_on=False)
            (self.crosses,) = axes.plot([], [], "x", color="#D55E00", ms=6, mew=2, zorder=4)
            self.verdict = axes.set_title("", pad=12)

    def update(
        self,
        shares: Sequence[float],
        belongs: Sequence[int | None],
        batch_ends: Sequence[int],
        step_ends: Sequence[int],
        epoch_ends: Sequence[int],
        verdict: str,
    ) -> None:
        """Show a run.

        Args:
            shares: for each sample its weight, in fair shares; 0 where unused.
            belongs: for each sample the number of its update, or None.
            batch_ends, step_ends, epoch_ends: after how many samples a micro-batch ends, the
                optimizer steps, an epoch ends.
            verdict: one line on the run.
        """
        self._zoom(len(shares), max(shares, default=1))
        starts = dict(zip(batch_ends, [0, *batch_ends], strict=False))
        bars, colours = [], []
        for end, start in starts.items():  # one bar a micro-batch: its samples count alike
            update = belongs[start]
            height = shares[start]
            bars.append([(start, 0), (start, height), (end, height), (end, 0)])
            colours.append(UNUSED if update is None else MICRO_BATCH_COLOURS[update % 4])
        self.bars.set_verts(bars)
        self.bars.set(facecolors=[pale(c) for c in colours], edgecolors="#555555")
        top = self.axes.get_ylim()[1]
        self.epochs.set_segments([[(x, 0), (x, top)] for x in epoch_ends])
        self.steps.set_data(step_ends, [top] * len(step_ends))
        unused = [i + 0.5 for i, update in enumerate(belongs) if update is None]
        self.crosses.set_data(unused, [0.12 * top] * len(unused))
        self.verdict.set_text(verdict)

    def _zoom(self, samples: int, highest: float) -> None:
        width = next(w for w in (10, 20, 40, 80, 120) if w >= samples)
        height = next(h for h in (2.2, 5, 10) if h > highest)
        self.axes.set(xlim=(0, width), ylim=(0, height))
        self.axes.set(
            xticks=np.linspace(0, width, 6), yticks=[0, 1, 2] if height < 3 else [0, 1, 5]
        )

    @property
    def moving(self) -> list[Artist]:
        """The artists that :meth:`update` changes."""
        return [self.bars, self.epochs, self.steps, self.crosses, self.verdict]
