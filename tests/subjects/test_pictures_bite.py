"""The checks of every picture see what they are there to see."""

import pytest

from helpers.figures.drawing import RULING, TEXT_GROUND
from helpers.figures.pictures import MovingPicture
from tests.subjects.pictures import complaints


class OnePoint(MovingPicture):
    """A named point and two texts, all in view."""

    size = (4.0, 3.0)

    def draw(self):
        self.axes = self.figure.add_axes([0.2, 0.2, 0.7, 0.7])
        self.axes.set(xlim=(0, 1), ylim=(0, 1))
        (self.point,) = self.axes.plot([0.5], [0.5], "o", label="measured")
        self.axes.legend(loc="upper left")
        self.text = self.axes.text(0.5, 0.3, "a text", ha="center")
        self.other = self.axes.text(0.5, 0.1, "another", ha="center")
        self.axes.axhline(0.6, **RULING)

    @property
    def moving(self):
        return [self.point, self.text]


def test_a_readable_picture_has_no_complaint():
    assert complaints(OnePoint()) == []


def test_a_text_on_a_ground_of_its_own_may_lie_on_a_line():
    picture = OnePoint()
    picture.text.set_bbox(TEXT_GROUND)
    picture.text.set_y(0.57)
    assert complaints(picture) == []


FAULTS = {
    "text on a line": (lambda p: p.text.set_y(0.57), "'_ruling' runs over 'a text'"),
    "line through the legend": (
        lambda p: p.axes.plot([0, 0.6], [0.8, 1], label="a text"),
        "'a text' runs over the legend",
    ),
    "half a marker": (lambda p: p.point.set_data([1], [0.5]), "a marker cut"),
    "half a line": (lambda p: p.axes.axvline(1, label="a text"), "'a text' is a line cut"),
    "half a line of many": (
        lambda p: p.axes.vlines([0, 0.9], 0, 0.1, label="a text"),
        "'a text' is a line cut",
    ),
    "still and without a label": (lambda p: p.axes.plot([0, 0.2], [0, 0]), "has no label"),
    "still and not named": (lambda p: p.axes.axhspan(0, 0.1, label="noise"), "'noise' is nowhere"),
    "a ruling too thick": (lambda p: p.axes.axhline(0.1, label="_ruling", lw=2), "has no label"),
    "a ruling askew": (
        lambda p: p.axes.plot([0.1, 0.2], [0.1, 0.2], label="_ruling", lw=1),
        "has no label",
    ),
    "text beyond the edge": (lambda p: p.text.set_x(1.1), "'a text' is cut off"),
    "text on text": (lambda p: p.text.set_y(0.12), "'a text' lies on 'another'"),
    "point beyond the axes": (lambda p: p.point.set_data([1.1], [0.5]), "beyond its axes"),
    "limits before the point": (lambda p: p.axes.set_ylim(0, 0.4), "beyond its axes"),
    "chart beyond the page": (lambda p: p.axes.set_position([0.2, 0.2, 0.9, 0.7]), "the page"),
    "chart too flat": (lambda p: p.axes.set_position([0.2, 0.2, 0.7, 0.01]), "is too small"),
    "chart on chart": (lambda p: p.figure.add_axes([0.5, 0.5, 0.2, 0.2]), "lies on chart 2"),
    "no label": (lambda p: p.point.set_label("_hidden"), "has no label"),
    "label not shown": (lambda p: p.point.set_label("predicted"), "'predicted' is nowhere"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_complained_about(fault):
    picture = OnePoint()
    plant, complaint = FAULTS[fault]
    plant(picture)
    assert complaint in " ".join(complaints(picture))
