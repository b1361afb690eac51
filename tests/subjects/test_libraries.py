"""The training loops of five libraries: what they leave behind, and what the rules say of them."""

import itertools
import json
import os
import subprocess
import sys
from fractions import Fraction
from operator import sub
from pathlib import Path

import matplotlib
import pytest
import torch
from matplotlib.colors import to_rgb

from helpers.panels import LibrariesPanel
from helpers.subjects.libraries import LOOPS, WAYS, expected, measure, measured, weighted
from helpers.subjects.library_loops import LinearLoss, Settings, one_by_one
from tests.subjects.panels import stays_right, values
from tests.subjects.pictures import assert_readable

ROOT = Path(__file__).parents[2]

# In a process of its own: what an import changes, it changes once.
BEHIND = """
import gc, json, logging, os, random, sys, threading, warnings
import numpy as np
import torch
from helpers.subjects import library_loops as libraries

def state():
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "warning filters": [str(f) for f in warnings.filters],
        "warning format": repr(warnings.formatwarning),
        "random": hash(random.getstate()),
        "numpy": np.random.get_state()[1].tolist(),
        "torch": torch.get_rng_state().tolist(),
        "dtype": str(torch.get_default_dtype()),
        "threads": torch.get_num_threads(),
        "precision": torch.get_float32_matmul_precision(),
        "conv": torch.backends.cudnn.conv.fp32_precision,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "benchmark": torch.backends.cudnn.benchmark,
        "gradients": torch.is_grad_enabled(),
        "logging": [logging.root.level, logging.root.manager.disable, str(logging.root.handlers)],
        "excepthook": repr(sys.excepthook),
        "frozen": gc.get_freeze_count(),
        "running": [t.name for t in threading.enumerate()],
    }

loaded = [m for m in ("accelerate", "lightning", "transformers", "keras") if m in sys.modules]
before = state()
batches = libraries.one_by_one([1, 10, 100])
for loop in (
    libraries.with_accelerate,
    libraries.with_lightning,
    libraries.with_trainer,
    libraries.with_keras,
):
    model = libraries.LinearLoss()
    loop(model, batches, libraries.Settings(2))
    after = state()
    changed = [name for name in before if before[name] != after[name]]
    print(json.dumps([loop.__name__, changed]), file=sys.__stderr__)
print(json.dumps(["imported", loaded]), file=sys.__stderr__)
from accelerate.state import AcceleratorState, GradientState, PartialState
shared = [k._shared_state for k in (AcceleratorState, GradientState, PartialState)]
print(json.dumps(["accelerate", [str(s) for s in shared if s]]), file=sys.__stderr__)
"""


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory) -> dict[str, list[str]]:
    """What a process that runs every library finds changed after each, and what files it has."""
    home = tmp_path_factory.mktemp("home")
    places = {"HOME": home, "TMPDIR": home, "PYTHONPATH": ROOT}
    places["MPLCONFIGDIR"] = matplotlib.get_cachedir()  # else building a font cache takes seconds
    environment = {**os.environ, **{name: str(path) for name, path in places.items()}}
    run = subprocess.run(
        [sys.executable, "-c", BEHIND],
        cwd=home,
        env=environment | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    found = dict(json.loads(line) for line in run.stderr.splitlines())
    return {**found, "files": sorted(map(str, home.rglob("*"))), "printed": run.stdout}


def test_importing_the_module_imports_no_library(left_behind):
    assert left_behind["imported"] == []


@pytest.mark.parametrize("loop", ["accelerate", "lightning", "trainer", "keras"])
def test_a_library_changes_no_global_state(left_behind, loop):
    assert left_behind[f"with_{loop}"] == []


def test_accelerates_shared_state_is_empty_again(left_behind):
    assert left_behind["accelerate"] == []


def test_no_library_leaves_a_file_or_prints_a_word(left_behind):
    assert (left_behind["files"], left_behind["printed"]) == ([], "")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"accumulation_steps": 0}, "accumulation_steps must be a whole number of at least 1"),
        ({"accumulation_steps": 2, "epochs": 0}, "epochs must be a whole number of at least 1"),
        ({"accumulation_steps": 2, "lr": 0.0}, "lr must be above 0, got 0.0"),
        ({"accumulation_steps": 2, "max_norm": -1.0}, "max_norm must be above 0, got -1.0"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(setting, message):
    with pytest.raises(ValueError, match=message):
        Settings(**setting)


# what each loop does, measured


TENS = one_by_one([1, 10, 100, 1000, 10000])
# for k = 4 and two epochs: the updates, their divisors, what is in them, moves of the schedule
TWO_EPOCHS = {
    "plain PyTorch": ([277.75, 2777.75], [4, 4], [(0, 1, 2, 3), (4, 5, 6, 7, 8)], (0, 1)),
    "Accelerate": (
        [277.75, 2500, 277.75, 2500],
        [4] * 4,
        [(0, 1, 2, 3), (4,), (5, 6, 7, 8), (9,)],
        (0, 1, 2, 3),
    ),
    "Lightning": (
        [277.75, 2500, 277.75, 2500],
        [4] * 4,
        [(0, 1, 2, 3), (4,), (5, 6, 7, 8), (9,)],
        (0, 1, 2, 3),
    ),
    "Transformers": (
        [277.75, 10000, 277.75, 10000],
        [4, 1, 4, 1],
        [(0, 1, 2, 3), (4,), (5, 6, 7, 8), (9,)],
        (0, 1, 2, 3),
    ),
    "Keras": ([277.75, 2527.75], [4, 4], [(0, 1, 2, 3), (4, 5, 6, 7)], (3, 7)),
}
LAST_WINDOW = {
    "plain PyTorch": ("runs into the next epoch", (9,), [True, False]),
    "Accelerate": ("an update of its own", (), [True, False, True, False]),
    "Lightning": ("an update of its own", (), [True, False, True, False]),
    "Transformers": ("an update of its own", (), [True] * 4),
    "Keras": ("runs into the next epoch", (8, 9), [True, True]),
}


@pytest.mark.parametrize("library", LOOPS)
def test_two_epochs_of_powers_of_ten(library):
    run = measure(library, LinearLoss(), TENS, Settings(4, epochs=2, halving=True))
    gradients, divisors, inside, moves = TWO_EPOCHS[library]
    assert [update.gradient.item() for update in run.updates] == gradients
    assert [update.divisor for update in run.updates] == pytest.approx(divisors)
    assert [update.micro_batches for update in run.updates] == inside
    assert run.moves == moves
    last_window, unused, is_full = LAST_WINDOW[library]
    assert (run.last_window, run.unused) == (last_window, unused)
    assert [update.is_full_batch for update in run.updates] == is_full


@pytest.mark.parametrize("library", ["plain PyTorch", "Keras"])
def test_a_last_window_without_an_update_is_said_to_have_none(library):
    run = measure(library, LinearLoss(), TENS, Settings(4))
    assert (run.last_window, run.unused) == ("no update", (4,))


def test_a_measured_model_is_left_as_it_was():
    model = LinearLoss()
    model.weight.grad = torch.ones(1)
    measure("plain PyTorch", model, TENS, Settings(4))
    assert (model.weight.item(), model.weight.grad.item()) == (0, 1)


def test_an_update_of_zero_has_no_divisor():
    run = measure("plain PyTorch", LinearLoss(), one_by_one([1, -1]), Settings(2))
    assert run.updates[0].divisor is None


def test_a_turned_gradient_has_no_divisor():
    batches = [{"x": torch.tensor(rows)} for rows in ([[1.0, 0.0]], [[0.0, 1.0]] * 3)]
    run = measure("plain PyTorch", LinearLoss(2), weighted(batches, 2), Settings(2))
    assert run.updates[0].gradient.tolist() == [0.25, 0.75]
    assert run.updates[0].divisor is None
    assert run.updates[0].is_full_batch


def test_factors_are_n_k_over_the_samples_of_the_window():
    batches = [{"x": torch.ones(n, 1)} for n in (4, 4, 1, 3)]
    factors = [batch["factor"].tolist() for batch in weighted(batches, 3)]
    assert [len(factor) for factor in factors] == [4, 4, 1, 3]
    assert [factor[0] for factor in factors] == pytest.approx([12 / 9, 12 / 9, 3 / 9, 9 / 3])
    assert all(len(set(factor)) == 1 for factor in factors)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: measure("Jax", LinearLoss(), TENS, Settings(4)), "library must be one of 'plain"),
        (lambda: measure("Keras", LinearLoss(), [], Settings(4)), "batches must hold at least one"),
        (lambda: expected("Jax", 8, 4, 2, 1, WAYS[0]), "library must be one of .*, got 'Jax'"),
        (lambda: expected("Keras", 8, 4, 2, 1, "well"), "way must be one of .*, got 'well'"),
        (lambda: expected("Keras", 0, 4, 2, 1, WAYS[0]), "samples must be .* at least 1, got 0"),
        (lambda: measured("Keras", 8, 4, 0, 1, WAYS[1]), "accumulation_steps must be"),
        (lambda: weighted([], 0), "accumulation_steps must be .* at least 1, got 0"),
    ],
)
def test_what_makes_no_sense_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# the rules, proved by running the libraries


PROVED = [(7, 2, 3, 2), (13, 4, 3, 2), (2, 1, 4, 2), (16, 4, 2, 1), (5, 4, 1, 2), (9, 2, 4, 3)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("library", LOOPS)
def test_a_rule_is_what_the_library_does(library, way):
    for numbers in PROVED:
        rule, run = expected(library, *numbers, way), measured(library, *numbers, way)
        assert run.owners() == rule.owners(), numbers
        assert run.shares() == pytest.approx(rule.shares(), rel=1e-5), numbers
        assert run.step_ends() == rule.step_ends(), numbers
        assert run.batch_ends() == rule.batch_ends(), numbers


# the panel


NAMES = ("right", "plain PyTorch", "Accelerate", "Lightning", "Transformers", "Keras")
OKABE_ITO = ("#E69F00", "#56B4E9", "#CC79A7", "#999999")


def by_hand(name, samples, batch_size, k, way):
    """Windows as lists of (first sample, size, weight of each sample), and where steps are."""
    drawn = [
        (epoch * samples + start, min(batch_size, samples - start), start + batch_size >= samples)
        for epoch in range(2)
        for start in range(0, samples, batch_size)
    ]
    mended = way == "mended" or name == "right"
    flushed = name in ("Accelerate", "Lightning", "Transformers") or (mended and name != "Keras")
    windows, held, count = [], [], 0
    for first, size, last in drawn:
        held.append((first, size))
        count += 1
        if count == k or (last and flushed):
            total, steps = sum(n for _, n in held), len(held) if name == "Transformers" else k
            weights = [Fraction(1, total) if mended else Fraction(1, steps * n) for _, n in held]
            windows.append([(*piece, w) for piece, w in zip(held, weights, strict=True)])
            held, count = [], 0
        if last and name == "plain PyTorch":
            count = 0
    return windows


def drawn_by_hand(name, samples, batch_size, k, way):
    """Shares and owners of the samples of two epochs, and where the steps are."""
    shares, owners, steps = [Fraction(0)] * (2 * samples), [None] * (2 * samples), []
    for number, window in enumerate(by_hand(name, samples, batch_size, k, way)):
        total = sum(size for _, size, _ in window)
        for first, size, weight in window:
            shares[first : first + size] = [weight * total] * size
            owners[first : first + size] = [number] * size
        steps.append(window[-1][0] + window[-1][1])
    return shares, owners, steps


def settings_of(panel):
    controls = (panel.samples, panel.batch_size, panel.accumulation_steps, panel.way)
    return [values(control) for control in controls]


def test_every_setting_of_the_panel_gives_the_weights_worked_out_by_hand():
    most = 0
    for samples, batch_size, k, way in itertools.product(*settings_of(LibrariesPanel())):
        for name in NAMES[1:]:
            run = expected(name, samples, batch_size, k, 2, way)
            shares, owners, steps = drawn_by_hand(name, samples, batch_size, k, way)
            used = zip(run.shares(), run.owners(), strict=True)
            drawn = [share if owner is not None else 0 for share, owner in used]
            assert max(map(abs, map(sub, drawn, map(float, shares)))) < 1e-9
            assert (run.owners(), run.step_ends()) == (owners, steps)
            most = max(most, *drawn)
    assert most < 5  # the tallest bar that the picture has room for


def shown(name, panel):
    """A run's numbers as the panel must show them."""
    setting = panel.samples.value, panel.batch_size.value, panel.accumulation_steps.value
    return drawn_by_hand(name, *setting, panel.way.value)


def said(run, right):
    """What is written beside a row."""
    shares, owners, _ = run
    if run[:2] == right[:2]:
        return "every sample alike"
    wrong = []
    if None in owners:
        wrong.append("samples unused")
    elif owners != right[1]:
        wrong.append("other windows")
    if any(s != 1 for s, owner in zip(shares, owners, strict=True) if owner is not None):
        wrong.append("unequal weights")
    return ",\n".join(wrong)


def assert_libraries_panel_is_right(panel):
    runs, drawn = {name: shown(name, panel) for name in NAMES}, 2 * panel.samples.value
    picture, axes = panel.picture, panel.picture.axes
    assert_readable(picture)

    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    assert (left, bottom, top) == (0, 0, 6)
    assert drawn <= right <= max(8, 2 * drawn)
    ticks = {
        label.get_text(): at
        for label, at in zip(axes.get_yticklabels(), axes.get_yticks(), strict=True)
    }
    assert list(ticks) == list(NAMES)

    fair = [segment.tolist() for segment in picture.fair.get_segments()]
    scale = fair[-1][0][1]
    assert fair == [[[0, 5 - i + scale], [drawn, 5 - i + scale]] for i in range(6)]
    assert 0.15 < scale < 0.6
    bars = [path.vertices for path in picture.bars.get_paths()]
    colours, steps, unused = picture.bars.get_facecolor(), [], []
    size, half = panel.batch_size.value, panel.samples.value
    starts = [epoch * half + at for epoch in range(2) for at in range(0, half, size)]
    batch_ends = [*starts[1:], drawn]
    for row, (name, (shares, owners, ends)) in enumerate(runs.items()):
        floor = 5 - row
        assert floor < ticks[name] < floor + 1
        mine = slice(row * len(batch_ends), (row + 1) * len(batch_ends))
        for at, end, bar, colour in zip(starts, batch_ends, bars[mine], colours[mine], strict=True):
            (x0, y0), (x1, y1), (x2, y2), (x3, y3) = bar[:4]
            assert (x0, x1, x2, x3, y0, y3) == (at, at, end, end, floor, floor)
            if owners[at] is None:
                assert colour[:3].tolist() == [1, 1, 1]
                unused += [(place + 0.5, floor) for place in range(at, end)]
            else:
                assert y1 == y2 == pytest.approx(floor + scale * float(shares[at]))
                full = to_rgb(OKABE_ITO[owners[at] % 4])
                pale = [0.75 + 0.25 * c for c in full]
                assert colour[:3].tolist() == pytest.approx(pale, abs=1 / 255)
        steps += [(end, floor) for end in ends]
        assert picture.verdicts[row].get_text() == said(runs[name], runs["right"])
        _, at = axes.transAxes.transform(picture.verdicts[row].get_position())
        assert at == pytest.approx(axes.transData.transform((0, ticks[name]))[1])
    assert len(bars) == 6 * len(batch_ends)
    for line, points, marker in ((picture.steps, steps, "v"), (picture.unused, unused, "x")):
        assert [(x, int(y)) for x, y in line.get_xydata().tolist()] == points
        assert line.get_marker() == marker
    ends = [segment.tolist() for segment in picture.epoch.get_segments()]
    assert ends == [[[end, 0], [end, 6]] for end in (drawn / 2, drawn)]

    heading = ("two epochs", "updates", "lightest sample", "heaviest sample", "unused")
    assert panel.table.heading == heading
    for name, row in zip(NAMES, panel.table.rows, strict=True):
        shares, owners, ends = runs[name]
        used = [s for s, owner in zip(shares, owners, strict=True) if owner is not None]
        spread = [f"{float(end(used)):.3g}" if used else "–" for end in (min, max)]
        assert row == (name, str(len(ends)), *spread, str(owners.count(None)))
    alike = [name for name in NAMES[1:] if runs[name][:2] == runs["right"][:2]]
    assert panel.table.closing == f"as the right ones: {', '.join(alike) or 'none'}"
    assert panel.alt == f"The same samples in every library: {panel.table.closing}"
    assert panel.alt in panel.screen.value


@pytest.mark.parametrize("seed", range(2))
def test_controls_in_any_order_leave_the_libraries_panel_right(seed):
    stays_right(LibrariesPanel(), assert_libraries_panel_is_right, seed, moves=12)


def test_the_panel_runs_what_it_draws(monkeypatch):
    panel = LibrariesPanel()
    panel.set(5, 1, 4)
    assert (panel.samples.value, panel.batch_size.value, panel.accumulation_steps.value) == (
        5,
        1,
        4,
    )
    assert list(panel.run_them()) == [(name, True) for name in LOOPS]
    panel.runs["Keras"] = panel.runs["Accelerate"]
    assert dict(panel.run_them())["Keras"] is False


def alike(way):
    """For each setting the libraries that do the right thing, worked out by hand."""
    for numbers in itertools.product(*settings_of(LibrariesPanel())[:3]):
        right = drawn_by_hand("right", *numbers, way)
        yield numbers, [n for n in NAMES[1:] if drawn_by_hand(n, *numbers, way) == right]


def test_the_targets_of_the_libraries_panel_have_the_answers_given():
    found = dict(alike("as it comes"))
    for (samples, size, k), right in found.items():
        if -(-samples // size) % k:  # the last window is short
            assert right in ([], ["Transformers"])
    assert found[2, 1, 4] == ["Transformers"]
    assert found[13, 4, 4] == []
    shares, *_ = drawn_by_hand("plain PyTorch", 13, 4, 3, "as it comes")
    assert max(shares) == Fraction(13, 3)
    assert dict(alike("mended"))[7, 2, 3] == list(NAMES[1:5])
    shares, owners, _ = drawn_by_hand("Keras", 7, 2, 3, "mended")
    assert {s for s, owner in zip(shares, owners, strict=True) if owner is not None} == {1}
    assert owners[-3:] == [None] * 3
