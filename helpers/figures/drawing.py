"""What all figures share: palette, tables, and how a figure becomes PNG or SVG."""

import functools
import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG, RendererSVG
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
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
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))

FULL_BATCH_LINE = {"color": FULL_BATCH, "lw": 1.6, "ls": (0, (4, 2))}

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


@dataclass(frozen=True)
class Table:
    """A few numbers with a heading each; what nbval compares and a screen reader reads."""

    heading: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    closing: str = ""

    def text(self) -> str:
        """The table in aligned plain text, the first column to the left."""
        lines = (self.heading, *self.rows)
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        cells = [
            [line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in lines
        ]
        return "\n".join([*("  ".join(line).rstrip() for line in cells), self.closing]).rstrip()

    def html(self, colours: Sequence[str] = ()) -> str:
        """The table in HTML; row i is marked with a bar in ``colours[i]``."""
        right = "style='text-align:right;padding-left:18px'"
        head = f"<th style='text-align:left'>{self.heading[0]}</th>"
        head += "".join(f"<th {right}>{cell}</th>" for cell in self.heading[1:])
        body = ""
        for i, row in enumerate(self.rows):
            bar = f"border-left:6px solid {colours[i]};padding-left:6px" if i < len(colours) else ""
            first = f"<td style='text-align:left;{bar}'>{row[0]}</td>"
            rest = "".join(f"<td {right}>{cell}</td>" for cell in row[1:])
            body += f"<tr>{first}{rest}</tr>"
        closing = f"<div style='padding:4px 0'><b>{self.closing}</b></div>" if self.closing else ""
        return f"{closing}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Picture:
    """A figure as an image with alt text, and its numbers as a table printed beneath.

    Args:
        figure: what to draw.
        alt: what the image shows, for a reader who cannot see it.
        table: the numbers drawn.
    """

    def __init__(self, figure: Figure, alt: str, table: Table):
        self.figure, self.alt, self.table = figure, alt, table

    def _ipython_display_(self) -> None:
        from IPython.display import display

        data = {"image/png": png(self.figure), "text/plain": f"[{self.alt}]"}
        display(data, metadata={"image/png": {"alt": self.alt}}, raw=True)
        print(self.table.text())


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of that many inches that no global list of figures knows about."""
    figure = Figure(figsize=(width, height), dpi=100)
    FigureCanvasSVG(figure)
    return figure


def png(figure: Figure) -> bytes:
    """The figure as PNG, in 64 colours: line drawings need no more, and notebooks stay small."""
    drawn, small = io.BytesIO(), io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(drawn, format="png", dpi=110)
    Image.open(drawn).convert("RGB").quantize(64).save(small, format="PNG", optimize=True)
    return small.getvalue()


# matplotlib gives each SVG a style sheet, <style>*{...}</style>. Inside HTML that is a rule for the
# whole page: it bends other drawings' lines, and every new picture has all of JupyterLab restyled.
_STYLE_SHEET = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)
_LINE_STYLE = "stroke-linejoin:round;stroke-linecap:butt"


class _Renderer(RendererSVG):
    """Remembers the size of every text; matplotlib measures it anew for every picture."""

    def get_text_width_height_descent(self, s, prop, ismath):
        return _text_size(s, prop.copy(), ismath)


@functools.lru_cache(maxsize=1000)
def _text_size(text: str, font: FontProperties, is_math: bool) -> tuple[float, float, float]:
    return text_to_path.get_text_width_height_descent(text, font, is_math)


class SvgDrawing:
    """A figure as SVG again and again, in two parts: what stands still, and what moves over it.

    Ticks and frames take most of the time, so they are drawn once for each set of axis limits.

    Args:
        figure: the figure; it is kept.
        moving: the artists that change between two pictures of the same limits.
    """

    def __init__(self, figure: Figure, moving: Sequence[Artist]):
        self.figure, self.moving = figure, list(moving)
        self._still: dict[tuple, str] = {}
        for artist in self.moving:
            artist.set_animated(True)  # left out of the still part, as in matplotlib's blitting

    def svg(self, alt: str) -> str:
        """The picture as it is now: one ``<svg>`` element with ``alt`` as its label."""
        return self.element("".join(self.parts()), alt)

    def parts(self) -> tuple[str, str]:
        """The still part, on an opaque ground, and the moving part: contents of an ``<svg>``."""
        limits = tuple(axes.viewLim.extents.tobytes() for axes in self.figure.axes)
        with matplotlib.rc_context(STYLE):
            if limits not in self._still:
                self._still[limits] = self._draw_still()
            return self._still[limits], self._draw_moving()

    def element(self, content: str, alt: str = "") -> str:
        """``content`` in an ``<svg>`` of the figure's size; screen readers skip it without alt."""
        width, height = (f"{72 * inches:g}" for inches in self.figure.get_size_inches())
        label = f'role="img" aria-label="{html.escape(alt)}"' if alt else 'aria-hidden="true"'
        return (
            f'<svg {label} width="{width}pt" height="{height}pt" viewBox="0 0 {width} {height}"'
            f' style="{_LINE_STYLE}" xmlns="http://www.w3.org/2000/svg"'
            f' xmlns:xlink="http://www.w3.org/1999/xlink">{content}</svg>'
        )

    def _draw_still(self) -> str:
        buffer = io.StringIO()
        self.figure.canvas.print_svg(buffer, metadata=_NO_METADATA)
        return _content(buffer)

    def _draw_moving(self) -> str:
        figure, buffer = self.figure, io.StringIO()
        dpi, figure.dpi = figure.dpi, 72  # SVG counts in points
        renderer = _Renderer(*figure.bbox.size, buffer, metadata=_NO_METADATA)
        for artist in self.moving:
            artist.draw(renderer)
        renderer.finalize()
        figure.dpi = dpi
        return _content(buffer)


def _content(document: io.StringIO) -> str:
    """What a matplotlib SVG document has between ``<svg>`` and ``</svg>``, less its style sheet."""
    drawn = document.getvalue()
    content = drawn[drawn.index(">", drawn.index("<svg ")) + 1 : drawn.rindex("</svg>")]
    return _STYLE_SHEET.sub("", content)


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
