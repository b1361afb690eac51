import io
import re
import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from helpers.figures import (
    CuttingPicture,
    Picture,
    SvgDrawing,
    Table,
    contents,
    curves,
    number,
    paths,
    png,
    vector,
)
from helpers.figures.drawing import pale
from helpers.subjects.training import loss_surface
from tests.subjects.pictures import cut_off, misplaced_axes, overlapping, text_extents

GRADIENTS = [(4, -2), (6, 2), (6, -6), (-4, -2), (-16, -4), (-4, -4), (16, -8), (0, -4)]
LOSSES = [1, 1, 9, 1, 4, 4, 16, 4]


def cutting_picture(contributions=((1.5, -1), (-0.5, -2.5))):
    picture = CuttingPicture(LOSSES, GRADIENTS)
    picture.update(
        (4, 4), ["3 ÷ 2 = 1.5", "7 ÷ 2 = 3.5"], contributions, (1, -3.5), "steps", "equal"
    )
    return picture


def svg_of(picture, alt):
    drawing = SvgDrawing(picture.figure, picture.moving)
    return drawing.element("".join(drawing.parts()), alt)


def svg_text(svg):
    return " ".join(ElementTree.fromstring(svg).itertext())


def words(svg):
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return sorted("".join(text.itertext()) for text in texts)


def test_numbers_have_four_digits_and_a_real_minus():
    assert [number(v) for v in (0, -0.0, 1, -3.5, 2 / 3, 12345.6, 1e-9)] == [
        *("0", "0", "1", "−3.5", "0.6667", "1.235e+04", "1e−09"),
    ]
    assert vector([1.0, -3.5]) == "(1, −3.5)"


def test_a_table_aligns_numbers_to_the_right():
    table = Table(("run", "loss"), (("full", "5"), ("scaled", "12.5")), "equal")
    assert table.text() == "run     loss\nfull       5\nscaled  12.5\nequal"


def test_a_table_in_html_marks_each_row_with_its_colour():
    page = Table(("run", "loss"), (("full", "5"), ("scaled", "12.5")), "equal").html(["#111111"])
    assert page.count("<tr>") == 3
    assert page.count("#111111") == 1
    assert "<b>equal</b>" in page


def test_arrows_point_to_the_numbers_they_were_given():
    picture = cutting_picture()
    first_tip, second_tip = (path.vertices[0] for path in picture.micro_arrows.heads.get_paths())
    assert first_tip.tolist() == [1.5, -1]
    assert second_tip.tolist() == [1, -3.5]
    assert picture.micro_arrows.shafts.get_segments()[1][0].tolist() == [1.5, -1]
    assert picture.full_arrow.heads.get_paths()[0].vertices[0].tolist() == [1, -3.5]
    assert [*picture.tip.get_xdata(), *picture.tip.get_ydata()] == [1, -3.5]


def test_an_arrow_of_no_length_is_drawn_without_dividing_by_zero():
    with np.errstate(all="raise"):
        picture = cutting_picture([(0, 0), (1, -3.5)])
    assert np.isfinite(picture.micro_arrows.heads.get_paths()[0].vertices).all()


@pytest.mark.parametrize("reach", [(1, -3.5), (2, -7), (8, -28), (-20, -8)])
def test_the_sum_is_always_in_view(reach):
    picture = cutting_picture([reach, (0, 0)])
    (left, right), (bottom, top) = picture.sum_axes.get_xlim(), picture.sum_axes.get_ylim()
    assert left < reach[0] < right
    assert bottom < reach[1] < top


def test_svg_keeps_text_as_text_and_names_itself():
    picture = cutting_picture()
    svg = svg_of(picture, "eight <samples> & 'tiles'")
    assert "L₇ = 16" in svg_text(svg)
    assert "3 ÷ 2 = 1.5" in svg_text(svg)
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == "eight <samples> & 'tiles'"
    assert root.get("role") == "img"


def test_drawing_in_two_parts_shows_what_drawing_at_once_shows():
    picture, whole = cutting_picture(), io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        picture.figure.savefig(whole, format="svg", metadata={"Date": None, "Creator": None})
    parts = svg_of(picture, "picture")
    assert words(parts) == words(whole.getvalue())
    assert parts.count("<use ") == whole.getvalue().count("<use ")


def test_a_drawing_has_no_style_sheet_that_would_hold_for_the_whole_page():
    picture = cutting_picture()
    assert "<style" not in svg_of(picture, "picture")


def test_drawing_leaves_matplotlib_as_it_was():
    settings = dict(matplotlib.rcParams)
    picture = cutting_picture()
    svg_of(picture, "picture")
    png(picture.figure)
    assert dict(matplotlib.rcParams) == settings


def test_png_is_an_image_of_the_whole_figure():
    assert Image.open(io.BytesIO(png(cutting_picture().figure))).size == (990, 473)


RUNS = {"full batch": [3, 2, 1], "scaled": [3, 2, 1.5], "unscaled": [12, 40, 0.5]}
LOOKS = {  # colour, dash, marker
    "full batch": ("#000000", "--", "None"),
    "scaled": ("#0072b2", "-", "None"),
    "divided by steps": ("#0072b2", "-", "s"),
    "weighted by tokens": ("#009e73", "-", "None"),
    "unscaled": ("#d55e00", "-", "o"),
    "unscaled, k = 2": ("#d55e00", "-", "o"),
    "unscaled, k = 4": ("#7a3500", ":", "x"),
    "divided twice": ("#0072b2", "-.", "v"),
}


def assert_still_picture_is_readable(picture):
    extents = text_extents(picture)
    assert [*cut_off(picture, extents), *overlapping(extents), *misplaced_axes(picture)] == []
    for axes in picture.figure.axes:
        limits = np.transpose([axes.get_xlim(), axes.get_ylim()])
        for line in axes.lines:
            points = np.transpose(line.get_data())
            points = points[np.isfinite(points).all(1)]
            assert (limits[0] <= points).all()
            assert (points <= limits[1]).all()


def looks(axes):
    return {
        line.get_label(): (to_hex(line.get_color()), line.get_linestyle(), line.get_marker())
        for line in axes.lines
    }


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("x", [[1, 2, 3], [0, 0.25, 1], range(5, 8)])
def test_curves_draw_each_run_over_the_x_given_with_a_name(x, log):
    charts = {"gradient norm": RUNS, "loss": dict(reversed(RUNS.items()))}
    picture = curves("Test", charts, x, "update", log=log)
    assert [axes.get_title() for axes in picture.figure.axes] == ["gradient norm", "loss"]
    for axes, runs in zip(picture.figure.axes, charts.values(), strict=True):
        assert [line.get_label() for line in axes.lines] == list(runs)
        assert [text.get_text() for text in axes.get_legend().get_texts()] == list(runs)
        for line, values in zip(axes.lines, runs.values(), strict=True):
            assert list(line.get_xdata()) == list(x)
            assert list(line.get_ydata()) == values
        assert axes.get_xlabel() == "update"
        assert axes.get_yscale() == ("log" if log else "linear")
        assert looks(axes) == {run: LOOKS[run] for run in runs}
    assert_still_picture_is_readable(picture)


def test_the_table_of_curves_has_their_ends():
    charts = {"loss": {"full batch": [5, 3, 2], "unscaled": [5, 3, 1 / 3]}}
    picture = curves("Test", charts, [1, 2, 4], "update")
    assert picture.table.text() == (
        "update            1      4\nloss, full batch  5      2\nloss, unscaled    5  0.333"
    )
    assert picture.alt == "Test. loss, full batch: 5 to 2; loss, unscaled: 5 to 0.333"


def test_every_kind_of_run_has_one_look_in_curves_and_in_paths():
    charts = {"loss": {run: [2, 1] for run in LOOKS}}
    assert looks(curves("Test", charts, [1, 2], "update").figure.axes[0]) == LOOKS
    walks = {run: [(1, 0), (0.9, 0.2)] for run in LOOKS}
    drawn = looks(paths("Walk", loss_surface(), walks).figure.axes[0])
    assert {run: drawn[run] for run in LOOKS} == LOOKS


def test_a_run_of_no_known_kind_is_refused_by_name():
    with pytest.raises(ValueError, match=r"must begin with one of .*'unscaled'.* got 'summed'"):
        curves("Test", {"loss": {"summed": [2, 1]}}, [1, 2], "update")


def test_paths_draw_the_weights_of_their_table():
    walks = {"scaled": [(1, 0), (0.9375, 0.21875)], "unscaled": [(1, 0), (0.5, 1.25), (2, 3)]}
    picture = paths("Walk", loss_surface(), walks)
    (axes,) = picture.figure.axes
    drawn = {line.get_label(): line for line in axes.lines}
    for run, walk in walks.items():
        assert list(zip(*drawn[run].get_data(), strict=True)) == walk
        assert drawn[run].get_markevery() == list(range(len(walk)))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        *walks,
        "equal loss",
        "least loss",
    ]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("weight", "bias")
    assert picture.table.text() == (
        "weight and bias   start             end\n"
        "scaled           (1, 0)  (0.938, 0.219)\n"
        "unscaled         (1, 0)          (2, 3)"
    )
    assert picture.alt == "Walk. scaled ends at (0.938, 0.219); unscaled ends at (2, 3)"
    assert_still_picture_is_readable(picture)


def test_a_path_that_leaves_the_map_ends_at_its_edge_and_says_so():
    picture = paths("Walk", loss_surface(), {"unscaled": [(1, 0), (1, 2), (1, 9), (-50, 9)]})
    (axes,) = picture.figure.axes
    (line,) = [line for line in axes.lines if "unscaled" in line.get_label()]
    assert list(zip(*line.get_data(), strict=True)) == [(1, 0), (1, 2), (1, pytest.approx(4.2))]
    assert line.get_markevery() == [0, 1]
    assert axes.get_legend().get_texts()[0].get_text() == "unscaled, 2 of 3 off the map"
    assert "unscaled         (1, 0)  (−50, 9)" in picture.table.text()
    assert_still_picture_is_readable(picture)


def test_contours_join_points_of_one_loss_and_the_cross_is_the_minimum():
    (axes,) = paths("Walk", loss_surface(points=150), {"scaled": [(9, 9)]}).figure.axes
    samples = np.array([(-2, -1), (3, 2), (-1, 2), (2, 3), (4, 6), (1, 3), (-2, 2), (0, 2)])
    x, y = samples.T

    def loss(weight, bias):
        return np.square(weight * x + bias - y).mean()

    cross = axes.lines[0]
    minimum = np.ravel(cross.get_data())
    assert minimum == pytest.approx(np.polyfit(x, y, 1))
    (contours,) = axes.collections
    found = []
    for path in contours.get_paths():
        losses = [loss(*point) for point in path.vertices]
        assert losses == pytest.approx([losses[0]] * len(losses), abs=0.01)
        found.append(losses[0] - loss(*minimum))
    assert found == pytest.approx([0.05, 0.3, 1, 2, 4, 7, 11, 16, 22], abs=0.01)


def test_a_picture_shows_png_with_alt_text_then_its_table(monkeypatch, capsys):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda *a, **k: shown.append((a, k)))
    picture = cutting_picture()
    Picture(picture.figure, "two arrows", Table(("a", "b"), (("1", "2"),)))._ipython_display_()
    ((data,), options) = shown[0]
    assert data["text/plain"] == "[two arrows]"
    assert options["metadata"]["image/png"]["alt"] == "two arrows"
    assert capsys.readouterr().out == "a  b\n1  2\n"


def test_contents_has_a_tile_for_each_micro_batch_that_tells_what_it_counts():
    loops = {"right": [0.5, 0.5], "keeps the last": [0, 1], "unscaled": [1, 1], "other": [0.5, 0]}
    picture = contents(loops, fair=0.5)
    (axes,) = picture.figure.axes
    orange, sky = pale("#E69F00"), pale("#56B4E9")
    tiles = {tuple(np.floor(tile.get_xy())): tile for tile in axes.patches}
    said = {tuple(np.floor(text.get_position())): text.get_text() for text in axes.texts}
    assert len(axes.patches) == len(axes.texts) == len(tiles) == len(said) == 8
    for row, counts in enumerate(loops.values()):
        for column, count in enumerate(counts):
            tile = tiles[column, row]
            centre = np.add(tile.get_xy(), (tile.get_width() / 2, tile.get_height() / 2))
            assert centre == pytest.approx((column + 0.5, row + 0.5))
            assert 0.5 < tile.get_width() == tile.get_height() < 1
            colour = (orange, sky)[column] if count else "#ffffff"
            assert to_hex(tile.get_facecolor()) == colour
            assert to_hex(tile.get_edgecolor()) == ("#000000" if count == 0.5 else "#999999")
            assert (tile.get_linewidth() > 1) == (count == 0.5)
            assert tile.get_linestyle() == ("solid" if count else "dashed")
            assert said[column, row] == (number(count) if count else "missing")
    assert [label.get_text() for label in axes.get_xticklabels()] == [
        "micro-batch 1",
        "micro-batch 2",
    ]
    assert list(axes.get_xticks()) == [0.5, 1.5]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(loops)
    assert list(axes.get_yticks()) == [0.5, 1.5, 2.5, 3.5]
    assert axes.get_ylim() == (4, 0)  # the first loop on top
    assert_still_picture_is_readable(picture)


def test_contents_tells_the_same_in_its_table_and_in_words():
    picture = contents({"right": [0.5, 0.5], "wrong": [0, 1]}, fair=0.5)
    assert picture.table.heading == ("loop", "micro-batch 1", "micro-batch 2")
    assert picture.table.rows == (("right", "0.5", "0.5"), ("wrong", "0", "1"))
    assert picture.alt == (
        "What micro-batches 1 to 2 count in one update, 0.5 being fair: right 0.5, 0.5; wrong 0, 1."
    )


@pytest.mark.parametrize(("loops", "got"), [({}, "[]"), ({"a": [1], "b": [1, 1]}, "[1, 2]")])
def test_contents_of_loops_that_do_not_match_are_refused(loops, got):
    with pytest.raises(ValueError, match=re.escape(f"as many micro-batches, got {got}")):
        contents(loops, 1)
