import itertools

import numpy as np
import pytest
import torch

from helpers.gradients import SCALINGS
from helpers.panels import CuttingPanel
from tests.subjects.panels import picture_text, stays_right

EACH = torch.tensor(
    [(4, -2), (6, 2), (6, -6), (-4, -2), (-16, -4), (-4, -4), (16, -8), (0, -4)]
).double()


def expected(sizes, scaling):
    """The sum of the micro-batches' contributions, from the eight gradients of the course."""
    weight = {
        "none": lambda size: 1,
        "steps": lambda size: 1 / len(sizes),
        "samples": lambda size: size / 8,
    }[scaling]
    parts = EACH.split(sizes)
    return torch.stack([part.mean(0) * weight(len(part)) for part in parts])


def assert_cutting_panel_is_right(panel):
    parts = expected(panel.cut.sizes, panel.scaling.value)
    total = parts.sum(0)
    assert torch.allclose(panel.cut.accumulated.double(), total, atol=1e-5)
    assert panel.cut.comparison.exact == torch.equal(
        panel.cut.accumulated, torch.tensor([1.0, -3.5])
    )
    tips = [path.vertices[0] for path in panel.picture.micro_arrows.heads.get_paths()]
    assert np.allclose(tips, parts.cumsum(0), atol=1e-5)
    ring = (panel.picture.tip.get_xdata()[0], panel.picture.tip.get_ydata()[0])
    assert ring == pytest.approx(total.tolist(), abs=1e-5)
    shares = [text.get_text() for text in panel.picture.shares if text.get_text()]
    assert shares == [row[1] for row in panel.table.rows[:-1]]
    assert panel.picture.verdict.get_text() in picture_text(panel)


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


def test_every_cut_with_every_scaling_shows_the_right_sum():
    panel = CuttingPanel()
    for scaling in SCALINGS:
        panel.scaling.value = scaling
        for cuts in itertools.product((False, True), repeat=7):
            with panel.hold():
                for gap, here in zip(panel.gaps, cuts, strict=True):
                    gap.value = here
            assert len(panel.cut.sizes) == sum(cuts) + 1
            assert_cutting_panel_is_right(panel)
            if scaling == "samples":
                assert panel.cut.comparison.exact


@pytest.mark.parametrize("seed", range(3))
def test_controls_in_any_order_leave_the_cutting_panel_right(seed):
    stays_right(CuttingPanel(), assert_cutting_panel_is_right, seed)


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
    reached = []
    panel = CuttingPanel()
    panel.scaling.value = "none"
    for cuts in itertools.product((False, True), repeat=7):
        with panel.hold():
            for gap, here in zip(panel.gaps, cuts, strict=True):
                gap.value = here
        if torch.allclose(panel.cut.accumulated, torch.tensor([4.0, -14.0])):
            reached.append(panel.cut.sizes)
    assert reached == [(2, 2, 2, 2)]
