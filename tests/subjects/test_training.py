import numpy as np
import pytest

from helpers.panels import TrainingPanel
from helpers.panels.training import LEARNING_RATES
from helpers.subjects.training import OPTIMIZERS
from tests.subjects.panels import picture_text, stays_right, values
from tests.subjects.pictures import assert_readable

X, Y = np.array([-2, 3, -1, 2, 4, 1, -2, 0.0]), np.array([-1, 2, 2, 3, 6, 3, 2, 2.0])
NAMES = {"none": "unscaled", "steps": "divided by steps", "samples": "weighted by samples"}
COLOURS = {"none": "#D55E00", "steps": "#0072B2", "samples": "#009E73"}


def again(optimizer, lr, size, k, scaling):
    """Twelve updates in plain float64: losses, gradient norms and the (weight, bias) passed."""
    w, momentum, m, v = np.array([1.0, 0.0]), np.zeros(2), np.zeros(2), np.zeros(2)
    losses, norms, path = [], [], [w]
    parts = 8 // (size * k)
    for update in range(12):
        window = np.arange(8).reshape(parts, k, size)[update % parts]
        errors = [w[0] * X[i] + w[1] - Y[i] for i in window]
        means = [
            np.array([2 * (e * X[i]).mean(), 2 * e.mean()])
            for e, i in zip(errors, window, strict=True)
        ]
        g = np.sum(means, axis=0) / (1 if scaling == "none" else k)
        losses.append(np.square(errors).mean())
        norms.append(np.hypot(*g))
        if optimizer.startswith("SGD"):
            momentum = (0.9 if "momentum" in optimizer else 0) * momentum + g
            w = w - lr * momentum
        else:
            w = w * (1 - 0.01 * lr) if optimizer == "AdamW" else w
            m, v, t = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g, update + 1
            w = w - lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        path.append(w)
    return losses, norms, np.array(path)


def assert_training_panel_is_right(panel):
    k, scaling, size = (
        panel.accumulation_steps.value,
        panel.scaling.value,
        panel.batch_size.value,
    )
    assert size * k <= 8
    picture, table = panel.picture, panel.table
    common = panel.optimizer.value, panel.lr.value
    shown = (picture.full, size * k, 1, "steps"), (picture.run, size, k, scaling)
    ends = []
    for lines, samples, steps, rule in shown:
        losses, norms, path = again(*common, samples, steps, rule)
        ends.append((norms[0], np.hypot(*(path[1] - path[0])), losses[-1]))
        assert_on_the_map(lines[0], path)
        for line, expected in zip(lines[1:], (norms, losses), strict=True):
            assert list(line.get_xdata()) == list(range(1, 13))
            assert list(line.get_ydata()) == pytest.approx(expected, rel=2e-3, abs=2e-3)
    (full, first, _), (gradient, step, _) = ends
    verdict = f"gradient × {short(gradient / full)}, first step × {short(step / first)}"
    assert picture.verdict.get_text() == table.closing == verdict
    for row, end in zip(table.rows, ends, strict=True):
        drawn = [float(cell.replace("−", "-")) for cell in row[1:]]
        assert drawn == pytest.approx(end, rel=1e-2, abs=2e-3)
    assert [row[0] for row in table.rows] == [
        f"full batch of {size * k}",
        f"{k} × {size}, {NAMES[scaling]}",
    ]
    assert {line.get_color() for line in (*picture.run, picture.run_sample)} == {COLOURS[scaling]}
    assert {line.get_color() for line in picture.full} == {"#000000"}
    assert picture.run_name.get_text().startswith(NAMES[scaling])
    assert table.closing in picture_text(panel)
    assert_readable(picture)


def short(ratio):
    return f"{ratio:.4g}"


def assert_on_the_map(line, path):
    """The points of the path that lie on the map are drawn, in order, and no others marked."""
    (left, right), (low, high) = line.axes.get_xlim(), line.axes.get_ylim()
    inside = [point for point in path if left <= point[0] <= right and low <= point[1] <= high]
    drawn = np.column_stack(line.get_data())[line.get_markevery()]
    assert drawn.shape == (len(inside), 2)
    assert np.allclose(drawn, inside, rtol=2e-3, atol=2e-3)


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
