"""Why a window is no large batch: one still picture for each cause."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

from helpers.figures.drawing import (
    FULL_BATCH,
    FULL_BATCH_LINE,
    MICRO_BATCH_COLOURS,
    STYLE,
    UNSCALED,
    WEIGHTED,
    Arrows,
    new_figure,
    number,
    vector,
)
from helpers.figures.pictures import Picture, Table

LOOKS = {
    "right": {"color": WEIGHTED, "lw": 4, "alpha": 0.6},
    "wrong": {"color": UNSCALED, "lw": 2, "marker": "o", "ms": 4},
    "full batch": {**FULL_BATCH_LINE, "zorder": 3},
}
MARKS = ("o", "s", "^", "D")  # of micro-batch 1, 2, 3, 4; beside their colours


def on_a_line(title: str, rows: Mapping[str, Sequence[Sequence[float]]]) -> Picture:
    """Numbers of each sample as dots on a line; one line below another, the same scale for all.

    Args:
        title: what the picture shows; begins the alt text.
        rows: for each line's name the micro-batches, each with a number for each of its samples.
    """
    with matplotlib.rc_context(STYLE):
        high = 0.75 + 0.62 * len(rows)  # inches, 0.62 of them below the axes
        figure = new_figure(9, high)
        axes = figure.add_axes([0.19, 0.62 / high, 0.79, 1 - 0.7 / high])
        for height, batches in enumerate(reversed(rows.values())):
            axes.axhline(height, color="#cccccc", lw=1, zorder=0)
            for i, values in enumerate(batches):
                colour = FULL_BATCH if len(batches) == 1 else MICRO_BATCH_COLOURS[i % 4]
                at = [height + 0.13 * (i if len(batches) > 1 else 0)] * len(values)
                axes.plot(values, at, MARKS[i % 4], color=colour, ms=9, mec="#333333")
        axes.set(ylim=(-0.4, len(rows) - 0.5), yticks=range(len(rows)))
        axes.set_yticklabels([*reversed(rows)])
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
    samples = max(sum(map(len, batches)) for batches in rows.values())
    lines = [
        (name, *(number(value, 3) for values in batches for value in values))
        for name, batches in rows.items()
    ]
    table = Table(("sample", *map(str, range(1, samples + 1))), tuple(lines))
    return Picture(figure, _told(title, lines), table)


def against(
    title: str,
    runs: Mapping[str, tuple[str, Sequence[float]]],
    x: Sequence[float],
    labels: tuple[str, str],
    log: bool = False,
) -> Picture:
    """Lines over the same x; the table has a few points of each.

    Args:
        title: what the picture shows; begins the alt text.
        runs: for each line's name its look, one of ``LOOKS``, and a number for each x.
        x: where these are.
        labels: what x and what the numbers are.
        log: whether the x axis is logarithmic, in powers of two.
    """
    with matplotlib.rc_context(STYLE):
        figure = new_figure(9, 3.0)
        axes = figure.add_axes([0.09, 0.18, 0.89, 0.76])
        for name, (look, values) in runs.items():
            marks = {"markevery": max(1, len(values) // 16)} if "marker" in LOOKS[look] else {}
            axes.plot(x, values, label=name, **{**LOOKS[look], **marks})
        if log:
            axes.set_xscale("log", base=2)
            axes.set_xticks(x, [number(value) for value in x])
        axes.set(xlabel=labels[0], ylabel=labels[1])
        axes.legend(fontsize=9)
    shown = sorted({0, len(x) // 3, 2 * len(x) // 3, len(x) - 1})
    lines = [(name, *(number(values[i], 3) for i in shown)) for name, (_, values) in runs.items()]
    table = Table((labels[0], *(number(x[i]) for i in shown)), tuple(lines))
    return Picture(figure, _told(title, lines), table)


def comparisons(title: str, cuts: Mapping[str, Sequence[int]]) -> Picture:
    """Who is compared with whom: a square for each cut of the same samples, row by row.

    Args:
        title: what the picture shows; begins the alt text.
        cuts: for each cut's name the sizes of its micro-batches.
    """
    lines = []
    with matplotlib.rc_context(STYLE):
        figure = new_figure(9, 3.1)
        for axes, (name, sizes) in zip(
            figure.subplots(1, len(cuts), squeeze=False)[0], cuts.items(), strict=True
        ):
            cells = compared(sizes)
            colours = ["#ffffff", "#CCCCCC", FULL_BATCH]
            axes.imshow(cells, cmap=ListedColormap(colours), vmin=0, vmax=2, aspect="equal")
            _grid(axes, len(cells))
            axes.set(title=name, xlabel="second view", ylabel="first view")
            lines.append((name, str((cells == 2).sum()), str((cells == 1).sum())))
        figure.tight_layout()
    table = Table(("micro-batches", "own partner", "wrong answers"), tuple(lines))
    told = [(name, f"{own} own partners", f"{wrong} wrong answers") for name, own, wrong in lines]
    return Picture(figure, _told(title, told), table)


def compared(sizes: Sequence[int]) -> np.ndarray:
    """For each pair of samples 2 if they are partners, 1 if one is the other's wrong answer."""
    owners = np.repeat(np.arange(len(sizes)), sizes)
    return (owners[:, None] == owners).astype(int) + np.eye(len(owners), dtype=int)


def cloud(
    title: str, points: np.ndarray, marked: Mapping[str, Sequence[float]], axis_names: Sequence[str]
) -> Picture:
    """Points in a plane, a few of them pointed out by name; the table has these.

    Args:
        title: what the picture shows; begins the alt text.
        points: shape (n, 2).
        marked: for each name a point.
        axis_names: what x and y are.
    """
    with matplotlib.rc_context(STYLE):
        figure = new_figure(9, 3.4)
        axes = figure.add_axes([0.08, 0.16, 0.9, 0.8])
        x, y = np.asarray(points).T
        axes.plot(x, y, ".", color="#999999", ms=5, label=f"{len(x)} single draws", zorder=1)
        looks = [("*", FULL_BATCH), ("D", WEIGHTED), ("s", UNSCALED)]
        for (name, point), (mark, colour) in zip(marked.items(), looks, strict=False):
            size = 15 if mark == "*" else 8
            axes.plot(*[[v] for v in point], mark, color=colour, ms=size, mec="w", label=name)
        axes.set(xlabel=axis_names[0], ylabel=axis_names[1])
        axes.legend(fontsize=9)
    lines = [(name, vector(point)) for name, point in marked.items()]
    return Picture(figure, _told(title, lines), Table(("point", "where"), tuple(lines)))


def walks(title: str, roads: Mapping[str, Sequence[Sequence[float]]], limit: float) -> Picture:
    """Gradients that grow and are clipped, as arrows from stop to stop; one square for each road.

    Args:
        title: what the picture shows; begins the alt text.
        roads: for each road's name its stops, the start first.
        limit: the length that clipping allows, drawn as a circle.
    """
    with matplotlib.rc_context(STYLE):
        figure = new_figure(9, 4.1)
        for axes, (name, stops) in zip(
            figure.subplots(1, len(roads), squeeze=False)[0], roads.items(), strict=True
        ):
            stops = np.asarray(stops, float)
            everything = np.concatenate([np.asarray(road, float) for road in roads.values()])
            axes.set(xlim=(-0.4, everything[:, 0].max() + 0.4), aspect="equal", title=name)
            axes.set(ylim=(-0.4, everything[:, 1].max() + 0.4), xlabel="first weight")
            turn = np.linspace(0, np.pi / 2, 60)
            axes.plot(limit * np.cos(turn), limit * np.sin(turn), **FULL_BATCH_LINE, label="limit")
            shrinks = np.linalg.norm(stops[1:], axis=1) < np.linalg.norm(stops[:-1], axis=1)
            colours = [UNSCALED if shrunk else MICRO_BATCH_COLOURS[1] for shrunk in shrinks]
            Arrows(axes, 2.2).set(stops[:-1], stops[1:], colours)
            axes.plot(*stops[-1], "*", color=FULL_BATCH, ms=13, mec="w", label="end", zorder=4)
        figure.axes[0].set_ylabel("second weight")
        figure.axes[-1].legend(fontsize=9, loc="center right")
        figure.tight_layout()
    lines = [(name, *(vector(stop, 3) for stop in stops)) for name, stops in roads.items()]
    most = max(len(line) for line in lines)
    lines = [(*line, *[""] * (most - len(line))) for line in lines]
    table = Table(("road", "start", *(f"stop {i}" for i in range(1, most - 1))), tuple(lines))
    return Picture(figure, _told(title, lines), table)


def calendar(title: str, happens: Mapping[str, Sequence[int]], ends: Sequence[int]) -> Picture:
    """What happens after which micro-batch: a row for each action, a column for each micro-batch.

    Args:
        title: what the picture shows; begins the alt text.
        happens: for each action's name the micro-batches after which it happens, from 1.
        ends: the last micro-batch of each window, from 1; the last of all last.
    """
    with matplotlib.rc_context(STYLE):
        high = 0.8 + 0.27 * len(happens)  # inches, 0.5 of them below the axes
        figure = new_figure(9, high)
        axes = figure.add_axes([0.13, 0.5 / high, 0.85, 1 - 0.6 / high])
        for height, (_, when) in enumerate(reversed(happens.items())):
            owner = [sum(end < place for end in ends) for place in when]
            colours = [MICRO_BATCH_COLOURS[i % 4] for i in owner]
            axes.scatter(when, [height] * len(when), marker="s", s=60, c=colours, ec="#333333")
        for end in ends:
            axes.axvline(end + 0.5, color="#555555", lw=1, ls=":")
        axes.set(xlim=(0.5, ends[-1] + 0.7), xticks=range(1, ends[-1] + 1), xlabel="micro-batch")
        axes.set(ylim=(-0.6, len(happens) - 0.4), yticks=range(len(happens)))
        axes.set_yticklabels([*reversed(happens)])
    lines = [(name, str(len(when)), " ".join(map(str, when))) for name, when in happens.items()]
    table = Table(("action", "times", "after micro-batch"), tuple(lines))
    told = [(name, f"{times} times") for name, times, _ in lines]
    return Picture(figure, _told(title, told), table)


def _grid(axes: Axes, samples: int) -> None:
    axes.set_xticks(range(samples), range(1, samples + 1))
    axes.set_yticks(range(samples), range(1, samples + 1))
    for edge in np.arange(samples + 1) - 0.5:
        axes.axhline(edge, color="#777777", lw=0.8)
        axes.axvline(edge, color="#777777", lw=0.8)
    axes.tick_params(length=0)


def _told(title: str, lines: Sequence[Sequence[str]]) -> str:
    """The alt text: what is shown, and the numbers of each line."""
    told = [f"{name}: {', '.join(filter(None, rest))}" for name, *rest in lines]
    return f"{title}. {'; '.join(told)}"
