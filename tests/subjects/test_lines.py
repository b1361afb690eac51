from types import SimpleNamespace

import pytest
from matplotlib.colors import to_hex

from helpers.figures import lines, stacked_parts
from tests.subjects.pictures import assert_readable

LOOKS = [("#0072b2", "-", "o"), ("#d55e00", "--", "s"), ("#009e73", ":", "^")]
SERIES = {"fastest": [3, 2, 1], "slowest": [5, 4, 1.5], "formula": [4, 3, 1]}


@pytest.mark.parametrize("log", [False, True])
def test_lines_draw_each_series_over_the_x_given(log):
    picture = lines("Time", [2, 8, 64], SERIES, "micro-batch", log=log)
    (axes,) = picture.figure.axes
    assert [list(line.get_ydata()) for line in axes.lines] == list(SERIES.values())
    assert all(list(line.get_xdata()) == [2, 8, 64] for line in axes.lines)
    assert [
        (to_hex(line.get_color()), line.get_linestyle(), line.get_marker()) for line in axes.lines
    ] == LOOKS
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(SERIES)
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylim()[0]) == ("Time", "micro-batch", 0)
    assert axes.get_xscale() == ("log" if log else "linear")
    if log:
        assert [label.get_text() for label in axes.get_xticklabels()] == ["2", "8", "64"]
    assert_readable(SimpleNamespace(figure=picture.figure, moving=[*axes.lines]))


def test_the_table_of_lines_has_every_point_and_the_alt_text_their_ends():
    picture = lines("Time", [2, 8, 64], SERIES, "m")
    assert picture.table.rows == (
        ("fastest", "3", "2", "1"),
        ("slowest", "5", "4", "1.5"),
        ("formula", "4", "3", "1"),
    )
    assert picture.alt == "Time. fastest: 3 to 1; slowest: 5 to 1.5; formula: 4 to 1"


@pytest.mark.parametrize(
    ("series", "said"),
    [
        ({name: [1, 2] for name in "abcd"}, "at most 3 lines, got 4"),
        ({"short": [1]}, "series 'short' must have 2 heights, got 1"),
    ],
)
def test_lines_that_cannot_be_drawn_are_refused(series, said):
    with pytest.raises(ValueError, match=said):
        lines("Time", [1, 2], series, "m")


def test_parts_are_stacked_from_zero_in_their_order_and_colours():
    bars = {
        "large": {"parameters": 7, "activations": 160, "other": 60},
        "small": {"parameters": 7, "activations": 50, "other": 20},
    }
    picture = stacked_parts("At the peak", bars, "kB")
    (axes,) = picture.figure.axes
    drawn = {
        container.get_label(): [(bar.get_x(), bar.get_width()) for bar in container]
        for container in axes.containers
    }
    assert drawn == {
        "parameters": [(0, 7), (0, 7)],
        "activations": [(7, 160), (7, 50)],
        "other": [(167, 60), (57, 20)],
    }
    colours = [to_hex(container[0].get_facecolor()) for container in axes.containers]
    assert colours == ["#0072b2", "#56b4e9", "#bbbbbb"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["large", "small"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first bar on top
    assert axes.get_xlim()[1] > 227
    assert axes.get_xlabel() == "kB"
    assert picture.table.rows[-1] == ("all", "227", "77")
    assert picture.alt == "At the peak. large: 227 kB, small: 77 kB"
    assert_readable(SimpleNamespace(figure=picture.figure, moving=[]))
