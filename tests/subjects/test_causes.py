"""The still pictures of lessons 06 and 07: what is drawn is what was handed over."""

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_hex

from helpers.figures import against, calendar, cloud, comparisons, on_a_line, walks
from helpers.figures.causes import compared
from tests.subjects.pictures import misplaced_axes, overlapping, text_extents

ORANGE, SKY, VERMILION, GREEN = "#e69f00", "#56b4e9", "#d55e00", "#009e73"


def drawn():
    return {
        "line": on_a_line("Dots", {"inputs": [[0, 2], [4, 6]], "at once": [[-1.342, 1, 2, 3]]}),
        "against": against(
            "Three lines", {"a": ("wrong", [1, 2, 4])}, (1, 2, 4), ("k", "error"), True
        ),
        "comparisons": comparisons("Pairs", {"1 × 2": (2,), "2 × 1": (1, 1)}),
        "cloud": cloud("Dots", np.eye(2), {"mean": (0.5, 0.5)}, ("weight", "bias")),
        "walks": walks("Roads", {"once": [(0, 0), (3, 0), (0.6, 0.8)]}, 1.0),
        "calendar": calendar("Plan", {"forward": [1, 2, 3], "step": [2, 3]}, [2, 3]),
    }


@pytest.mark.parametrize("name", drawn())
def test_every_text_has_room_and_the_alt_text_has_numbers(name):
    picture = drawn()[name]
    extents = text_extents(picture)
    assert [*overlapping(extents), *misplaced_axes(picture)] == []
    assert all(picture.figure.bbox.contains(box.x0, box.y0) for _, box in extents)
    assert any(letter.isdigit() for letter in picture.alt)
    assert len(picture.alt) >= 20


@pytest.mark.parametrize("name", drawn())
def test_all_that_is_drawn_lies_in_its_chart(name):
    for axes in drawn()[name].figure.axes:
        limits = np.sort([axes.get_xlim(), axes.get_ylim()])
        marks = [np.transpose(line.get_data()) for line in axes.lines if not spans(line)]
        marks += [dots.get_offsets() for dots in axes.collections if len(dots.get_offsets())]
        marks += [np.array([[line.get_xdata()[0], limits[1, 0]]]) for line in upright(axes)]
        for points in marks:
            assert (limits[:, 0] <= points).all()
            assert (points <= limits[:, 1]).all()


def spans(line):
    """Whether a line goes across the chart, and so has one coordinate that is a share of it."""
    return line.get_transform() != line.axes.transData


def upright(axes):
    """The lines that go across the chart from its foot to its head."""
    return [line for line in axes.lines if spans(line) and len(set(line.get_xdata())) == 1]


def test_the_rows_of_a_calendar_fill_it():
    (axes,) = drawn()["calendar"].figure.axes
    assert list(axes.get_yticks()) == [0, 1]
    low, high = axes.get_ylim()
    assert -1 < low < 0
    assert 1 < high < 2


def test_each_sample_is_a_dot_on_its_line_in_its_micro_batchs_colour_and_shape():
    picture = drawn()["line"]
    (axes,) = picture.figure.axes
    dots = [line for line in axes.lines if line.get_marker() not in ("None", None, "")]
    assert [list(line.get_xdata()) for line in dots] == [[-1.342, 1, 2, 3], [0, 2], [4, 6]]
    assert [to_hex(line.get_color()) for line in dots] == ["#000000", ORANGE, SKY]
    assert [line.get_marker() for line in dots] == ["o", "o", "s"]
    heights = [line.get_ydata()[0] for line in dots]
    assert heights[0] < heights[1] < heights[2]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["at once", "inputs"]
    assert picture.table.heading == ("sample", "1", "2", "3", "4")
    assert picture.table.rows == (
        ("inputs", "0", "2", "4", "6"),
        ("at once", "−1.34", "1", "2", "3"),
    )
    assert picture.alt == "Dots. inputs: 0, 2, 4, 6; at once: −1.34, 1, 2, 3"


def test_lines_have_their_numbers_and_what_is_wrong_is_vermilion():
    values = [0.07, 0.15, 0.25, 0.55]
    runs = {"BatchNorm": ("wrong", values), "GroupNorm": ("right", [0.0] * 4)}
    picture = against("Error", runs, (2, 4, 8, 16), ("k", "error"), log=True)
    (axes,) = picture.figure.axes
    wrong, right = axes.lines
    assert (list(wrong.get_xdata()), list(wrong.get_ydata())) == ([2, 4, 8, 16], values)
    assert list(right.get_ydata()) == [0] * 4
    assert (to_hex(wrong.get_color()), to_hex(right.get_color())) == (VERMILION, GREEN)
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["BatchNorm", "GroupNorm"]
    assert picture.table.heading == ("k", "2", "4", "8", "16")
    assert picture.table.rows[0] == ("BatchNorm", "0.07", "0.15", "0.25", "0.55")


def test_the_table_of_a_long_line_has_its_ends_and_two_points_between():
    picture = against("Sum", {"a": ("full batch", list(range(257)))}, range(257), ("n", "sum"))
    assert picture.table.heading == ("n", "0", "85", "171", "256")
    assert picture.table.rows == (("a", "0", "85", "171", "256"),)
    assert picture.figure.axes[0].get_xscale() == "linear"


@pytest.mark.parametrize(
    ("sizes", "cells"),
    [
        ((2,), [[2, 1], [1, 2]]),
        ((1, 1), [[2, 0], [0, 2]]),
        ((2, 1), [[2, 1, 0], [1, 2, 0], [0, 0, 2]]),
    ],
)
def test_only_pairs_of_one_micro_batch_are_compared(sizes, cells):
    assert compared(sizes).tolist() == cells


def test_the_squares_are_who_meets_whom():
    picture = comparisons("Pairs", {"1 × 4": (4,), "2 × 2": (2, 2), "4 × 1": (1,) * 4})
    squares = [axes.images[0].get_array().tolist() for axes in picture.figure.axes]
    assert squares == [compared(sizes).tolist() for sizes in ((4,), (2, 2), (1,) * 4)]
    assert [axes.get_title() for axes in picture.figure.axes] == ["1 × 4", "2 × 2", "4 × 1"]
    assert picture.table.rows == (("1 × 4", "4", "12"), ("2 × 2", "4", "4"), ("4 × 1", "4", "0"))
    assert "2 × 2: 4 own partners, 4 wrong answers" in picture.alt


def test_a_cloud_has_every_point_and_points_out_those_named():
    points = np.array([[0, 1], [2, 3], [4, 5.0]])
    picture = cloud("Dots", points, {"mean": (2, 3), "none": (1, -3.5)}, ("weight", "bias"))
    (axes,) = picture.figure.axes
    dots, mean, none = axes.lines
    assert np.array_equal(np.transpose(dots.get_data()), points)
    assert [list(line.get_data()) for line in (mean, none)] == [[[2], [3]], [[1], [-3.5]]]
    assert (mean.get_marker(), none.get_marker()) == ("*", "D")
    assert picture.table.rows == (("mean", "(2, 3)"), ("none", "(1, −3.5)"))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("weight", "bias")


def test_a_walk_ends_at_its_star_and_arrows_that_shorten_are_vermilion():
    roads = {"once": [(0, 0), (3, 0), (3, 4), (0.6, 0.8)], "each": [(0, 0), (3, 0), (1, 0)]}
    picture = walks("Roads", roads, 1.0)
    for axes, stops in zip(picture.figure.axes, roads.values(), strict=True):
        shafts, _ = axes.collections
        starts = [list(segment[0]) for segment in shafts.get_segments()]
        assert starts == [list(stop) for stop in stops[:-1]]
        lengths = [np.hypot(*stop) for stop in stops]
        shrinks = [b < a for a, b in itertools.pairwise(lengths)]
        wanted = [VERMILION if s else SKY for s in shrinks]
        assert [to_hex(colour) for colour in shafts.get_colors()] == wanted
        limit, star = axes.lines
        assert np.hypot(*limit.get_data()) == pytest.approx(np.ones(60))
        assert [v[0] for v in star.get_data()] == list(stops[-1])
        tip = np.array(stops[-1])
        assert axes.get_xlim()[0] <= tip[0] <= axes.get_xlim()[1]
        assert axes.get_ylim()[0] <= tip[1] <= axes.get_ylim()[1]
    assert picture.table.rows[1] == ("each", "(0, 0)", "(3, 0)", "(1, 0)", "")


def test_a_calendar_has_a_mark_for_each_time_in_its_windows_colour():
    picture = calendar("Plan", {"forward": [1, 2, 3, 4, 5], "step": [4, 5]}, [4, 5])
    (axes,) = picture.figure.axes
    step, forward = axes.collections
    assert [tuple(place) for place in forward.get_offsets()] == [(n, 1) for n in range(1, 6)]
    assert [tuple(place) for place in step.get_offsets()] == [(4, 0), (5, 0)]
    assert [to_hex(c) for c in forward.get_facecolors()] == [ORANGE] * 4 + [SKY]
    assert [to_hex(c) for c in step.get_facecolors()] == [ORANGE, SKY]
    assert [line.get_xdata()[0] for line in axes.lines] == [4.5, 5.5]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["step", "forward"]
    assert picture.table.rows == (("forward", "5", "1 2 3 4 5"), ("step", "2", "4 5"))
    assert picture.alt == "Plan. forward: 5 times; step: 2 times"
