"""What a reader must be able to see in any picture, read back from its artists."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.collections import Collection, LineCollection
from matplotlib.colors import to_hex
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.path import Path
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
    with drawn(picture) as renderer:
        extents = extents_of(shown_texts(picture), renderer)
        return [
            *cut_off(picture, extents),
            *overlapping(extents),
            *crossed_out(picture, renderer),
            *misplaced_axes(picture),
            *outside_their_axes(picture),
            *half_hidden(picture),
            *without_a_name(picture, [text for text, _ in extents]),
        ]


@contextmanager
def drawn(picture: MovingPicture) -> Iterator[RendererAgg]:
    """The picture drawn in pixels, as many an inch as the figure has; its canvas comes back."""
    before = picture.figure.canvas
    with matplotlib.rc_context(STYLE):
        canvas = FigureCanvasAgg(picture.figure)
        canvas.draw()
        yield canvas.get_renderer()
    picture.figure.set_canvas(before)


def text_extents(picture: MovingPicture) -> list[tuple[str, Bbox]]:
    """Every text that is drawn, and where, in pixels from the lower left."""
    with drawn(picture) as renderer:
        return extents_of(shown_texts(picture), renderer)


def extents_of(texts: list[Text], renderer: RendererAgg) -> list[tuple[str, Bbox]]:
    return [(text.get_text(), text.get_window_extent(renderer)) for text in texts]


def shown_texts(picture: MovingPicture) -> list[Text]:
    texts = [*picture.figure.texts, *itertools.chain(*map(texts_of, picture.figure.axes))]
    return [text for text in texts if text.get_text().strip() and text.get_visible()]


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


def crossed_out(picture: MovingPicture, renderer: RendererAgg) -> Iterator[str]:
    """Texts and legends that a line, an arrow or an outline runs over.

    A text with a ground of its own lies above what it is on.
    """
    bare = [text for text in shown_texts(picture) if text.get_bbox_patch() is None]
    boxes = [(repr(text), box.padded(-PIXEL)) for text, box in extents_of(bare, renderer)]
    legends = [chart.get_legend() for chart in picture.figure.axes]
    boxes += [("the legend", legend.get_window_extent(renderer)) for legend in legends if legend]
    for artist in shapes(picture):
        if is_highlight(artist):
            continue
        strokes = [path for path in strokes_of(artist) if len(path.vertices)]
        for text, box in boxes:
            if any(stroke.intersects_bbox(box, filled=False) for stroke in strokes):
                yield f"{name(artist)} runs over {text}"


def is_highlight(artist: Artist) -> bool:
    """Whether it is a fill without an outline that all else lies on."""
    if not isinstance(artist, Collection) or artist.get_zorder() != 0:
        return False
    return not any(artist.get_linewidths())


def shapes(picture: MovingPicture) -> list[Artist]:
    """All lines and areas that stand or move in the picture."""
    charts = picture.figure.axes
    held = [artist for c in charts for artist in (*c.lines, *c.collections, *c.patches)]
    return [artist for artist in held if artist.get_visible()]


def strokes_of(artist: Artist) -> Iterator[Path]:
    """The outlines of a line or collection, in pixels."""
    if isinstance(artist, Line2D):
        yield artist.get_transform().transform_path(artist.get_path())
    elif isinstance(artist, Collection):
        yield from map(artist.get_transform().transform_path, artist.get_paths())


def half_hidden(picture: MovingPicture) -> Iterator[str]:
    """Markers, and lines along an edge, that their chart cuts in two."""
    for artist in shapes(picture):
        if not artist.get_clip_on() or artist.axes is None or is_ruling(artist):
            continue
        (x0, y0), (x1, y1) = artist.axes.bbox.get_points()
        low, high = np.array([(x0, y0), (x1, y1)]) + np.outer((1, -1), (PIXEL, PIXEL))
        if isinstance(artist, Line2D) and artist.get_marker() not in ("None", "", None):
            shown = Path(data_points(artist)[marked(artist)])
            centres = artist.get_transform().transform_path(shown).vertices
            if ((centres < low) | (centres > high)).any():
                yield f"{name(artist)} has a marker cut by its chart's edge"
        elif isinstance(artist, Line2D | LineCollection):
            for line in strokes_of(artist):
                points = line.vertices
                if len(points) and ((points < low).all(0) | (points > high).all(0)).any():
                    yield f"{name(artist)} is a line cut by its chart's edge"


def marked(line: Line2D):
    """Which points of a line have a marker."""
    return slice(None) if line.get_markevery() is None else line.get_markevery()


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
    """Every shape must have a label, moving or still, and the label must stand in the picture."""
    moving = [artist for artist in picture.moving if not isinstance(artist, Text)]
    still = [artist for artist in shapes(picture) if not is_ruling(artist)]
    bars = [kind for c in picture.figure.axes for kind in c.containers]
    of_bars = {bar: kind.get_label() for kind in bars for bar in kind}
    for artist in dict.fromkeys([*moving, *still]):
        label = str(of_bars.get(artist, artist.get_label()))
        if label.startswith("_") or not label:
            yield f"{name(artist)} has no label"
        elif not any(label in text for text in texts):
            yield f"{label!r} is nowhere written in the picture"


def is_ruling(artist: Artist) -> bool:
    """Whether it is a thin straight line that says so, as in a ruled sheet: it means no number."""
    if artist.get_label() != "_ruling":
        return False
    along = np.ptp(np.column_stack(artist.get_data()), axis=0)
    return artist.get_linewidth() <= 1 and np.count_nonzero(along) == 1


def name(artist: Artist) -> str:
    return f"{type(artist).__name__} {artist.get_label()!r}"


def legend_looks(legend: Legend) -> dict[str, tuple[str, str, str]]:
    """What a legend says of each line in it: its marker, its stroke and its colour."""
    return {
        text.get_text(): (line.get_marker(), line.get_linestyle(), to_hex(line.get_color()))
        for text, line in zip(legend.get_texts(), legend.legend_handles, strict=True)
        if isinstance(line, Line2D)
    }
