"""What a reader must be able to see in any picture, read back from its artists."""

import itertools
from collections.abc import Iterator

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from helpers.figures.drawing import STYLE
from helpers.figures.pictures import MovingPicture

PIXEL = 1.0  # at 100 dots an inch; what touches by less is not seen to


def assert_readable(picture: MovingPicture) -> None:
    """Assert that nothing is cut off, no text lies on another, and all that means has a name."""
    assert complaints(picture) == []


def complaints(picture: MovingPicture) -> list[str]:
    """What keeps a reader from reading the picture as it is now."""
    with matplotlib.rc_context(STYLE):
        extents = text_extents(picture)
    return [
        *cut_off(picture, extents),
        *overlapping(extents),
        *misplaced_axes(picture),
        *outside_their_axes(picture),
        *without_a_name(picture, [text for text, _ in extents]),
    ]


def text_extents(picture: MovingPicture) -> list[tuple[str, Bbox]]:
    """Every text that is drawn, and where, in pixels from the lower left."""
    before = picture.figure.canvas
    canvas = FigureCanvasAgg(picture.figure)
    renderer = canvas.get_renderer()
    canvas.draw()
    picture.figure.set_canvas(before)
    texts = [*picture.figure.texts, *itertools.chain(*map(texts_of, picture.figure.axes))]
    return [
        (text.get_text(), text.get_window_extent(renderer))
        for text in texts
        if text.get_text().strip() and text.get_visible()
    ]


def texts_of(axes: Axes) -> Iterator[Text]:
    """Texts, titles, legend, labels and the tick labels within the limits."""
    yield from axes.texts
    yield from (axes.title, axes._left_title, axes._right_title)
    if axes.get_legend() is not None:
        yield from axes.get_legend().get_texts()
    if axes.axison:
        yield from (axes.xaxis.label, axes.yaxis.label)
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if min(limits) <= tick.get_loc() <= max(limits):
                    yield from (tick.label1, tick.label2)


def cut_off(picture: MovingPicture, extents: list[tuple[str, Bbox]]) -> Iterator[str]:
    page = picture.figure.bbox.padded(PIXEL)
    for text, box in extents:
        if not (page.contains(box.x0, box.y0) and page.contains(box.x1, box.y1)):
            yield f"{text!r} is cut off by the picture's edge"


def overlapping(extents: list[tuple[str, Bbox]]) -> Iterator[str]:
    for (one, box), (other, second) in itertools.combinations(extents, 2):
        shared = Bbox.intersection(box, second)
        if shared is not None and min(shared.width, shared.height) > PIXEL:
            yield f"{one!r} lies on {other!r}"


def misplaced_axes(picture: MovingPicture) -> Iterator[str]:
    """Charts that reach beyond the page or over each other."""
    page = picture.figure.bbox.padded(PIXEL)
    charts = picture.figure.axes
    for i, chart in enumerate(charts):
        (x0, y0), (x1, y1) = chart.bbox.get_points()
        if not (page.contains(x0, y0) and page.contains(x1, y1)):
            yield f"chart {i + 1} reaches beyond the page"
        if chart.bbox.width < 20 or chart.bbox.height < 20:
            yield f"chart {i + 1} is too small to be seen"
    for (i, one), (j, other) in itertools.combinations(enumerate(charts, start=1), 2):
        shared = Bbox.intersection(one.bbox, other.bbox)
        if shared is not None and min(shared.width, shared.height) > PIXEL:
            yield f"chart {i} lies on chart {j}"


def outside_their_axes(picture: MovingPicture) -> Iterator[str]:
    for artist in picture.moving:
        points = data_points(artist)
        if len(points) and artist.axes is not None:
            limits = np.sort([artist.axes.get_xlim(), artist.axes.get_ylim()])
            slack = 1e-6 * (limits[:, 1] - limits[:, 0])
            if (points < limits[:, 0] - slack).any() or (points > limits[:, 1] + slack).any():
                yield f"{name(artist)} reaches beyond its axes: {points.min(0)} to {points.max(0)}"


def data_points(artist: Artist) -> np.ndarray:
    """The points of a line or collection drawn in data coordinates, shape (n, 2)."""
    axes: Axes | None = artist.axes
    if isinstance(artist, Line2D) and artist.get_transform() == axes.transData:
        points = np.column_stack(artist.get_data()).astype(float)
    elif isinstance(artist, Collection):
        paths = [path.vertices for path in artist.get_paths() if len(path.vertices)]
        points = np.vstack(paths) if paths else np.empty((0, 2))
    else:
        points = np.empty((0, 2))
    return points[np.isfinite(points).all(1)]


def without_a_name(picture: MovingPicture, texts: list[str]) -> Iterator[str]:
    """Every moving shape must have a label, and the label must stand in the picture."""
    for artist in picture.moving:
        if isinstance(artist, Text):
            continue
        label = str(artist.get_label())
        if label.startswith("_") or not label:
            yield f"{name(artist)} has no label"
        elif not any(label in text for text in texts):
            yield f"{label!r} is nowhere written in the picture"


def name(artist: Artist) -> str:
    return f"{type(artist).__name__} {artist.get_label()!r}"
