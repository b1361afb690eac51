"""Several measured lines over one x, each with a look of its own; bars of stacked parts."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np

from helpers.figures.drawing import STYLE, new_figure, number
from helpers.figures.pictures import Picture, Table

# In the order in which lines are given: colour, dash and marker, so that no two share two of them.
LOOKS = (
    {"color": "#0072B2", "ls": "-", "marker": "o"},
    {"color": "#D55E00", "ls": "--", "marker": "s"},
    {"color": "#009E73", "ls": ":", "marker": "^"},
)
PART_COLOURS = {
    "parameters": "#0072B2",
    "gradients": "#D55E00",
    "optimizer state": "#CC79A7",
    "activations": "#56B4E9",
    "other": "#BBBBBB",
}


def lines(
    title: str,
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    x_label: str,
    log: bool = False,
) -> Picture:
    """Up to three lines over one x; the table has every point.

    Args:
        title: what the picture shows; begins the alt text.
        x: the values along the x axis.
        series: the heights of each line by its name.
        x_label: what x is.
        log: whether x is on a logarithmic axis, with a tick at each value.

    Raises:
        ValueError: more lines than there are looks, or one of another length than x.
    """
    if len(series) > len(LOOKS):
        raise ValueError(f"series must hold at most {len(LOOKS)} lines, got {len(series)}")
    for name, heights in series.items():
        if len(heights) != len(x):
            raise ValueError(f"series {name!r} must have {len(x)} heights, got {len(heights)}")
    with matplotlib.rc_context(STYLE):
        figure = new_figure(7, 3)
        axes = figure.add_axes([0.1, 0.17, 0.88, 0.7])
        for (name, heights), look in zip(series.items(), LOOKS, strict=False):
            axes.plot(x, heights, lw=1.8, ms=6, label=name, **look)
        axes.set(title=title, xlabel=x_label, ylim=(0, None))
        if log:
            axes.set_xscale("log")
            axes.set_xticks(x, [number(value) for value in x])
            axes.minorticks_off()
        axes.legend(fontsize=9)
    rows = [(name, *map(number, heights)) for name, heights in series.items()]
    table = Table((x_label, *map(number, x)), tuple(rows))
    ends = [f"{name}: {number(h[0])} to {number(h[-1])}" for name, h in series.items()]
    return Picture(figure, f"{title}. {'; '.join(ends)}", table)


def stacked_parts(title: str, bars: Mapping[str, Mapping[str, float]], unit: str) -> Picture:
    """A bar for each set of parts, its parts end to end from 0; the table has them all.

    Args:
        title: what the picture shows; begins the alt text.
        bars: for each bar's name its parts of ``PART_COLOURS``, the same for each.
        unit: what the parts are measured in.
    """
    with matplotlib.rc_context(STYLE):
        high = 1.3 + 0.55 * len(bars)  # inches: 0.8 above for title and legend, 0.5 below
        figure = new_figure(8, high)
        axes = figure.add_axes([0.16, 0.5 / high, 0.82, 0.55 * len(bars) / high])
        ends = np.zeros(len(bars))
        for part in next(iter(bars.values())):
            sizes = np.array([parts[part] for parts in bars.values()])
            look = {"color": PART_COLOURS[part], "edgecolor": "#555555", "lw": 0.8}
            axes.barh(list(bars), sizes, left=ends, height=0.7, label=part, **look)
            ends += sizes
        axes.invert_yaxis()
        axes.set(xlabel=unit, xlim=(0, 1.02 * max(ends)))
        axes.set_title(title, loc="left", pad=22)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 0.98), ncols=5, fontsize=9, borderpad=0)
    rows = [
        (part, *(number(parts[part]) for parts in bars.values()))
        for part in next(iter(bars.values()))
    ]
    rows.append(("all", *(number(sum(parts.values())) for parts in bars.values())))
    table = Table((unit, *bars), tuple(rows))
    told = [f"{name}: {number(sum(parts.values()))} {unit}" for name, parts in bars.items()]
    return Picture(figure, f"{title}. {', '.join(told)}", table)
