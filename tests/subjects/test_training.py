import pytest

from helpers.panels import TrainingPanel
from helpers.panels.training import LEARNING_RATES
from helpers.subjects.training import OPTIMIZERS
from tests.subjects.panels import picture_text, stays_right, values


def assert_training_panel_is_right(panel):
    k, scaling = panel.accumulation_steps.value, panel.scaling.value
    assert panel.batch_size.value * k <= 8
    assert panel.gradient_ratio == pytest.approx(k if scaling == "none" else 1, rel=1e-5)
    for lines, run in ((panel.picture.full, panel.full), (panel.picture.run, panel.run)):
        path, norms, losses = (line.get_data() for line in lines)
        assert list(zip(*path, strict=True)) == [tuple(weights) for weights in run.weights]
        assert tuple(norms[1]) == run.gradient_norms
        assert tuple(losses[1]) == run.losses
    assert panel.table.closing in picture_text(panel)


@pytest.mark.parametrize("seed", range(3))
def test_controls_in_any_order_leave_the_training_panel_right(seed):
    stays_right(TrainingPanel(), assert_training_panel_is_right, seed)


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
