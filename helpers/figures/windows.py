"""Lessons 03 and 04: how much every sample or token counts in its update."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure

from helpers.figures.drawing import (
    MICRO_BATCH_COLOURS,
    RULE_COLOURS,
    STYLE,
    UNSCALED,
    Picture,
    Table,
    new_figure,
    number,
    pale,
)

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
            axes = self.figure.add_axes([0.07, 0.17, 0.92, 0.7])
            axes.set(xlabel="samples in the order drawn", ylabel="weight, 1 is fair")
            self.shares = ShareBars(axes, heights=(2.2, 5, 10))
            self.epochs = axes.add_collection(
                LineCollection([], colors="#777777", linestyles=[(0, (6, 3))], linewidths=1.4)
            )
            (self.steps,) = axes.plot([], [], "v", color="#000000", ms=6, zorder=4, clip_on=False)
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
        top = self.shares.set(shares, belongs, batch_ends)
        self.epochs.set_segments([[(x, 0), (x, top)] for x in epoch_ends])
        self.steps.set_data(step_ends, [top] * len(step_ends))
        self.verdict.set_text(verdict)

    @property
    def moving(self) -> list[Artist]:
        """The artists that :meth:`update` changes."""
        return [*self.shares.artists, self.epochs, self.steps, self.verdict]


class TokenPicture:
    """A bar for every sequence, as wide as it has targets and as high as each of them counts.

    Beside it the error of the gradient, in parts of the full batch's length.

    Args:
        figure: an empty figure of 9 by 3.1 inches; a new one unless given.
    """

    size = (9.0, 3.1)

    def __init__(self, figure: Figure | None = None):
        with matplotlib.rc_context(STYLE):
            self.figure = figure or new_figure(*self.size)
            axes = self.figure.add_axes([0.07, 0.17, 0.76, 0.7])
            axes.set(xlabel="targets, sequence by sequence", ylabel="weight, 1 is fair")
            self.shares = ShareBars(axes, heights=(2.2, 5, 10, 25, 100))
            self.verdict = axes.set_title("")
            beside = self.figure.add_axes([0.91, 0.17, 0.08, 0.7])
            beside.set(xlim=(0, 1), ylim=(0, 1.5), xticks=[], yticks=[0, 0.5, 1, 1.5])
            beside.set_title("error")
            self.error = beside.add_collection(PolyCollection([], facecolors=UNSCALED))

    def update(
        self,
        shares: Sequence[float],
        belongs: Sequence[int],
        sequence_ends: Sequence[int],
        error: float,
        verdict: str,
    ) -> None:
        """Show a window.

        Args:
            shares: what each target counts, in fair shares.
            belongs: the number of each target's micro-batch.
            sequence_ends: after how many targets each sequence ends.
            error: length of the gradient's error over the full-batch gradient's length.
            verdict: one line on it.
        """
        self.shares.set(shares, belongs, sequence_ends)
        self.error.set_verts([[(0, 0), (0, error), (1, error), (1, 0)]])
        self.verdict.set_text(verdict)

    @property
    def moving(self) -> list[Artist]:
        """The artists that :meth:`update` changes."""
        return [*self.shares.artists, self.error, self.verdict]


def weight_bars(title: str, rules: Mapping[str, Sequence[float]]) -> Picture:
    """What each sample counts under each rule, side by side; the table has all weights.

    Args:
        title: what the picture shows; begins the alt text.
        rules: for each rule's name the weights of the samples, in order.
    """
    with matplotlib.rc_context(STYLE):
        figure = new_figure(9, 2.6)
        all_axes = figure.subplots(1, len(rules), sharey=True, squeeze=False)[0]
        for axes, (rule, weights) in zip(all_axes, rules.items(), strict=True):
            axes.bar(range(1, len(weights) + 1), weights, color=RULE_COLOURS[rule], width=0.8)
            axes.axhline(1 / len(weights), color="#000000", lw=1.6, ls=(0, (4, 2)))
            axes.set(title=rule, xlabel="sample", xticks=range(1, len(weights) + 1))
        all_axes[0].set_ylabel("weight")
        figure.tight_layout()
    rows = [(rule, *(number(w, 3) for w in weights)) for rule, weights in rules.items()]
    samples = map(str, range(1, len(rows[0])))
    alt = "; ".join(f"{rule}: {', '.join(weights)}" for rule, *weights in rows)
    return Picture(figure, f"{title}. {alt}", Table(("weight of sample", *samples), tuple(rows)))
