"""What all figures share: palette, style, arrows, numbers as text, and a figure as PNG."""

import io
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from PIL import Image

# Okabe and Ito, Color Universal Design (2008). Each colour means one thing in every lesson.
FULL_BATCH, SCALED, UNSCALED, WEIGHTED = "#000000", "#0072B2", "#D55E00", "#009E73"
SCALING_COLOURS = {"none": UNSCALED, "steps": SCALED, "samples": WEIGHTED}
SCALING_NAMES = {"none": "unscaled", "steps": "divided by steps", "samples": "weighted by samples"}
RULE_COLOURS = {
    "divided by steps": SCALED,
    "weighted by samples": WEIGHTED,
    "weighted by tokens": WEIGHTED,
}
# Micro-batch i: four colours, solid then dashed, so that all eight differ in colour or in dash.
MICRO_BATCH_COLOURS = ("#E69F00", "#56B4E9", "#CC79A7", "#999999") * 2
MICRO_BATCH_DASHES = ("solid",) * 4 + ((0, (3, 1.2)),) * 4

SUBSCRIPTS = "₀₁₂₃₄₅₆₇₈"

FULL_BATCH_LINE = {"color": FULL_BATCH, "lw": 1.6, "ls": (0, (4, 2))}
# A line as of ruled paper, which no legend names.
RULING = {"color": "#cccccc", "lw": 1, "zorder": 0, "label": "_ruling"}
# Under a text, so that what is drawn beneath does not cross it out.
TEXT_GROUND = {"facecolor": "#ffffff", "edgecolor": "none", "pad": 0.5}

STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: sharp, searchable, and a third of the time
    "svg.hashsalt": "gradient accumulation",  # the same numbers give the same picture, to the byte
    "path.simplify": False,
}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of that many inches that no global list of figures knows about."""
    figure = Figure(figsize=(width, height), dpi=100)
    FigureCanvasSVG(figure)
    return figure


def epoch_ends(axes: Axes) -> LineCollection:
    """Dashed lines, none yet, where epochs end; whole at the chart's edge, too."""
    dashes = {"linestyles": [(0, (6, 3))], "linewidths": 1.4, "clip_on": False}
    lines = LineCollection([], colors="#777777", label="end of an epoch", **dashes)
    axes.add_collection(lines)
    return lines


def png(figure: Figure) -> bytes:
    """The figure as PNG, in 64 colours: line drawings need no more, and notebooks stay small."""
    drawn, small = io.BytesIO(), io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(drawn, format="png", dpi=110)
    Image.open(drawn).convert("RGB").quantize(64).save(small, format="PNG", optimize=True)
    return small.getvalue()


class Arrows:
    """Any number of arrows on one axes, drawn as two collections: shafts and heads.

    Args:
        axes: where to draw, with equal aspect.
        width: of the shafts, in points.
    """

    def __init__(self, axes: Axes, width: float, zorder: float = 2):
        self.axes, self.width = axes, width
        self.shafts = axes.add_collection(LineCollection([], linewidths=width, zorder=zorder))
        self.heads = axes.add_collection(PolyCollection([], linewidths=0, zorder=zorder))

    def set(
        self,
        starts: np.ndarray,
        ends: np.ndarray,
        colours: Sequence[str],
        dashes: Sequence = ("solid",),
    ) -> None:
        """Show arrows from ``starts`` to ``ends``, both (n, 2), in data coordinates.

        An arrow whose end lies outside the axes is cut off at their edge by matplotlib.
        """
        starts, ends = np.asarray(starts, float), np.asarray(ends, float)
        along = ends - starts
        length = np.linalg.norm(along, axis=1, keepdims=True)
        direction = along / np.where(length == 0, 1, length)
        points = self.axes.viewLim.width / (72 * self.axes.bbox.width / self.axes.figure.dpi)
        head = np.minimum(length, (3 + 3 * self.width) * points)
        neck, across = ends - direction * head, direction[:, ::-1] * (-0.4, 0.4) * head
        self.shafts.set_segments(np.stack([starts, neck], axis=1))
        self.heads.set_verts(np.stack([ends, neck + across, neck - across], axis=1))
        self.shafts.set(colors=colours, linestyles=dashes)
        self.heads.set(facecolors=colours)

    @property
    def artists(self) -> list[Artist]:
        return [self.shafts, self.heads]


def pale(colour: str) -> str:
    """The colour mixed with three parts of white, opaque, so that overlaps don't show."""
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{255 - (255 - part) // 4:02x}" for part in parts)


def number(value: float, digits: int = 4) -> str:
    """A number as the lessons print it: 4 significant digits, no trailing zeros, a real minus."""
    return f"{value:.{digits}g}".replace("-", "−") if value else "0"


def vector(values: Sequence[float], digits: int = 4) -> str:
    """A short vector as the lessons print it: (1, −3.5)."""
    return "(" + ", ".join(number(float(v), digits) for v in values) + ")"
