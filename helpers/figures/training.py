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
    STYLE,
    UNSCALED,
    WEIGHTED,
    new_figure,
    number,
)
from helpers.figures.pictures import MovingPicture, Picture, Table


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
        path = self.figure.add_axes([0.07, 0.12, 0.39, 0.79])
        loss_contours(path, self.surface)
        norms = self.figure.add_axes([0.56, 0.57, 0.43, 0.34])
        norms.set(yscale="log", ylim=(0.05, 2000), xticklabels=[], title="gradient norm")
        losses = self.figure.add_axes([0.56, 0.12, 0.43, 0.34])
        losses.set(yscale="log", ylim=(0.9, 2000), xlabel="update", title="loss")
        self.axes = (path, norms, losses)
        for axes in (norms, losses):
            axes.set(xlim=(0.7, self.updates + 0.3), xticks=range(1, self.updates + 1))
            axes.minorticks_off()
        self.full = [axes.plot([], [], **FULL_BATCH_LINE)[0] for axes in self.axes]
        self.run = [axes.plot([], [], "o-", lw=2, ms=4)[0] for axes in self.axes]
        handles = [Line2D([], [], **FULL_BATCH_LINE, label="full batch")]
        path.legend(handles=handles, loc="lower left", fontsize=9)
        self.verdict = path.set_title("")

    def update(self, full, run, scaling: str, verdict: str) -> None:
        """Show a run beside the full batch's; ``scaling`` chooses its colour.

        Both are records of ``losses`` and ``gradient_norms``, one number for each update, and
        ``weights``, shape (updates + 1, 2), the start first.
        """
        for lines, shown in ((self.full, full), (self.run, run)):
            counted = range(1, len(shown.losses) + 1)
            lines[0].set_data(*np.asarray(shown.weights).T)
            lines[1].set_data(counted, shown.gradient_norms)
            lines[2].set_data(counted, shown.losses)
        for line in self.run:
            line.set_color(SCALING_COLOURS[scaling])
        self.verdict.set_text(verdict)

    @property
    def moving(self) -> list[Artist]:
        return [*self.run, *self.full, self.verdict]


def loss_contours(axes: Axes, surface) -> None:
    """Contours of the loss over (weight, bias), with a cross at the minimum."""
    levels = np.min(surface.losses) + np.array([0.05, 0.3, 1, 2, 4, 7, 11, 16, 22])
    axes.contour(
        surface.weights,
        surface.biases,
        surface.losses,
        levels=levels,
        colors="#bbbbbb",
        linewidths=0.8,
    )
    axes.plot(*surface.minimum, "+", ms=12, mew=2, color="#777777")
    axes.set(xlabel="weight", ylabel="bias")
    axes.set_xlim(surface.weights[0], surface.weights[-1])
    axes.set_ylim(surface.biases[0], surface.biases[-1])


RUN_LINES = {
    "full batch": {**FULL_BATCH_LINE, "zorder": 3},
    "scaled": {"color": SCALED, "lw": 4, "alpha": 0.6},
    "divided by steps": {"color": SCALED, "lw": 2, "marker": "s", "ms": 3},
    "weighted by tokens": {"color": WEIGHTED, "lw": 4, "alpha": 0.6},
    "unscaled": {"color": UNSCALED, "lw": 2, "marker": "o", "ms": 3},
}


def _line(run: str) -> dict:
    """The look of a run by its name: "unscaled, k = 4" is "unscaled", but dotted."""
    kind, _, variant = run.partition(",")
    return {**RUN_LINES[kind], **({"ls": ":"} if "4" in variant else {})}


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
        loss_contours(axes, surface)
        for run, weights in runs.items():
            axes.plot(*np.asarray(weights).T, label=run, **_line(run))
        axes.legend(fontsize=9, loc="lower left")
    rows = [(run, _point(weights[0]), _point(weights[-1])) for run, weights in runs.items()]
    table = Table(("weight and bias", "start", "end"), tuple(rows))
    return Picture(figure, f"{title}. {'; '.join(f'{r[0]} ends at {r[2]}' for r in rows)}", table)


def _point(weights: Sequence[float]) -> str:
    return f"({number(weights[0], 3)}, {number(weights[1], 3)})"
