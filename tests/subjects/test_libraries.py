"""The training loops of five libraries, and that they leave nothing behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

from helpers.subjects.library_loops import Settings

ROOT = Path(__file__).parents[2]

# In a process of its own: what an import changes, it changes once.
BEHIND = """
import gc, json, logging, os, random, sys, threading, warnings
import numpy as np
import torch
from helpers.subjects import libraries

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
