"""Lesson 01: several roads to a gradient beside each other, each as arrows tip to tail."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np

from helpers.figures.drawing import (
    FULL_BATCH_LINE,
    MICRO_BATCH_COLOURS,
    MICRO_BATCH_DASHES,
    STYLE,
    Arrows,
    new_figure,
    vector,
)
from helpers.figures.pictures import Picture, Table


def roads(
    title: str, runs: Mapping[str, Sequence[Sequence[float]]], full: Sequence[float]
) -> Picture:
    """For each road the arrows that add up, all to one scale; a ring marks where they arrive.

    Args:
        title: what the picture shows; begins the alt text.
        runs: by the road's name its up to eight summands, each (weight, bias).
        full: the full-batch gradient, a dashed line from the origin on each.
    """
    corners = {
        name: np.vstack([np.zeros(2), np.cumsum(np.asarray(parts, float), axis=0)])
        for name, parts in runs.items()
    }
    every = np.vstack([*corners.values(), [full]])
    low, high = every.min(0), every.max(0)
    margin = 0.08 * max(high - low)
    with matplotlib.rc_context(STYLE):
        figure = new_figure(9, 3.6)
        figure.suptitle(f"{title} (dashed: the full batch, ring: the road's end)", fontsize=11)
        for i, (name, points) in enumerate(corners.items()):
            axes = figure.add_axes(
                [(0.75 + 8.2 * i / len(runs)) / 9, 0.14, (8.2 / len(runs) - 0.25) / 9, 0.68]
            )
            axes.set(xlim=(low[0] - margin, high[0] + margin), aspect="equal", anchor="C")
            axes.set(ylim=(low[1] - margin, high[1] + margin), xlabel="weight")
            axes.set_title(name, fontsize=10)
            if i:
                axes.set_yticklabels([])
            else:
                axes.set_ylabel("bias")
            arrows = Arrows(axes, width=1.8)
            n = len(points) - 1
            dashes = list(MICRO_BATCH_DASHES[:n])
            for artist in arrows.artists:
                artist.set_label(name)
            arrows.set(points[:-1], points[1:], MICRO_BATCH_COLOURS[:n], dashes)
            axes.plot([0, full[0]], [0, full[1]], label="full batch", zorder=3, **FULL_BATCH_LINE)
            ring = {"ms": 10, "mfc": "none", "mew": 1.6, "color": "#000000", "zorder": 4}
            axes.plot(*points[-1], "o", ls="", label="ring", **ring)
    rows = [(name, str(len(points) - 1), vector(points[-1])) for name, points in corners.items()]
    table = Table(("road", "arrows", "arrives at"), tuple(rows))
    told = "; ".join(f"{name}: {n} arrow{'s' * (n != '1')} to {end}" for name, n, end in rows)
    return Picture(figure, f"{title}. {told}", table)
