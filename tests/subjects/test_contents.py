"""The picture of what each micro-batch counts in an update, read back tile by tile."""

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from helpers.figures import MICRO_BATCH_COLOURS, contents
from helpers.figures.drawing import pale

LOOPS = {"usual": [0.25, 0.25, 0.25], "cleared": [0.0, 0.0, 0.25], "undivided": [1.0, 1.0, 1.0]}


def drawn(picture):
    """For each tile, by row and column: its text, colour, frame's width and dash."""
    (axes,) = picture.figure.axes
    tiles = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    found = {}
    for tile, text in zip(tiles, axes.texts, strict=True):
        x, y = tile.get_center()
        assert (x, y) == pytest.approx(text.get_position())
        found[int(y), int(x)] = (
            text.get_text(),
            to_hex(tile.get_facecolor()),
            tile.get_linewidth(),
            tile.get_linestyle(),
        )
    return found


def test_every_tile_says_what_its_micro_batch_counts():
    tiles = drawn(contents(LOOPS, fair=0.25))
    said = {place: text for place, (text, *_) in tiles.items()}
    assert said == {
        (0, 0): "0.25",
        (0, 1): "0.25",
        (0, 2): "0.25",
        (1, 0): "missing",
        (1, 1): "missing",
        (1, 2): "0.25",
        (2, 0): "1",
        (2, 1): "1",
        (2, 2): "1",
    }


def test_a_missing_one_is_white_and_a_fair_one_has_a_thick_frame():
    for (row, column), (text, colour, width, dash) in drawn(contents(LOOPS, fair=0.25)).items():
        missing, fair = text == "missing", text == "0.25"
        assert colour == ("#ffffff" if missing else pale(MICRO_BATCH_COLOURS[column]))
        assert (width > 1) == fair, (row, column)
        assert (dash != "-" and dash != "solid") == missing, (row, column)


def test_rows_columns_and_table_have_their_names():
    picture = contents(LOOPS, fair=0.25)
    (axes,) = picture.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(LOOPS)
    names = ["micro-batch 1", "micro-batch 2", "micro-batch 3"]
    assert [label.get_text() for label in axes.get_xticklabels()] == names
    assert picture.table.heading == ("loop", *names)
    assert picture.table.rows[1] == ("cleared", "0", "0", "0.25")
    assert picture.alt == (
        "What micro-batches 1 to 3 count in one update, 0.25 being fair: usual 0.25, 0.25, 0.25; "
        "cleared 0, 0, 0.25; undivided 1, 1, 1."
    )
    low, high = axes.get_ylim()
    assert (low, high) == (3, 0)  # the first loop on top
    assert axes.get_xlim() == (0, 3)


def test_nothing_stands_on_anything_else():
    picture = contents({"a loop with a rather long name": [0.0625] * 4, "b": [0.0] * 4}, fair=1)
    picture.figure.canvas.draw()
    (axes,) = picture.figure.axes
    boxes = [text.get_window_extent() for text in (*axes.texts, *axes.get_xticklabels())]
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])


@pytest.mark.parametrize("wrong", [{}, {"a": [1.0], "b": [1.0, 1.0]}])
def test_loops_of_unequal_length_are_refused(wrong):
    with pytest.raises(ValueError, match="must all have as many micro-batches"):
        contents(wrong, fair=1)
