"""Strict nbval, as configured here, catches a changed number and lets a changed device pass."""

import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

ROOT = Path(__file__).parent.parent
CONFIGURATION = ("pyproject.toml", "conftest.py", "tests/nbval_sanitize.cfg")


def notebook_showing(device: str, number: str):
    """A notebook that prints the device and a number, stored with these printed."""
    cells = [
        new_code_cell(
            source, execution_count=count, outputs=[new_output("stream", text=f"{shown}\n")]
        )
        for count, (source, shown) in enumerate(
            [("print('device: cpu')", f"device: {device}"), ("print(2 + 2, 'kB')", f"{number} kB")],
            start=1,
        )
    ]
    return new_notebook(cells=cells)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory) -> dict[str, bool]:
    """For each notebook, whether it passes in a house with our configuration and nothing else.

    pytest is called from the folder of the notebooks: the configuration must hold there, too.
    """
    house = tmp_path_factory.mktemp("house")
    for name in CONFIGURATION:
        (house / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, house / name)
    lessons = house / "notebooks"
    lessons.mkdir()
    for name, device, number in (
        ("unchanged", "cpu", "4"),
        ("other_device", "cuda:1", "4"),
        ("other_number", "cpu", "5"),
        ("no_device", "fast", "4"),
    ):
        nbformat.write(notebook_showing(device, number), lessons / f"{name}.ipynb")
    arguments = ("-q", "-rA", "--color=no", "-p", "no:cacheprovider")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments], cwd=lessons, capture_output=True, text=True
    )
    lines = ran.stdout.splitlines()
    failed = [line for line in lines if line.startswith("FAILED")]
    passed = [line for line in lines if line.startswith("PASSED")]
    assert len(failed + passed) == 8, ran.stdout
    return {path.stem: not any(path.name in line for line in failed) for path in lessons.iterdir()}


def test_unchanged_notebook_passes(verdicts):
    assert verdicts["unchanged"]


def test_changed_number_fails(verdicts):
    assert not verdicts["other_number"]


def test_other_device_passes(verdicts):
    assert verdicts["other_device"]


def test_what_is_no_device_fails(verdicts):
    assert not verdicts["no_device"]
