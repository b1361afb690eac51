"""A figure as SVG again and again: what stands still is drawn once, what moves each time."""

import functools
import html
import io
import re
from collections.abc import Sequence

import matplotlib
from matplotlib.artist import Artist
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from helpers.figures.drawing import STYLE

_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))

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

    def parts(self) -> tuple[str, str]:
        """The still part, on an opaque ground, and the moving part: contents of an ``<svg>``."""
        limits = tuple(axes.viewLim.extents.tobytes() for axes in self.figure.axes)
        with matplotlib.rc_context(STYLE):
            if limits not in self._still:
                self._still[limits] = self._draw_still()
            return self._still[limits], self._draw_moving()

    def element(self, content: str, alt: str = "") -> str:
        """``content`` in an ``<svg>`` as wide as its place, at most the figure's size.

        Screen readers skip it without alt.
        """
        width, height = (f"{72 * inches:g}" for inches in self.figure.get_size_inches())
        label = f'role="img" aria-label="{html.escape(alt)}"' if alt else 'aria-hidden="true"'
        return (
            f'<svg {label} viewBox="0 0 {width} {height}"'
            f' style="display:block;width:100%;max-width:{width}pt;{_LINE_STYLE}" xmlns="http://www.w3.org/2000/svg"'
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
