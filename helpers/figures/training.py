"""Lesson 02: what a scale does to training."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from helpers.figures.drawing import (
    FULL_BATCH_LINE,
    SCALED,
    SCALING_COLOURS,
    SCALING_NAMES,
    STYLE,
    UNSCALED,
    WEIGHTED,
    new_figure,
    number,
)
from helpers.figures.pictures import MovingPicture, Picture, Table

RUN_LINE = {"marker": "o", "lw": 2, "ms": 4}


class TrainingPicture(MovingPicture):
    """Two runs beside each other: the path over the loss surface, gradient norms and losses.

    Args:
        surface: a record of ``weights``, ``biases``, ``losses`` (a row for each bias) and
            ``minimum``, as :func:`helpers.subjects.training.loss_surface` gives it.
        updates: how many updates a run has.
        figure: an empty figure of 9 by 4.3 inches; a new one unless given.
    """

    size = (9.0, 4.3)

    def __init__(self, surface, updates: int, figure: Figure | None = None):
        self.surface, self.updates = surface, updates
        super().__init__(figure)

    def draw(self) -> None:
        path = self.figure.add_axes([0.07, 0.25, 0.39, 0.66])
        map_key = loss_contours(path, self.surface)
        beneath = {"loc": "center right", "bbox_to_anchor": (0.475, 0.06), "borderpad": 0}
        path.legend(handles=map_key, fontsize=9, bbox_transform=self.figure.transFigure, **beneath)
        norms = self.figure.add_axes([0.56, 0.57, 0.43, 0.34])
        norms.set(yscale="log", xticklabels=[], title="gradient norm")
        losses = self.figure.add_axes([0.56, 0.12, 0.43, 0.34])
        losses.set(yscale="log", xlabel="update", title="loss")
        self.axes = (path, norms, losses)
        for axes in (norms, losses):
            axes.set(xlim=(0.7, self.updates + 0.3), xticks=range(1, self.updates + 1))
            axes.minorticks_off()
        # Above the run, which often is the same and would hide it.
        above = {**FULL_BATCH_LINE, "zorder": 3}
        self.full = [axes.plot([], [], clip_on=False, **above)[0] for axes in self.axes]
        self.run = [axes.plot([], [], clip_on=False, **RUN_LINE)[0] for axes in self.axes]
        # From the picture's left edge on, for it is as wide as the map and its numbers.
        self.verdict = path.set_title("", loc="left", x=-0.16, fontsize=10)
        self._draw_key(path)

    def _draw_key(self, axes: Axes) -> None:
        """A legend by hand: what it says of the run changes, and a Legend would stand still."""
        place = {"transform": self.figure.transFigure, "clip_on": False}
        drawn = [
            (
                axes.plot([0.01, 0.0275, 0.045], [y] * 3, **look, **place)[0],
                axes.text(0.055, y, "", va="center", fontsize=9, **place),
            )
            for y, look in ((0.08, FULL_BATCH_LINE), (0.035, RUN_LINE))
        ]
        (full_sample, self.full_name), (self.run_sample, self.run_name) = drawn
        full_sample.set_label("full batch")

    def update(self, full, run, scaling: str, verdict: str) -> None:
        """Show a run beside the full batch's; ``scaling`` chooses its colour.

        Both are records of ``losses`` and ``gradient_norms``, one number for each update, and
        ``weights``, shape (updates + 1, 2), the start first.
        """
        for lines, shown, name, text in (
            (self.full, full, "full batch", self.full_name),
            (self.run, run, SCALING_NAMES[scaling], self.run_name),
        ):
            counted = range(1, len(shown.losses) + 1)
            text.set_text(name + _show_walk(lines[0], shown.weights))
            lines[1].set_data(counted, shown.gradient_norms)
            lines[2].set_data(counted, shown.losses)
            for line in lines:
                line.set_label(name)
        self.run_sample.set_label(SCALING_NAMES[scaling])
        for line in (*self.run, self.run_sample):
            line.set_color(SCALING_COLOURS[scaling])
        self.verdict.set_text(verdict)
        _, norms, losses = self.axes
        norms.set_ylim(_decades([*full.gradient_norms, *run.gradient_norms], 0.05, 2000))
        losses.set_ylim(_decades([*full.losses, *run.losses], 0.9, 2000))

    @property
    def moving(self) -> list[Artist]:
        key = (self.full_name, self.run_name, self.run_sample)
        return [*self.run, *self.full, *key, self.verdict]


def _show_walk(line: Line2D, weights: Sequence[Sequence[float]]) -> str:
    """Show as much of a path as lies on the map; what to say of the updates that do not."""
    low, high = np.transpose([line.axes.get_xlim(), line.axes.get_ylim()])
    shown, given = clipped(np.asarray(weights, float), low, high)
    line.set_data(*shown.T)
    line.set_markevery(given)
    off = len(weights) - len(given)
    return f", {off} of {len(weights) - 1} off the map" if off else ""


def clipped(points: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """A line through ``points`` less what lies outside the box from ``low`` to ``high``.

    Returns:
        The points of what is left, NaN between two pieces; and which of them were given, the
        others being where the line crosses the box's edge.
    """
    inside = ((low <= points) & (points <= high)).all(1)
    kept, given = [], []
    for i, point in enumerate(points):
        if i:
            start, along = points[i - 1], point - points[i - 1]
            along = np.where(along == 0, np.finfo(float).tiny, along)
            with np.errstate(over="ignore"):
                edges = np.sort([(low - start) / along, (high - start) / along], axis=0)
            enter, leave = edges[0].max(), edges[1].min()  # as shares of the way to this point
            if max(enter, 0) < min(leave, 1):
                # A step of 1e12 rounds its crossings to points beside the edge: back onto it.
                first, last = np.clip(start + np.array([[enter], [leave]]) * along, low, high)
                kept += [] if inside[i - 1] else [np.full(2, np.nan), first]
                kept += [] if inside[i] else [last]
        if inside[i]:
            given.append(len(kept))
            kept.append(point)
    return np.array(kept, float).reshape(-1, 2), given


def _decades(values: Sequence[float], low: float, high: float) -> tuple[float, float]:
    """Limits of a logarithmic axis, in wide steps: ticks are drawn anew for each set of limits."""
    if min(values) < low:
        low = 100.0 ** np.floor(np.log(min(values)) / np.log(100))
    if max(values) > high:
        high = 1e6 ** np.ceil(np.log(max(values)) / np.log(1e6))
    return low, high


def loss_contours(axes: Axes, surface) -> list[Artist]:
    """Contours of the loss over (weight, bias), with a cross at the minimum; two for a legend."""
    levels = np.min(surface.losses) + np.array([0.05, 0.3, 1, 2, 4, 7, 11, 16, 22])
    look = {"colors": "#bbbbbb", "linewidths": 0.8}
    contours = axes.contour(surface.weights, surface.biases, surface.losses, levels=levels, **look)
    contours.set_label("equal loss")
    (least,) = axes.plot(
        *surface.minimum, "+", ms=12, mew=2, color="#777777", ls="", label="least loss"
    )
    axes.set(xlabel="weight", ylabel="bias")
    axes.set_xlim(surface.weights[0], surface.weights[-1])
    axes.set_ylim(surface.biases[0], surface.biases[-1])
    return [Line2D([], [], color="#bbbbbb", lw=0.8, label="equal loss"), least]


RUN_LINES = {
    "full batch": {**FULL_BATCH_LINE, "zorder": 3},
    "scaled": {"color": SCALED, "lw": 4, "alpha": 0.6},
    "divided by steps": {"color": SCALED, "lw": 2, "marker": "s", "ms": 3},
    "weighted by tokens": {"color": WEIGHTED, "lw": 4, "alpha": 0.6},
    "divided twice": {"color": SCALED, "lw": 1.6, "ls": "-.", "marker": "v", "ms": 5},
    "unscaled": {"color": UNSCALED, "lw": 2, "marker": "o", "ms": 3},
}
# Of two unscaled runs in one picture the second: darker, dotted, and with crosses.
MORE_STEPS = {"color": "#7A3500", "ls": ":", "marker": "x", "ms": 6, "mew": 1.6}


def _line(run: str) -> dict:
    """The look of a run by its name: "unscaled, k = 4" is a darker "unscaled", with crosses."""
    kind, _, variant = run.partition(",")
    if kind not in RUN_LINES:
        raise ValueError(f"a run's name must begin with one of {list(RUN_LINES)}, got {run!r}")
    return {**RUN_LINES[kind], **(MORE_STEPS if "4" in variant else {})}


def curves(
    title: str,
    charts: Mapping[str, Mapping[str, Sequence[float]]],
    x: Sequence[float],
    x_label: str,
    log: bool = False,
) -> Picture:
    """Charts beside each other, each a set of runs over the same x; the table has the ends.

    Args:
        title: what the picture shows; begins the alt text.
        charts: for each chart's title the runs by name ("full batch", "scaled", "unscaled").
        x: the values along the x axis.
        x_label: what x is.
        log: whether the y axes are logarithmic.
    """
    with matplotlib.rc_context(STYLE):
        figure = new_figure(9, 3.2)
        for axes, (name, runs) in zip(
            figure.subplots(1, len(charts), squeeze=False)[0], charts.items(), strict=True
        ):
            for run, values in runs.items():
                axes.plot(x, values, label=run, **_line(run))
            axes.set(title=name, xlabel=x_label, yscale="log" if log else "linear")
            axes.legend(fontsize=9)
        figure.tight_layout()
    rows = [
        (f"{name}, {run}", number(values[0], 3), number(values[-1], 3))
        for name, runs in charts.items()
        for run, values in runs.items()
    ]
    table = Table((x_label, number(x[0]), number(x[-1])), tuple(rows))
    return Picture(
        figure, f"{title}. {'; '.join(f'{r[0]}: {r[1]} to {r[2]}' for r in rows)}", table
    )


def paths(title: str, surface, runs: Mapping[str, Sequence[Sequence[float]]]) -> Picture:
    """Where each run's weights went over the loss surface; the table has start and end.

    Args:
        title: what the picture shows; begins the alt text.
        surface: as for :class:`TrainingPicture`.
        runs: (weight, bias) after each update, the start first, by name of the run.
    """
    with matplotlib.rc_context(STYLE):
        figure = new_figure(7, 4.6)
        axes = figure.add_axes([0.1, 0.12, 0.86, 0.84])
        map_key = loss_contours(axes, surface)
        lines = [axes.plot([], [], **_line(run))[0] for run in runs]
        for line, (run, weights) in zip(lines, runs.items(), strict=True):
            line.set_label(run + _show_walk(line, weights))
        ground = {"frameon": True, "framealpha": 1, "edgecolor": "none"}  # over the contours
        axes.legend(handles=[*lines, *map_key], fontsize=9, loc="lower left", **ground)
    rows = [(run, _point(weights[0]), _point(weights[-1])) for run, weights in runs.items()]
    table = Table(("weight and bias", "start", "end"), tuple(rows))
    return Picture(figure, f"{title}. {'; '.join(f'{r[0]} ends at {r[2]}' for r in rows)}", table)


def _point(weights: Sequence[float]) -> str:
    return f"({number(weights[0], 3)}, {number(weights[1], 3)})"
