import io
import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest
from PIL import Image

from helpers.figures import (
    CuttingPicture,
    Picture,
    SvgDrawing,
    Table,
    curves,
    number,
    paths,
    png,
    vector,
)
from helpers.subjects.training import loss_surface

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


def test_curves_draw_the_numbers_of_their_table():
    picture = curves("Test", {"loss": {"full batch": [5, 2], "unscaled": [5, 1]}}, [1, 2], "update")
    (axes,) = picture.figure.axes
    assert [line.get_ydata().tolist() for line in axes.lines] == [[5, 2], [5, 1]]
    assert picture.table.text() == (
        "update            1  2\nloss, full batch  5  2\nloss, unscaled    5  1"
    )
    assert "loss, unscaled: 5 to 1" in picture.alt


def test_paths_draw_the_weights_of_their_table():
    walk = [(1, 0), (0.9375, 0.21875)]
    picture = paths("Walk", loss_surface(), {"scaled": walk})
    (line,) = [line for line in picture.figure.axes[0].lines if line.get_label() == "scaled"]
    assert list(zip(*line.get_data(), strict=True)) == walk
    assert "(1, 0)  (0.938, 0.219)" in picture.table.text()


def test_a_picture_shows_png_with_alt_text_then_its_table(monkeypatch, capsys):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda *a, **k: shown.append((a, k)))
    picture = cutting_picture()
    Picture(picture.figure, "two arrows", Table(("a", "b"), (("1", "2"),)))._ipython_display_()
    ((data,), options) = shown[0]
    assert data["text/plain"] == "[two arrows]"
    assert options["metadata"]["image/png"]["alt"] == "two arrows"
    assert capsys.readouterr().out == "a  b\n1  2\n"
