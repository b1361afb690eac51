import itertools
import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex, to_rgba

from helpers.figures import CuttingPicture
from helpers.gradients import SCALINGS
from helpers.panels import CuttingPanel
from tests.subjects.panels import move_at_random, picture_text, stays_right, values
from tests.subjects.pictures import assert_readable, outside_their_axes

SAMPLES = [(-2, -1), (3, 2), (-1, 2), (2, 3), (4, 6), (1, 3), (-2, 2), (0, 2)]
LOSSES = [Fraction((x - y) ** 2) for x, y in SAMPLES]  # of a line with weight 1 and bias 0
GRADIENTS = [(Fraction(2 * (x - y) * x), Fraction(2 * (x - y))) for x, y in SAMPLES]
FULL_BATCH = (1, -3.5)
ORANGE, BLUE, PURPLE, GREY, BLACK = "#e69f00", "#56b4e9", "#cc79a7", "#999999", "#000000"
MICRO_BATCHES = [ORANGE, BLUE, PURPLE, GREY, ORANGE, BLUE, PURPLE, GREY]
SCALING_COLOURS = {"none": "#d55e00", "steps": "#0072b2", "samples": "#009e73"}


def text_of(value):
    return f"{float(value):.4g}".replace("-", "−") if value else "0"


def pair(values):
    return f"({', '.join(map(text_of, values))})"


def unrounded(text):
    """The text with 0 for what float32 leaves of a sum that is zero, such as 1.192e−07."""
    return re.sub("−?[0-9.]+e−0[78]", "0", text)


def mean(numbers):
    return sum(numbers) / len(numbers)


class Expected:
    """What a cut comes to, in fractions, from the positions of the toggles and the scaling."""

    def __init__(self, panel):
        self.scaling = panel.scaling.value
        edges = [0, *(i for i in range(1, 8) if panel.gaps[i - 1].value), 8]
        self.parts = [range(*edge) for edge in itertools.pairwise(edges)]
        k = len(self.parts)
        self.factors = {
            "none": [Fraction(1)] * k,
            "steps": [Fraction(1, k)] * k,
            "samples": [Fraction(len(part), 8) for part in self.parts],
        }[self.scaling]
        self.losses = [mean([LOSSES[i] for i in part]) for part in self.parts]
        self.added = [
            tuple(factor * mean([GRADIENTS[i][axis] for i in part]) for axis in (0, 1))
            for part, factor in zip(self.parts, self.factors, strict=True)
        ]
        self.tips = [
            tuple(sum(added[axis] for added in self.added[: i + 1]) for axis in (0, 1))
            for i in range(k)
        ]
        self.total = self.tips[-1]
        self.difference = [self.total[axis] - Fraction(FULL_BATCH[axis]) for axis in (0, 1)]
        self.off = math.hypot(*self.difference) / math.hypot(*FULL_BATCH)
        self.belongs = [i for i, part in enumerate(self.parts) for _ in part]

    def shares(self):
        for part, loss, factor in zip(self.parts, self.losses, self.factors, strict=True):
            times = {"none": "", "steps": f" ÷ {len(self.parts)}", "samples": f" × {len(part)}/8"}
            scaled = "" if self.scaling == "none" else f" = {text_of(loss * factor)}"
            yield text_of(loss) + times[self.scaling] + scaled

    def verdict(self):
        if not any(self.difference):
            return "(1, −3.5) = full batch, to the bit"
        return f"{pair(self.total)} ≠ (1, −3.5), off by {self.off:.0%}"

    def table(self):
        heading = ("samples", "mean loss, scaled", "adds to .grad")
        names = [f"{p[0] + 1} to {p[-1] + 1}" if len(p) > 1 else f"{p[0] + 1}" for p in self.parts]
        rows = [*zip(names, self.shares(), map(pair, self.added), strict=True)]
        closing = "equal to the bit"
        if any(self.difference):
            longer = math.hypot(*self.total) / math.hypot(*FULL_BATCH)
            closing = (
                f"different: largest difference {float(max(map(abs, self.difference))):.4g}, "
                f"{100 * self.off:.3g} % of its length; {longer:.4g} times as long"
            )
        return heading, [*rows, ("full batch", "5", "(1, −3.5)")], closing


def arrows_of(arrows):
    """Start and end of each arrow drawn; its head must point along its shaft."""
    found = []
    heads = [path.vertices for path in arrows.heads.get_paths()]
    for (start, neck), head in zip(arrows.shafts.get_segments(), heads, strict=True):
        assert head[1:3].mean(0) == pytest.approx(neck, abs=1e-9)
        along, on = head[0] - start, neck - start
        assert along[0] * on[1] - along[1] * on[0] == pytest.approx(0, abs=1e-6)
        assert math.hypot(*on) <= math.hypot(*along) + 1e-9
        found.append((tuple(start), tuple(head[0])))
    return found


def near(points):
    """The points as numbers to compare with, to a hundred-thousandth."""
    return pytest.approx(np.array(points, float), abs=1e-5)


def dashed(collection):
    return [pattern is not None for _, pattern in collection.get_linestyle()]


def hexes(colours):
    return [to_hex(colour) for colour in colours]


def assert_numbers_are_right(panel, table, colours):
    expected, picture = Expected(panel), panel.picture
    micro = MICRO_BATCHES[: len(expected.parts)]
    heading, rows, closing = expected.table()
    assert (table.heading, list(table.rows)) == (heading, rows)
    assert unrounded(table.closing) == f"accumulated {pair(expected.total)}, {closing}"
    assert hexes(colours) == [*micro, BLACK]

    # Tiles and samples in the colour of their micro-batch, dashed from the fifth on.
    of_samples = [MICRO_BATCHES[i] for i in expected.belongs]
    assert picture.tiles.get_facecolors() == near([to_rgba(c, 0x40 / 255) for c in of_samples])
    assert hexes(picture.tiles.get_edgecolors()) == of_samples
    arrows = picture.sample_arrows
    assert hexes(arrows.shafts.get_colors()) == hexes(arrows.heads.get_facecolors()) == of_samples
    for collection in (picture.tiles, arrows.shafts):
        assert dashed(collection) == [i > 3 for i in expected.belongs]
    drawn = np.array(arrows_of(arrows))
    assert drawn[:, 0] == near(np.zeros((8, 2)))
    assert drawn[:, 1] == near(GRADIENTS)

    # Each share in the middle beneath its tiles.
    shown = [(t.get_text(), t.get_position()[0]) for t in picture.shares if t.get_text()]
    assert [text for text, _ in shown] == list(expected.shares())
    tiles = [path.vertices[:4, 0].mean() for path in picture.tiles.get_paths()]
    assert [x for _, x in shown] == near([np.mean([tiles[i] for i in p]) for p in expected.parts])

    # The micro-batches tip to tail, their sum and the full batch from zero.
    drawn = np.array(arrows_of(picture.micro_arrows))
    assert drawn[:, 0] == near([(0, 0), *expected.tips[:-1]])
    assert drawn[:, 1] == near(expected.tips)
    arrows = picture.micro_arrows
    assert hexes(arrows.shafts.get_colors()) == hexes(arrows.heads.get_facecolors()) == micro
    assert dashed(arrows.shafts) == [i > 3 for i in range(len(micro))]
    assert np.array(arrows_of(picture.full_arrow)) == near([[(0, 0), FULL_BATCH]])
    assert hexes(picture.full_arrow.heads.get_facecolors()) == [BLACK]
    assert dashed(picture.full_arrow.shafts) == [True]
    assert np.array(arrows_of(picture.sum_arrow)) == near([[(0, 0), expected.total]])
    assert np.transpose(picture.tip.get_data()) == near([expected.total])
    ring = SCALING_COLOURS[expected.scaling]
    assert to_hex(picture.tip.get_color()) == ring
    quarter = 0.75 + 0.25 * np.array(to_rgba(ring)[:3])
    for colours in (
        picture.sum_arrow.shafts.get_colors(),
        picture.sum_arrow.heads.get_facecolors(),
    ):
        assert colours[0][:3] == pytest.approx(quarter, abs=1 / 255)
    assert unrounded(picture.verdict.get_text()) == expected.verdict()
    assert_view_fits(picture, [*expected.tips, FULL_BATCH])


def assert_view_fits(picture, points):
    """All in view, round numbers at the ticks, and half the view would not have done."""
    assert list(outside_their_axes(picture)) == []
    x, y = picture.sum_axes.get_xlim(), picture.sum_axes.get_ylim()
    zoom = x[1] / 4.8
    assert (zoom, *x, *y) == near((zoom, -4.8 * zoom, 4.8 * zoom, -4.7 * zoom, 1.5 * zoom))
    assert zoom in (1, 2, 4, 8)
    assert list(picture.sum_axes.get_xticks()) == [n * zoom for n in (-4, -2, 0, 2, 4)]
    assert list(picture.sum_axes.get_yticks()) == [n * zoom for n in (-4, -2, 0)]
    inner = 0.95 * zoom / 2  # with room for the ring
    assert zoom == 1 or any(
        abs(x) > 4.8 * inner or not -4.7 * inner < y < 1.35 * inner for x, y in points
    )


def assert_cutting_panel_is_right(panel):
    marked = re.findall("border-left:6px solid (#[0-9A-Fa-f]{6})", panel.screen.value)
    assert_numbers_are_right(panel, panel.table, marked)
    assert_readable(panel.picture)
    text, expected = unrounded(picture_text(panel)), Expected(panel)
    for said in (*expected.shares(), expected.verdict()):
        assert said in text
    assert panel.alt == f"Eight samples cut into micro-batches: {panel.table.closing}"
    assert f'aria-label="{panel.alt}"' in panel.screen.value
    assert len(panel.cut.sizes) == len(expected.parts)
    equal = len(set(panel.cut.sizes)) == 1
    assert panel.steps.value == (len(panel.cut.sizes) if equal else None)


def test_the_panel_opens_on_the_source_documents_example():
    panel = CuttingPanel()
    assert panel.cut.sizes == (4, 4)
    assert panel.cut.losses == (3, 7)
    assert panel.cut.accumulated.tolist() == [1, -3.5]
    assert panel.cut.comparison.exact
    assert panel.table.text() == (
        "samples     mean loss, scaled  adds to .grad\n"
        "1 to 4            3 ÷ 2 = 1.5      (1.5, −1)\n"
        "5 to 8            7 ÷ 2 = 3.5   (−0.5, −2.5)\n"
        "full batch                  5      (1, −3.5)\n"
        "accumulated (1, −3.5), equal to the bit"
    )


def every_cut(panel):
    """The panel after each way to cut eight samples with each scaling; it is not redrawn."""
    with panel.hold():
        for scaling in SCALINGS:
            panel.scaling.value = scaling
            for cuts in itertools.product((False, True), repeat=7):
                for gap, here in zip(panel.gaps, cuts, strict=True):
                    gap.value = here
                yield panel.follow()


def test_every_cut_with_every_scaling_shows_the_right_numbers():
    panel, seen = CuttingPanel(), set()
    for table, colours in every_cut(panel):
        assert_numbers_are_right(panel, table, colours)
        assert panel.cut.comparison.exact or panel.scaling.value != "samples"
        seen.add((panel.scaling.value, panel.cut.sizes))
    assert len(seen) == 3 * 128


def test_controls_at_every_end_and_in_any_order_leave_the_cutting_panel_right():
    stays_right(CuttingPanel(), assert_cutting_panel_is_right, seed=0, moves=12)


@pytest.mark.parametrize("seed", range(1, 3))
def test_the_toggles_and_the_equal_steps_stay_in_line(seed):
    panel = CuttingPanel()
    for control in move_at_random(panel, 60, seed):
        assert_numbers_are_right(panel, *panel.follow())
        sizes = [len(part) for part in Expected(panel).parts]
        assert panel.steps.value == (len(sizes) if len(set(sizes)) == 1 else None)
        assert control.value in (*values(control), None)


def test_what_stands_still_names_every_sample_and_every_axis():
    tiles, samples, total = CuttingPicture(
        [float(loss) for loss in LOSSES], [tuple(map(float, g)) for g in GRADIENTS]
    ).figure.axes
    losses = [text for text in tiles.texts if text.get_text()]
    assert [text.get_text() for text in losses] == [
        f"L{'₁₂₃₄₅₆₇₈'[i]} = {loss}" for i, loss in enumerate(LOSSES)
    ]
    boxes = [path.vertices[:4].mean(0) for path in tiles.collections[0].get_paths()]
    assert np.array([text.get_position() for text in losses]) == near(boxes)
    assert [text.get_text() for text in samples.texts] == list("12345678")
    for text, tip in zip(samples.texts, GRADIENTS, strict=True):
        assert math.dist(text.get_position(), tip) == pytest.approx(1.2)
    assert samples.get_title() == "each sample's gradient"
    assert total.get_title() == "micro-batch gradients, tip to tail"
    for axes in (samples, total):
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("∂/∂weight", "∂/∂bias")
        assert axes.get_aspect() == 1
    names = [text.get_text() for text in total.get_legend().get_texts()]
    assert names == ["full batch", "accumulated"]
    assert samples.get_xticks().tolist() == [-15, -10, -5, 0, 5, 10, 15]
    assert samples.get_yticks().tolist() == [-10, -5, 0, 5]


def test_a_sample_on_the_way_of_a_longer_one_has_its_number_beside_the_arrow():
    samples = CuttingPicture([1, 1], [(4.0, -2.0), (16.0, -8.0)]).figure.axes[1]
    (x, y), (far_x, far_y) = (text.get_position() for text in samples.texts)
    assert (x - 4) * 4 + (y + 2) * -2 == pytest.approx(0)  # across, not along
    assert far_x / far_y == pytest.approx(-2)


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_a_shortcut_cuts_equal_steps_and_a_cut_by_hand_releases_it(k):
    panel = CuttingPanel()
    panel.steps.value = k
    assert panel.cut.sizes == (8 // k,) * k
    panel.gaps[0].value = not panel.gaps[0].value
    assert panel.steps.value == {(2, 2, 2, 2): 4, (8,): 1}.get(panel.cut.sizes)
    panel.gaps[0].value = not panel.gaps[0].value
    assert panel.steps.value == k


def test_one_move_draws_one_picture():
    panel, drawn = CuttingPanel(), []
    panel.screen.observe(lambda change: drawn.append(change), "value")
    panel.steps.value = 8
    assert len(drawn) == 1


def test_five_and_three_are_off_by_19_percent():
    panel = CuttingPanel()
    panel.gaps[3].value, panel.gaps[4].value = False, True
    assert panel.cut.sizes == (5, 3)
    assert "3.2 ÷ 2 = 1.6" in picture_text(panel)
    assert "(1.6, −3.867) ≠ (1, −3.5), off by 19%" in picture_text(panel)
    panel.scaling.value = "samples"
    assert "(1, −3.5) = full batch, to the bit" in picture_text(panel)


def test_unscaled_only_four_equal_pieces_reach_4_and_minus_14():
    panel, reached = CuttingPanel(), []
    for _ in every_cut(panel):
        if panel.scaling.value == "none" and torch.allclose(
            panel.cut.accumulated, torch.tensor([4.0, -14.0])
        ):
            reached.append(panel.cut.sizes)
    assert reached == [(2, 2, 2, 2)]


def test_each_toggle_stands_above_the_gap_that_it_cuts():
    panel = CuttingPanel()
    tiles = [path.get_extents() for path in panel.picture.tiles.get_paths()]
    to_pixels, page = panel.picture.tiles.axes.transData.transform, panel.picture.figure.bbox
    between = [
        (to_pixels((left.x1, 0))[0] + to_pixels((right.x0, 0))[0]) / 2 / page.width
        for left, right in itertools.pairwise(tiles)
    ]
    (above,) = [box for box in panel.widget.children if panel.gaps[0] in box.children]
    layout = above.layout
    assert (layout.max_width, layout.justify_items) == ("9in", "center")
    columns = re.fullmatch(r"([\d.]+)% repeat\(7, ([\d.]+)%\)", layout.grid_template_columns)
    first, pitch = (float(share) / 100 for share in columns.groups())
    cells = [int(gap.layout.grid_area.split(" / ")[1]) - 2 for gap in panel.gaps]
    assert [first + (cell + 0.5) * pitch for cell in cells] == pytest.approx(between, abs=5e-4)
