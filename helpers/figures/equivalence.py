"""Lesson 06: how far an accumulated run is from whole batches, from rounding to another run."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.figures.drawing import RULING, SCALED
from helpers.figures.pictures import MovingPicture

ROUNDING = 1e-5  # what float32 may leave between two runs that are one in real arithmetic
LOWEST, HIGHEST = 1e-9, 1000.0
WEIGHTS, AVERAGED, STATISTICS = "weights", "moving average", "running statistics"
LINES = {
    WEIGHTS: {"color": SCALED, "ls": "-", "marker": "o", "ms": 5},
    AVERAGED: {"color": SCALED, "ls": ":", "marker": "^", "ms": 7, "mfc": "none"},
    STATISTICS: {"color": "#777777", "ls": "--", "marker": "s", "ms": 4},
}


class EquivalencePicture(MovingPicture):
    """Distances to whole batches on a logarithmic axis, with the floor of rounding shaded.

    On the left the gradient of the first window; on the right, after each update, the weights,
    their moving average and BatchNorm's running statistics. A distance of 0 stands on the axis;
    one above ``HIGHEST`` raises the axis.

    Args:
        updates: how many updates a run has.
        names: the lines of ``LINES`` that a run may have; all unless given.
        figure: an empty figure of 9 by 3.8 inches; a new one unless given.
    """

    size = (9.0, 3.8)

    def __init__(
        self, updates: int, names: Sequence[str] = tuple(LINES), figure: Figure | None = None
    ):
        self.updates, self.names = updates, names
        super().__init__(figure)

    def draw(self) -> None:
        left = self.figure.add_axes([0.08, 0.13, 0.12, 0.7])
        right = self.figure.add_axes([0.22, 0.13, 0.77, 0.7])
        _distance_axis(left)
        _distance_axis(right)
        left.set(xlim=(-1, 1), xticks=[0], xticklabels=["gradient"])
        left.set_ylabel("distance to whole batches", labelpad=2)
        right.set(xlim=(0.5, self.updates + 0.5), xticks=range(1, self.updates + 1))
        right.set(xlabel="updates", yticklabels=[])
        # Left of the first update and upright, where no line or marker can cover it.
        right.text(
            0.68,
            1e-7,
            "rounding",
            fontsize=9,
            color="#555555",
            rotation=90,
            ha="center",
            va="center",
        )
        (self.now,) = right.plot([], [], color="#FFE9A8", lw=9, zorder=1, label="in the table")
        (self.gradient,) = left.plot(
            [], [], "D", color=SCALED, ms=8, clip_on=False, zorder=4, label="gradient"
        )
        self.gradient.set_gid("distance-gradient")
        self.lines = {
            name: right.plot([], [], lw=1.8, label=name, clip_on=False, zorder=3, **LINES[name])[0]
            for name in self.names
        }
        for name, line in self.lines.items():
            line.set_gid(f"distance-{name.replace(' ', '-')}")
        above = {"loc": "lower right", "bbox_to_anchor": (1.01, 0.98)}
        named = [self.now, *self.lines.values()]
        right.legend(handles=named, ncols=4, fontsize=9, **above)
        # From the picture's left edge on, for three causes may take its whole width.
        self.verdict = left.set_title("", pad=26, loc="left", x=-0.6, fontsize=10)

    def update(
        self,
        gradient: float,
        lines: Mapping[str, Sequence[float]],
        updates: int,
        verdict: str,
    ) -> None:
        """Show a run.

        Args:
            gradient: its distance.
            lines: for each of ``names`` that the net has, the distance after each update.
            updates: the number of updates to point out.
            verdict: one line on the run.
        """
        highest = max(HIGHEST, gradient, *(max(line, default=0) for line in lines.values()))
        for axes in self.figure.axes:
            axes.set_ylim(LOWEST, highest)
        self.gradient.set_data([0], _above_the_axis([gradient]))
        for name, line in self.lines.items():
            distances = lines.get(name, ())
            line.set_data(range(1, len(distances) + 1), _above_the_axis(distances))
        self.now.set_data([updates, updates], [LOWEST, highest])
        self.verdict.set_text(verdict)

    @property
    def moving(self) -> list[Artist]:
        return [self.now, self.gradient, *self.lines.values(), self.verdict]


def _distance_axis(axes: Axes) -> None:
    axes.set(yscale="log", ylim=(LOWEST, HIGHEST))
    axes.set_yticks([LOWEST, 1e-7, 1e-5, 1e-3, 0.1, 1, 10, 1000])
    axes.set_yticklabels(["0", "$10^{-7}$", "$10^{-5}$", "0.001", "0.1", "1", "10", "1000"])
    axes.minorticks_off()
    axes.axhspan(LOWEST, ROUNDING, color="#eeeeee", lw=0, zorder=0, label="rounding")
    axes.axhline(1, **RULING)


def _above_the_axis(distances: Sequence[float]) -> np.ndarray:
    """The distances, moved up onto the axis where they lie below it, as 0 does."""
    return np.maximum(np.asarray(distances, float), LOWEST)
