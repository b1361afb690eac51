import itertools
import math
import random
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch

from helpers.gradients import SCALINGS
from helpers.panels import CuttingPanel, SteppingPanel, TimelinePanel, TrainingPanel
from helpers.panels.training import LEARNING_RATES, OPTIMIZERS

EACH = torch.tensor(
    [(4, -2), (6, 2), (6, -6), (-4, -2), (-16, -4), (-4, -4), (16, -8), (0, -4)]
).double()


def picture_text(panel):
    svg = panel.screen.value
    return " ".join(ElementTree.fromstring(svg[: svg.index("</svg>") + 6]).itertext())


def values(control):
    if hasattr(control, "max"):
        return list(range(control.min, control.max + 1))
    if not hasattr(control, "options"):
        return [False, True]
    return [option[1] if isinstance(option, tuple) else option for option in control.options]


def artists(panel):
    return [len(axes.get_children()) for axes in panel.picture.figure.axes]


def move_at_random(panel, moves, seed):
    """Set controls in random order to random values, as a reader would."""
    chance = random.Random(seed)
    for _ in range(moves):
        control = chance.choice(panel.controls)
        control.value = chance.choice(values(control))
        yield control


# lesson 01


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
    parts = expected(panel.sizes, panel.scaling.value)
    total = parts.sum(0)
    assert torch.allclose(panel.accumulated.double(), total, atol=1e-5)
    assert panel.comparison.exact == torch.equal(panel.accumulated, torch.tensor([1.0, -3.5]))
    tips = [path.vertices[0] for path in panel.picture.micro_arrows.heads.get_paths()]
    assert np.allclose(tips, parts.cumsum(0), atol=1e-5)
    ring = (panel.picture.tip.get_xdata()[0], panel.picture.tip.get_ydata()[0])
    assert ring == pytest.approx(total.tolist(), abs=1e-5)
    shares = [text.get_text() for text in panel.picture.shares if text.get_text()]
    assert shares == [row[1] for row in panel.table.rows[:-1]]
    assert panel.picture.verdict.get_text() in picture_text(panel)


def test_the_panel_opens_on_the_source_documents_example():
    panel = CuttingPanel()
    assert panel.sizes == (4, 4)
    assert panel.losses == [3, 7]
    assert panel.accumulated.tolist() == [1, -3.5]
    assert panel.comparison.exact
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
            assert len(panel.sizes) == sum(cuts) + 1
            assert_cutting_panel_is_right(panel)
            if scaling == "samples":
                assert panel.comparison.exact


@pytest.mark.parametrize("seed", range(3))
def test_controls_in_any_order_leave_the_cutting_panel_right(seed):
    panel = CuttingPanel()
    before = artists(panel)
    for _ in move_at_random(panel, moves=60, seed=seed):
        assert_cutting_panel_is_right(panel)
    assert artists(panel) == before


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_a_shortcut_cuts_equal_steps_and_a_cut_by_hand_releases_it(k):
    panel = CuttingPanel()
    panel.steps.value = k
    assert panel.sizes == (8 // k,) * k
    panel.gaps[0].value = not panel.gaps[0].value
    assert panel.steps.value == {(2, 2, 2, 2): 4, (8,): 1}.get(panel.sizes)
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
    assert panel.sizes == (5, 3)
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
        if torch.allclose(panel.accumulated, torch.tensor([4.0, -14.0])):
            reached.append(panel.sizes)
    assert reached == [(2, 2, 2, 2)]


# lesson 02


def assert_training_panel_is_right(panel):
    k, scaling = panel.accumulation_steps.value, panel.scaling.value
    assert panel.batch_size.value * k <= 8
    assert panel.gradient_ratio == pytest.approx(k if scaling == "none" else 1, rel=1e-5)
    for lines, run in ((panel.picture.full, panel.full), (panel.picture.run, panel.run)):
        path, norms, losses = (line.get_data() for line in lines)
        assert list(zip(*path, strict=True)) == [tuple(weights) for weights in run.weights]
        assert list(norms[1]) == run.gradient_norms
        assert list(losses[1]) == run.losses
    assert panel.table.closing in picture_text(panel)


@pytest.mark.parametrize("seed", range(3))
def test_controls_in_any_order_leave_the_training_panel_right(seed):
    panel = TrainingPanel()
    before = artists(panel)
    for _ in move_at_random(panel, moves=40, seed=seed):
        assert_training_panel_is_right(panel)
    assert artists(panel) == before


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_no_more_steps_can_be_chosen_than_eight_samples_allow(size):
    panel = TrainingPanel()
    panel.batch_size.value = size
    assert values(panel.accumulation_steps) == [k for k in (1, 2, 4, 8) if k * size <= 8]


def test_the_steps_stay_where_they_are_if_they_still_fit():
    panel = TrainingPanel()
    panel.batch_size.value = 2
    assert panel.accumulation_steps.value == 2
    panel.accumulation_steps.value = 4
    panel.batch_size.value = 4
    assert panel.accumulation_steps.value == 2


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_scaled_training_lies_on_the_full_batch_for_every_optimizer(optimizer):
    panel = TrainingPanel()
    with panel.hold():
        panel.optimizer.value, panel.scaling.value = optimizer, "steps"
    assert panel.run.losses == pytest.approx(panel.full.losses, rel=1e-5)


def test_adam_hides_the_missing_division_and_sgd_does_not():
    panel = TrainingPanel()
    panel.batch_size.value, panel.accumulation_steps.value = 2, 4
    first_steps = {}
    for optimizer in OPTIMIZERS:
        panel.optimizer.value = optimizer
        first_steps[optimizer] = round(panel.step_ratio, 3)
    assert first_steps == {"SGD": 4, "SGD, momentum 0.9": 4, "Adam": 1, "AdamW": 1}


def test_unscaled_four_steps_of_two_converge_at_1_32_and_not_at_1_16():
    panel = TrainingPanel()
    panel.batch_size.value, panel.accumulation_steps.value = 2, 4
    ends = {}
    for name, lr in LEARNING_RATES:
        panel.lr.value = lr
        ends[name] = panel.run.losses[-1]
    assert max(ends["1/64"], ends["1/32"]) < 2
    assert 5 < ends["1/16"] < ends["1/8"] < ends["1/4"]
    with panel.hold():
        panel.optimizer.value, panel.lr.value = "SGD, momentum 0.9", 1 / 16
    assert panel.run.losses[-1] < 2


# lesson 03


def assert_timeline_panel_is_right(panel):
    samples, epochs = panel.samples.value, panel.epochs.value
    places = [
        (batch.epoch * samples + i, batch.weight * sum(len(b.samples) for b in u.micro_batches))
        for u in panel.run.updates
        for batch in u.micro_batches
        for i in batch.samples
    ]
    shares = [dict(places).get(place, 0) for place in range(samples * epochs)]
    assert panel.shares == pytest.approx(shares)
    bars = [path.vertices for path in panel.picture.shares.bars.get_paths()]
    drawn = {i: bar[1][1] for bar in bars for i in range(round(bar[0][0]), round(bar[2][0]))}
    assert [drawn[place] for place in range(samples * epochs)] == pytest.approx(shares)
    assert len(panel.picture.steps.get_xdata()) == len(panel.run.updates)
    crosses = [x - 0.5 for x in panel.picture.shares.crosses.get_xdata()]
    assert crosses == [place for place, share in enumerate(shares) if share == 0]
    top = panel.picture.shares.axes.get_ylim()[1]
    assert max(shares) < top


@pytest.mark.parametrize("seed", range(3))
def test_controls_in_any_order_leave_the_timeline_panel_right(seed):
    panel = TimelinePanel()
    before = artists(panel)
    for _ in move_at_random(panel, moves=60, seed=seed):
        assert_timeline_panel_is_right(panel)
    assert artists(panel) == before


@pytest.mark.parametrize("policy", ["true mean", "divided by k", "dropped", "carried on", "leaked"])
def test_all_policies_agree_when_the_samples_divide(policy):
    panel = TimelinePanel()
    panel.samples.value, panel.policy.value = 6, policy
    assert panel.shares == pytest.approx([1] * 12)


def test_the_targets_of_the_timeline_panel_have_the_answers_given():
    panel = TimelinePanel()
    with panel.hold():
        panel.samples.value, panel.batch_size.value = 26, 4
    assert panel.shares == pytest.approx(([1] * 24 + [1 / 3] * 2) * 2)
    with panel.hold():
        panel.batch_size.value, panel.accumulation_steps.value = 1, 6
        panel.policy.value = "leaked"
    most = 0
    for panel.samples.value in range(1, 41):
        most = max([most, *(update.total_weight for update in panel.run.updates)])
    assert most == pytest.approx(11 / 6)
    with panel.hold():
        panel.samples.value, panel.policy.value = 5, "dropped"
    assert panel.run.updates == ()


def right_loop(model, optimizer, batches, k):
    optimizer.zero_grad()
    for i, batch in enumerate(batches):
        (model(batch).mean() / k).backward()
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()


def clearing_loop(model, optimizer, batches, k):
    for batch in batches:
        optimizer.zero_grad()
        (model(batch).mean() / k).backward()


def stepping_panel():
    loops = {"right": right_loop, "clearing": clearing_loop}
    return SteppingPanel(loops, (1, 2, 4, 8, 16), accumulation_steps=4)


def assert_stepping_panel_is_right(panel):
    now = panel.runs[panel.loop.value][panel.moment.value]
    assert panel.now == now
    heights = [path.vertices[2][1] for path in panel.picture.bars.get_paths()]
    assert heights == pytest.approx(np.cumsum([part for _, part in now.held]).tolist())
    lit = [path.vertices[0][1] for path in panel.picture.light.get_paths()]
    assert lit == ([now.line] if now.line >= 0 else [])
    source = [text.get_text().replace("\xa0", " ") for text in panel.picture.lines]
    assert [line for line in source if line] == panel.sources[panel.loop.value]
    assert f"updates {now.updates}" in picture_text(panel)


@pytest.mark.parametrize("seed", range(3))
def test_controls_in_any_order_leave_the_stepping_panel_right(seed):
    panel = stepping_panel()
    before = artists(panel)
    for _ in move_at_random(panel, moves=60, seed=seed):
        assert_stepping_panel_is_right(panel)
    assert artists(panel) == before


def test_back_and_forward_go_line_by_line_and_stop_at_the_ends():
    panel = stepping_panel()
    panel.back.click()
    assert panel.moment.value == 0
    for line in range(1, 4):
        panel.forward.click()
        assert panel.moment.value == line
    panel.back.click()
    assert panel.moment.value == 2
    panel.moment.value = panel.moment.max
    panel.forward.click()
    assert panel.moment.value == panel.moment.max


def test_another_loop_starts_from_its_first_line_with_its_own_length():
    panel = stepping_panel()
    panel.moment.value = panel.moment.max
    panel.loop.value = "clearing"
    assert (panel.moment.value, panel.moment.max) == (0, len(panel.runs["clearing"]) - 1)


def long_loop(model, optimizer, batches, k):
    """A loop

    of

    more

    lines

    than

    fit,

    that

    is

    17
    """


@pytest.mark.parametrize(
    ("loops", "message"),
    [
        ({}, "loops must hold at least one loop, got none"),
        ({"long": long_loop}, "loops must have at most 16 lines, got 19 in 'long'"),
    ],
)
def test_loops_that_can_not_be_shown_are_refused(loops, message):
    with pytest.raises(ValueError, match=message):
        SteppingPanel(loops, (1, 2), 2)


# all

PANELS = {
    "cutting": CuttingPanel,
    "training": TrainingPanel,
    "timeline": TimelinePanel,
    "stepping": stepping_panel,
}


@pytest.mark.parametrize("make", PANELS.values(), ids=PANELS)
def test_a_panel_is_a_widget_a_described_image_and_a_table(make):
    data, metadata = make()._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["image/png"].startswith("iVBOR")
    assert metadata["image/png"]["alt"] == make().alt
    assert make().alt.startswith(make().title + ": ")
    assert data["text/plain"] == make().table.text()


@pytest.mark.parametrize("make", PANELS.values(), ids=PANELS)
def test_moving_the_controls_back_shows_the_same_picture_again(make):
    panel = make()
    before, start = panel.screen.value, [control.value for control in panel.controls]
    assert len({panel.screen.value for _ in move_at_random(panel, moves=20, seed=1)}) > 5
    for control, value in zip(panel.controls, start, strict=True):
        control.value = value
    assert panel.screen.value == before


@pytest.mark.parametrize("make", [CuttingPanel, TrainingPanel])
def test_numbers_in_a_picture_are_finite(make):
    panel = make()
    for _ in move_at_random(panel, moves=20, seed=7):
        numbers = panel.accumulated.tolist() if make is CuttingPanel else panel.run.losses
        assert all(map(math.isfinite, numbers))
