"""Lesson 03: a loop stopped between two lines, and what ``.grad`` holds there."""

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import PolyCollection

from helpers.figures.drawing import FULL_BATCH_LINE, MICRO_BATCH_COLOURS, pale
from helpers.figures.pictures import MovingPicture

MOST_LINES, MOST_PARTS = 16, 8


class SteppingPicture(MovingPicture):
    """The loop's source with one line lit, and beside it the parts that make up ``.grad``."""

    size = (9.0, 3.6)

    def draw(self) -> None:
        code = self.figure.add_axes([0, 0, 0.66, 1])
        code.set(xlim=(0, 1), ylim=(MOST_LINES, 0))
        code.axis("off")
        self.light = code.add_collection(PolyCollection([], facecolors="#FFE9A8", zorder=0))
        self.lines = [
            code.text(0.02, i + 0.5, "", va="center", family="monospace", fontsize=9)
            for i in range(MOST_LINES)
        ]
        self.axes = axes = self.figure.add_axes([0.72, 0.09, 0.12, 0.8])
        axes.set(xlim=(0, 1), xticks=[])
        self.title = axes.set_title("")
        self.bars = axes.add_collection(PolyCollection([], edgecolors="#555555"))
        self.names = [
            axes.text(0.5, 0, "", ha="center", va="center", fontsize=9) for _ in range(MOST_PARTS)
        ]
        (self.right,) = axes.plot([], [], **FULL_BATCH_LINE, zorder=4)
        # Text of an axes: animated text of the figure itself would be missing from the PNG.
        self.counters = axes.text(
            1.25, 0.5, "", va="center", linespacing=1.9, transform=axes.transAxes
        )

    def update(
        self,
        lines: Sequence[str],
        lit: int,
        held: Sequence[tuple[int, float]],
        right: float,
        reach: float,
        title: str,
        counters: str,
    ) -> None:
        """Show a moment.

        Args:
            lines: the source of the loop, at most 16 lines.
            lit: the line that was run last, from 0; -1 for none.
            held: for each micro-batch in ``.grad`` its number and its part.
            right: what ``.grad`` should be at the step; a dashed line.
            reach: the largest ``.grad`` of the whole run.
            title: over the bar.
            counters: short lines beside the bar.
        """
        for text, line in zip(self.lines, [*lines, *[""] * MOST_LINES], strict=False):
            text.set_text(line.replace(" ", "\N{NO-BREAK SPACE}"))  # SVG drops leading spaces
        corners = [(0, lit), (1, lit), (1, lit + 1), (0, lit + 1)]
        self.light.set_verts([corners] if lit >= 0 else [])
        tops = np.cumsum([part for _, part in held])
        top = next(t for t in (2, 4, 8, 16, 32, 64, 1e9) if max(reach, right) < 1.05 * t)
        self.axes.set(ylim=(0, 1.1 * top), yticks=[0, top / 2, top])
        self.bars.set_verts(
            [[(0, t - p), (1, t - p), (1, t), (0, t)] for (_, p), t in zip(held, tops, strict=True)]
        )
        self.bars.set_facecolor([pale(MICRO_BATCH_COLOURS[(n - 1) % 8]) for n, _ in held] or "none")
        for text in self.names:
            text.set_text("")
        for text, (number, part), t in zip(self.names, held, tops, strict=False):
            if part > 0.05 * top:  # a thinner one has no room for its name
                text.set_text(str(number))
                text.set_y(t - part / 2)
        self.right.set_data([0, 1], [right, right])
        self.title.set_text(title)
        self.counters.set_text(counters)

    @property
    def moving(self) -> list[Artist]:
        shapes = [self.light, self.bars, self.right]
        return [*shapes, *self.lines, *self.names, self.title, self.counters]
