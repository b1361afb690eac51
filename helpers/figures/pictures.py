"""What a lesson shows: a figure with its numbers as a table, still, or moved by a panel."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from helpers.figures.drawing import STYLE, new_figure, png


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
        right = "style='text-align:right;padding-left:min(18px,1.3vw)'"
        first, *others = map(html.escape, self.heading)
        head = f"<th style='text-align:left'>{first}</th>"
        head += "".join(f"<th {right}>{cell}</th>" for cell in others)
        body = ""
        for i, row in enumerate(self.rows):
            bar = f"border-left:6px solid {colours[i]};padding-left:6px" if i < len(colours) else ""
            first, *others = map(html.escape, row)
            cells = f"<td style='text-align:left;{bar}'>{first}</td>"
            cells += "".join(f"<td {right}>{cell}</td>" for cell in others)
            body += f"<tr>{cells}</tr>"
        closing = html.escape(self.closing)
        if closing:  # read aloud when it is new
            closing = f"<div aria-live='polite' style='padding:4px 0'><b>{closing}</b></div>"
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        # No width of its own, else a wide table would make the picture above it as wide.
        return f"{closing}<div style='width:0;min-width:100%;overflow-x:auto'>{table}</div>"


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


class MovingPicture:
    """A figure that is drawn once and whose artists are moved after that, never rebuilt.

    A subclass says in :meth:`draw` what there is, in a method ``update`` how it follows numbers,
    and in :attr:`moving` which artists that moves.

    Args:
        figure: an empty figure of ``size`` inches; a new one unless given.
    """

    size: tuple[float, float]

    def __init__(self, figure: Figure | None = None):
        with matplotlib.rc_context(STYLE):
            self.figure = figure or new_figure(*self.size)
            self.draw()

    def draw(self) -> None:
        """Put all axes and artists on the figure."""
        raise NotImplementedError

    @property
    def moving(self) -> list[Artist]:
        """The artists that an update changes."""
        raise NotImplementedError
