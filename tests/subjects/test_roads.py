from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex

from helpers.figures import roads
from tests.subjects.pictures import assert_readable

EIGHT = [(4, -2), (6, 2), (6, -6), (-4, -2), (-16, -4), (-4, -4), (16, -8), (0, -4)]
FULL = (1, -3.5)
RUNS = {
    "one batch": [FULL],
    "two steps": [(1.5, -1), (-0.5, -2.5)],
    "eight samples": [(a / 8, b / 8) for a, b in EIGHT],
}


def shafts(axes):
    (drawn,) = (c for c in axes.collections if isinstance(c, LineCollection))
    return drawn


@pytest.mark.parametrize("runs", [RUNS, {f"k = {k}": EIGHT[:k] for k in (1, 2, 4, 8)}])
def test_each_road_is_its_summands_tip_to_tail_from_the_origin_to_the_ring(runs):
    picture = roads("Roads", runs, FULL)
    for axes, (name, parts) in zip(picture.figure.axes, runs.items(), strict=True):
        corners = np.vstack([(0, 0), np.cumsum(parts, axis=0)])
        heads = axes.collections[1].get_paths()
        assert [segment[0].tolist() for segment in shafts(axes).get_segments()] == [
            pytest.approx(start) for start in corners[:-1].tolist()
        ]
        tips = [head.vertices[0].tolist() for head in heads]
        assert tips == [pytest.approx(tip) for tip in corners[1:].tolist()]
        full, ring = axes.lines
        assert (list(full.get_xdata()), list(full.get_ydata())) == ([0, FULL[0]], [0, FULL[1]])
        assert (to_hex(full.get_color()), full.get_linestyle()) == ("#000000", "--")
        assert [*ring.get_xdata(), *ring.get_ydata()] == pytest.approx(corners[-1])
        low, high = np.transpose([axes.get_xlim(), axes.get_ylim()])
        assert (low < corners).all()
        assert (corners < high).all()
        assert axes.get_title() == name
        assert axes.get_aspect() == 1
        assert len({tuple(colour) for colour in shafts(axes).get_colors()}) == min(4, len(parts))
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in picture.figure.axes}) == 1
    assert "dashed: the full batch" in picture.figure.get_suptitle()
    assert_readable(SimpleNamespace(figure=picture.figure, moving=[]))


def test_the_table_says_how_many_arrows_arrive_where():
    picture = roads("Roads", RUNS, FULL)
    assert picture.table.rows == (
        ("one batch", "1", "(1, −3.5)"),
        ("two steps", "2", "(1, −3.5)"),
        ("eight samples", "8", "(1, −3.5)"),
    )
    assert picture.alt.startswith("Roads. one batch: 1 arrow to (1, −3.5); two steps: 2 arrows to")
