"""What each sequence, token or sample counts when micro-batches are unequal."""

import math
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import PolyCollection

from helpers.figures.drawing import (
    FULL_BATCH_LINE,
    RULE_COLOURS,
    STYLE,
    UNSCALED,
    new_figure,
    number,
)
from helpers.figures.pictures import MovingPicture, Picture, Table
from helpers.figures.shares import ShareBars, first_above

MOST_SEQUENCES = 8
HEIGHTS = 1.03, 1.11  # of two rows of numbers over the axes, in their heights
NUMBER_WIDTH = 0.016  # of the axes' width, with room beside it


class TokensPicture(MovingPicture):
    """A bar for every sequence, as wide as it has targets and as high as each of them counts.

    Beside it the error of the gradient, in parts of the full batch's length.
    """

    size = (9.0, 3.1)

    def draw(self) -> None:
        axes = self.figure.add_axes([0.07, 0.17, 0.76, 0.6])
        axes.set_xlabel("targets, sequence by sequence: their numbers above")
        self.numbers = [
            axes.text(
                0, HEIGHTS[0], "", ha="center", fontsize=9, transform=axes.get_xaxis_transform()
            )
            for _ in range(MOST_SEQUENCES)
        ]
        self.shares = ShareBars(axes, heights=(2.2, 5, 10, 25, 50, 100))
        self.verdict = axes.set_title("", pad=26)
        self.beside = self.figure.add_axes([0.91, 0.17, 0.08, 0.6])
        self.beside.set(xlim=(0, 1), xticks=[], title="error")
        bar = PolyCollection([], facecolors=UNSCALED, label="error")
        self.error = self.beside.add_collection(bar)

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
        self._number(sequence_ends)
        top = first_above(error, (1.5, 3, 6))
        self.beside.set(ylim=(0, top), yticks=np.linspace(0, top, 4))
        self.error.set_verts([[(0, 0), (0, error), (1, error), (1, 0)]])
        self.verdict.set_text(verdict)

    def _number(self, sequence_ends: Sequence[int]) -> None:
        """Each sequence's number over its bar, higher where it would touch the one before."""
        room = NUMBER_WIDTH * self.shares.axes.get_xlim()[1]
        free = -math.inf  # from where on the lower row is
        starts = [0, *sequence_ends]
        for text in self.numbers:
            text.set_text("")
        for i, (start, end) in enumerate(zip(starts, sequence_ends, strict=False)):
            if start == end:
                continue  # without targets there is no bar
            middle = (start + end) / 2
            low = middle >= free
            free = middle + room if low else free
            self.numbers[i].set_text(str(i + 1))
            self.numbers[i].set(x=middle, y=HEIGHTS[not low])

    @property
    def moving(self) -> list[Artist]:
        return [self.shares.bars, self.error, *self.numbers, self.verdict]


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
            axes.axhline(1 / len(weights), **FULL_BATCH_LINE, label="fair")
            axes.set(title=rule, xlabel="sample", xticks=range(1, len(weights) + 1))
        all_axes[0].set_ylabel("weight")
        most = max(weight for weights in rules.values() for weight in weights)
        all_axes[0].set_ylim(0, 1.3 * most)  # the legend lies above the bars
        all_axes[0].legend(loc="upper left")
        figure.tight_layout()
    rows = [(rule, *(number(w, 3) for w in weights)) for rule, weights in rules.items()]
    samples = map(str, range(1, len(rows[0])))
    alt = "; ".join(f"{rule}: {', '.join(weights)}" for rule, *weights in rows)
    return Picture(figure, f"{title}. {alt}", Table(("weight of sample", *samples), tuple(rows)))
