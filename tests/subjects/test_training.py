import functools
import itertools
import math
import re

import numpy as np
import pytest
from matplotlib.colors import to_hex

from helpers.figures.training import clipped
from helpers.panels import TrainingPanel
from helpers.panels.training import LEARNING_RATES
from helpers.subjects.training import OPTIMIZERS, loss_surface
from tests.subjects.panels import picture_text, stays_right, values
from tests.subjects.pictures import assert_readable, legend_looks, outside_their_axes

SAMPLES = [(-2, -1), (3, 2), (-1, 2), (2, 3), (4, 6), (1, 3), (-2, 2), (0, 2)]
COLOURS = {"none": "#d55e00", "steps": "#0072b2", "samples": "#009e73"}
NAMES = {"none": "unscaled", "steps": "divided by steps", "samples": "weighted by samples"}
LEFT, RIGHT, BOTTOM, TOP = -1, 2.4, -0.8, 4.2  # the map of the loss
UPDATES = 12


def text_of(value, digits):
    return f"{value:.{digits}g}".replace("-", "−") if value else "0"


@functools.cache
def by_hand(optimizer, lr, batch, scale):
    """Losses, gradient norms and weights of twelve updates in plain arithmetic.

    Each gradient is ``scale`` times the mean's. The optimizers are written out from their papers.
    """
    w, losses, norms, path = [1.0, 0.0], [], [], [(1.0, 0.0)]
    first, second = [0.0, 0.0], [0.0, 0.0]
    for update in range(1, UPDATES + 1):
        begin = (update - 1) * batch % 8
        errors = [(w[0] * x + w[1] - y, x) for x, y in SAMPLES[begin : begin + batch]]
        losses.append(sum(e * e for e, _ in errors) / batch)
        g = [
            scale * sum(2 * e * d for e, d in ((e, (x, 1)[i]) for e, x in errors)) / batch
            for i in (0, 1)
        ]
        norms.append(math.hypot(*g))
        for i in (0, 1):
            if optimizer == "SGD":
                w[i] -= lr * g[i]
            elif optimizer == "SGD, momentum 0.9":
                first[i] = 0.9 * first[i] + g[i]
                w[i] -= lr * first[i]
            else:
                if optimizer == "AdamW":
                    w[i] *= 1 - lr * 0.01
                first[i] = 0.9 * first[i] + 0.1 * g[i]
                second[i] = 0.999 * second[i] + 0.001 * g[i] ** 2
                mean, square = first[i] / (1 - 0.9**update), second[i] / (1 - 0.999**update)
                w[i] -= lr * mean / (math.sqrt(square) + 1e-8)
        path.append(tuple(w))
    return losses, norms, path


def expected_runs(panel):
    """The full batch's run and the chosen one's, from the controls."""
    k, batch = panel.accumulation_steps.value, panel.batch_size.value
    scale = k if panel.scaling.value == "none" else 1
    common = panel.optimizer.value, panel.lr.value, batch * k
    return by_hand(*common, 1), by_hand(*common, scale)


def near(numbers):
    """float32 over twelve updates, of which some grow to 1e26."""
    numbers = np.array(numbers, float)
    return pytest.approx(numbers, rel=1e-3, abs=2e-4)


def on_the_map(point):
    return LEFT <= point[0] <= RIGHT and BOTTOM <= point[1] <= TOP


def assert_walk_is_right(line, path):
    """Each point on the map is marked; beyond, the line runs straight on to the map's edge."""
    drawn = np.transpose(line.get_data())
    marked = drawn[line.get_markevery()]
    inside = [point for point in path if on_the_map(point)]
    assert marked == near(inside)
    # Every piece drawn lies on a step between two neighbours of the path.
    on = on_steps(drawn, np.array(path))
    finite = np.isfinite(drawn).all(1)
    pieces = finite[:-1] & finite[1:]
    assert (on[:-1] & on[1:]).any(1)[pieces].all()
    # Every other point is one of the map's edge, where a step leaves the map or comes onto it.
    given = set(line.get_markevery())
    for x, y in np.delete(drawn, list(given), axis=0):
        assert np.isnan(x) or min(x - LEFT, RIGHT - x, y - BOTTOM, TOP - y) < 1e-3
    crossings = sum(on_the_map(a) != on_the_map(b) for a, b in itertools.pairwise(path))
    edges = len(drawn) - len(given) - np.isnan(drawn[:, 0]).sum()
    assert edges >= crossings
    assert (edges - crossings) % 2 == 0  # steps across the whole map have two


def on_steps(points, path):
    """Whether each point lies on each step of the path, to what float32 can tell."""
    starts, along = path[:-1], np.diff(path, axis=0)
    way = points[:, None] - starts
    shares = ((way * along).sum(2) / (along**2).sum(1)).clip(0, 1)
    slack = 2e-3 + 1e-3 * np.abs(way).max(2)
    return np.abs(starts + shares[..., None] * along - points[:, None]).max(2) < slack


def assert_numbers_are_right(panel, table, colours):
    full, run = expected_runs(panel)
    k, batch, scaling = (
        panel.accumulation_steps.value,
        panel.batch_size.value,
        panel.scaling.value,
    )
    assert batch * k <= 8
    colour = COLOURS[scaling]
    assert [to_hex(c) for c in colours] == ["#000000", colour]
    for lines, (losses, norms, path) in ((panel.picture.full, full), (panel.picture.run, run)):
        walk, *curves = lines
        assert_walk_is_right(walk, path)
        for line, numbers in zip(curves, (norms, losses), strict=True):
            assert list(line.get_xdata()) == list(range(1, UPDATES + 1))
            assert line.get_ydata() == near(numbers)
    assert {to_hex(line.get_color()) for line in panel.picture.full} == {"#000000"}
    drawn = (*panel.picture.run, panel.picture.run_sample)
    assert {to_hex(line.get_color()) for line in drawn} == {colour}
    assert {line.get_linestyle() for line in panel.picture.full} == {"--"}
    assert {line.get_linestyle() for line in drawn} == {"-"}

    off = [sum(not on_the_map(point) for point in path) for _, _, path in (full, run)]
    said = [f", {n} of 12 off the map" if n else "" for n in off]
    assert panel.picture.full_name.get_text() == "full batch" + said[0]
    assert panel.picture.run_name.get_text() == NAMES[scaling] + said[1]

    first_steps = [math.dist(*path[:2]) for _, _, path in (full, run)]
    ratios = run[1][0] / full[1][0], first_steps[1] / first_steps[0]
    assert (panel.gradient_ratio, panel.step_ratio) == pytest.approx(ratios, rel=1e-4)
    closing = f"against the full batch: gradient × {text_of(round(ratios[0], 4), 4)}, first step × "
    assert table.closing.startswith(closing)
    assert float(table.closing.removeprefix(closing)) == pytest.approx(ratios[1], rel=1e-3)
    assert panel.picture.verdict.get_text() == table.closing
    assert table.heading == ("run", "first gradient norm", "first step", "loss of update 12")
    names = [f"full batch of {batch * k}", f"{k} × {batch}, {NAMES[scaling]}"]
    assert [row[0] for row in table.rows] == names
    for row, step, (losses, norms, _) in zip(table.rows, first_steps, (full, run), strict=True):
        shown = [float(cell.replace("−", "-")) for cell in row[1:]]
        assert shown == pytest.approx([norms[0], step, losses[-1]], rel=6e-3)
        assert all(len(re.sub("e.*|[^0-9]", "", cell).lstrip("0")) <= 3 for cell in row[1:])
    assert_axes_hold(panel.picture, full, run)


def assert_axes_hold(picture, full, run):
    """All numbers in view, the usual view where that will do, and no view far too wide."""
    assert list(outside_their_axes(picture)) == []
    path, norms, losses = picture.figure.axes
    assert (*path.get_xlim(), *path.get_ylim()) == (LEFT, RIGHT, BOTTOM, TOP)
    for axes, index, usual in ((losses, 0, (0.9, 2000)), (norms, 1, (0.05, 2000))):
        assert axes.get_xlim() == (0.7, 12.3)
        assert list(axes.get_xticks()) == list(range(1, 13))
        assert axes.get_yscale() == "log"
        low, high = axes.get_ylim()
        smallest, largest = min(full[index] + run[index]), max(full[index] + run[index])
        assert low == usual[0] if smallest > usual[0] * 1.001 else low > smallest / 101
        assert high == usual[1] if largest < usual[1] / 1.001 else high < largest * 1.01e6


def assert_training_panel_is_right(panel):
    marked = re.findall("border-left:6px solid (#[0-9A-Fa-f]{6})", panel.screen.value)
    assert_numbers_are_right(panel, panel.table, marked)
    assert_readable(panel.picture)
    text = picture_text(panel)
    for said in (panel.table.closing, panel.picture.full_name, panel.picture.run_name):
        assert (said if isinstance(said, str) else said.get_text()) in text
    assert panel.alt == f"Training on the eight samples: {panel.table.closing}"
    assert f'aria-label="{panel.alt}"' in panel.screen.value


def test_every_setting_shows_the_right_numbers():
    panel, seen = TrainingPanel(), set()
    with panel.hold():  # not redrawn
        for size in values(panel.batch_size):
            panel.batch_size.value = size
            others = (panel.accumulation_steps, panel.scaling, panel.optimizer, panel.lr)
            for setting in itertools.product(*map(values, others)):
                for control, value in zip(others, setting, strict=True):
                    control.value = value
                assert_numbers_are_right(panel, *panel.follow())
                seen.add((size, *setting))
    assert len(seen) == 10 * 3 * 4 * 5


def test_controls_at_every_end_and_in_any_order_leave_the_training_panel_right():
    stays_right(TrainingPanel(), assert_training_panel_is_right, seed=0, moves=12)


def test_what_stands_still_names_every_axis_and_every_decade():
    figure = TrainingPanel().picture.figure
    path, norms, losses = figure.axes
    assert (path.get_xlabel(), path.get_ylabel()) == ("weight", "bias")
    assert (norms.get_title(), losses.get_title()) == ("gradient norm", "loss")
    assert losses.get_xlabel() == "update"
    (minimum,) = [line for line in path.lines if line.get_marker() == "+"]
    assert np.ravel(minimum.get_data()) == pytest.approx(least_squares())


def least_squares():
    """Weight and bias of the line through the eight samples, from their means."""
    mx, my = (sum(column) / 8 for column in zip(*SAMPLES, strict=True))
    weight = sum((x - mx) * (y - my) for x, y in SAMPLES) / sum((x - mx) ** 2 for x, _ in SAMPLES)
    return weight, my - weight * mx


def test_a_surface_has_two_points_a_side_at_least():
    assert loss_surface(points=2).weights == (-1, 2.4)
    with pytest.raises(ValueError, match="points must be"):
        loss_surface(points=1)


def test_the_surface_is_the_mean_loss_at_every_point_of_the_map():
    surface = loss_surface(points=5)
    assert surface.weights == pytest.approx([LEFT + i * (RIGHT - LEFT) / 4 for i in range(5)])
    assert surface.biases == pytest.approx([BOTTOM + i * (TOP - BOTTOM) / 4 for i in range(5)])
    for bias, row in zip(surface.biases, surface.losses, strict=True):
        for weight, loss in zip(surface.weights, row, strict=True):
            assert loss == pytest.approx(sum((weight * x + bias - y) ** 2 for x, y in SAMPLES) / 8)
    assert surface.minimum == pytest.approx(least_squares())


@pytest.mark.parametrize(
    ("points", "shown", "given"),
    [
        ([(1, 1), (2, 2)], [(1, 1), (2, 2)], [0, 1]),
        ([(1, 1), (5, 1)], [(1, 1), (3, 1)], [0]),
        ([(1, 1), (5, 1), (1, 2)], [(1, 1), (3, 1), None, (3, 1.5), (1, 2)], [0, 4]),
        ([(1, 1), (1, 9), (-8, 0)], [(1, 1), (1, 3)], [0]),
        ([(-1, 2), (4, 2)], [None, (0, 2), (3, 2)], []),
        ([(1, 1), (1, 1)], [(1, 1), (1, 1)], [0, 1]),
    ],
    ids=["inside", "out", "out and back", "outside", "across", "no step"],
)
def test_a_line_is_cut_at_the_edge_of_its_box(points, shown, given):
    expected = [(np.nan, np.nan) if point is None else point for point in shown]
    kept, found = clipped(np.array(points, float), np.zeros(2), np.full(2, 3.0))
    assert found == given
    assert np.array_equal(kept, expected, equal_nan=True)


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


def test_the_key_of_the_map_names_its_contours_and_its_cross():
    path = TrainingPanel().picture.axes[0]
    looks = legend_looks(path.get_legend())
    assert looks == {"equal loss": ("None", "-", "#bbbbbb"), "least loss": ("+", "None", "#777777")}
    (contours,) = path.collections
    assert {to_hex(colour) for colour in contours.get_edgecolor()} == {"#bbbbbb"}
    (cross,) = (line for line in path.lines if line.get_marker() == "+")
    assert (*cross.get_xydata()[0],) == pytest.approx(loss_surface().minimum)
