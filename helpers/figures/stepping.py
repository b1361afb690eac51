"""Lesson 03: a loop stopped between two lines, and what ``.grad`` holds there."""

import math
from collections.abc import Iterator, Sequence

from matplotlib.artist import Artist
from matplotlib.collections import PolyCollection

from helpers.figures.drawing import (
    FULL_BATCH_LINE,
    MICRO_BATCH_COLOURS,
    RULING,
    TEXT_GROUND,
    number,
    pale,
)
from helpers.figures.pictures import MovingPicture

MOST_LINES, MOST_CHARACTERS = 16, 80
NAME_ROOM = 0.055  # of the axes' height, for the name of a part
MOST_NAMES = int(1 / NAME_ROOM) + 2  # one more may stand at zero, above it and below

Part = tuple[int, float]  # number of the micro-batch, what it put into .grad


class SteppingPicture(MovingPicture):
    """The loop's source with one line lit, and beside it the parts that make up ``.grad``.

    Positive parts stand on each other, negative ones hang from zero; a mark shows their sum.
    """

    size = (9.0, 3.6)

    def draw(self) -> None:
        code = self.figure.add_axes([0, 0, 0.66, 1])
        code.set(xlim=(0, 1), ylim=(MOST_LINES, 0))
        code.axis("off")
        self.light = PolyCollection([], facecolors="#FFE9A8", zorder=0, lw=0, label="line just run")
        code.add_collection(self.light)
        self.lines = [
            # A dollar in a loop is a dollar, not the beginning of a formula.
            code.text(0.01, i + 0.5, "", va="center", family="monospace", size=9, parse_math=False)
            for i in range(MOST_LINES)
        ]
        self.axes = axes = self.figure.add_axes([0.715, 0.09, 0.1, 0.8])
        axes.set(xlim=(0, 1), xticks=[])
        axes.axhline(0, **RULING | {"color": "#555555"})
        self.title = axes.set_title("")
        self.bars = axes.add_collection(PolyCollection([], edgecolors="#555555", label=".grad"))
        middle = {"ha": "center", "va": "center", "fontsize": 9, "zorder": 6}
        self.names = [axes.text(0.5, 0, "", bbox=TEXT_GROUND, **middle) for _ in range(MOST_NAMES)]
        (self.right,) = axes.plot([], [], **FULL_BATCH_LINE, zorder=4, clip_on=False)
        self.right.set_label("right at a step")
        (self.sum,) = axes.plot([], [], "<", color="#555555", ms=7, clip_on=False, zorder=5)
        self.sum.set_label("sum: .grad")
        beside = {"loc": "lower left", "bbox_to_anchor": (1.1, 0), "fontsize": 9}
        axes.legend(handles=[self.sum, self.right, self.light], handlelength=1.7, **beside)
        # Text of an axes: animated text of the figure itself would be missing from the PNG.
        self.counters = axes.text(
            1.25, 0.7, "", va="center", linespacing=1.9, transform=axes.transAxes
        )

    def update(
        self,
        lines: Sequence[str],
        lit: int,
        held: Sequence[Part],
        right: float,
        reach: tuple[float, float],
        title: str,
        counters: str,
    ) -> None:
        """Show a moment.

        Args:
            lines: the source of the loop, at most 16 lines; of a long one the beginning is shown.
            lit: the line that was run last, from 0; -1 for none.
            held: for each micro-batch in ``.grad`` its number and its part.
            right: what ``.grad`` should be at the step; a dashed line.
            reach: the largest sums of negative and of positive parts in the whole run.
            title: over the bar.
            counters: short lines beside the bar.
        """
        for text, line in zip(self.lines, [*lines, *[""] * MOST_LINES], strict=False):
            shown = line if len(line) <= MOST_CHARACTERS else line[: MOST_CHARACTERS - 1] + "…"
            text.set_text(shown.replace(" ", "\N{NO-BREAK SPACE}"))  # SVG drops leading spaces
        corners = [(0, lit), (1, lit), (1, lit + 1), (0, lit + 1)]
        self.light.set_verts([corners] if lit >= 0 else [])
        height = self._set_limits(min(*reach, right), max(*reach, right))
        spans = list(stacked(held))
        self.bars.set_verts([[(0, a), (1, a), (1, b), (0, b)] for a, b in spans])
        self.bars.set_facecolor([pale(MICRO_BATCH_COLOURS[(n - 1) % 8]) for n, _ in held] or "none")
        named = [*names_beside(held, spans, NAME_ROOM * height), *[("", 0.0)] * MOST_NAMES]
        for text, (name, y) in zip(self.names, named, strict=False):
            text.set_text(name)
            text.set_visible(bool(name))
            text.set_y(y)
            text.get_bbox_patch().set_visible(not name.isdigit())  # it lies on several thin parts
        self.right.set_data([0, 1], [right, right])
        self.sum.set_data([1], [sum(part for _, part in held)])
        self.title.set_text(title)
        self.counters.set_text(counters)

    def _set_limits(self, low: float, high: float) -> float:
        """Make room for all of a run; the height of the axes, in the unit of the parts."""
        largest = max(high, -low) or 1
        top = 2.0 ** math.ceil(math.log2(largest / 1.05))
        ticks = (0, top / 2, top) if low >= 0 else (-top, 0, top)
        bottom = 0 if low >= 0 else -1.1 * top
        if self.axes.get_ylim() != (bottom, 1.1 * top):  # new ticks take a while
            self.axes.set_ylim(bottom, 1.1 * top)
            self.axes.set_yticks(ticks, [number(tick, 3) for tick in ticks])
        return 1.1 * top - bottom

    @property
    def moving(self) -> list[Artist]:
        shapes = [self.light, self.bars, self.right, self.sum]
        return [*shapes, *self.lines, *self.names, self.title, self.counters]


def stacked(held: Sequence[Part]) -> Iterator[tuple[float, float]]:
    """From where to where each part reaches: up from those before it, or down if negative."""
    low = high = 0.0
    for _, part in held:
        if part < 0:
            yield low, low + part
            low += part
        else:
            yield high, high + part
            high += part


def names_beside(
    held: Sequence[Part], spans: Sequence[tuple[float, float]], room: float
) -> Iterator[tuple[str, float]]:
    """A name and its height for each part; neighbours too thin for one each share theirs.

    Args:
        held: the parts.
        spans: where each of them lies.
        room: the height that one name takes.
    """
    for sign in (1, -1):
        groups: list[list[tuple[int, float, float]]] = []
        for (micro_batch, part), (start, end) in zip(held, spans, strict=True):
            if (part < 0) == (sign < 0):
                if groups and abs(groups[-1][-1][2] - groups[-1][0][1]) < room:
                    groups[-1].append((micro_batch, start, end))
                else:
                    groups.append([(micro_batch, start, end)])
        if len(groups) > 1 and abs(groups[-1][-1][2] - groups[-1][0][1]) < room:
            groups[-2:] = [groups[-2] + groups[-1]]
        for group in groups:
            (first, start, _), (last, _, end) = group[0], group[-1]
            centre = (start + end) / 2
            # Above zero or below it, so that it never meets a name of the other sign.
            yield name_of(first, last), sign * max(abs(centre), room / 2)


def name_of(first: int, last: int) -> str:
    """The name of the parts from one micro-batch to another; number 0 is set by hand."""
    if first == last:
        return str(first) if first else "by hand"
    return f"{first}–{last}" if first and last else f"{first or last}, by hand"
