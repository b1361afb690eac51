"""How long CI waits for each notebook, beside one that does nothing but import.

Each runs as CI runs it, under nbval in a pytest of its own. Much of a lesson's time goes into
Python, pytest, a kernel and the imports; that much the bare notebook takes too.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

from tests.benchmarks.table import Line, in_turn

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("pyproject.toml", "conftest.py", "helpers", "notebooks", "tests/nbval_sanitize.cfg")
IMPORTS = "import ipywidgets\nimport matplotlib\nimport torch"
AIM = 2.0


def measure() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        house = _copy(Path(folder) / "house")
        lessons = sorted((house / "notebooks").glob("*.ipynb"))
        bare = house / "notebooks" / "bare.ipynb"
        imports = new_notebook(cells=[new_code_cell(IMPORTS, execution_count=1)])
        nbformat.write(imports, bare)
        runs = [lambda path=path: _run(path, house) for path in (bare, *lessons)]
        bare_times, *times = in_turn(3, *runs)
    yield Line("notebook that only imports torch, matplotlib, ipywidgets", bare_times)
    for path, seconds in zip(lessons, times, strict=True):
        yield Line(f"  {path.stem}", seconds, bare_times)
    together = [sum(seconds) for seconds in zip(*times, strict=True)]
    as_many_bare = [len(lessons) * seconds for seconds in bare_times]
    yield Line(f"  all {len(lessons)} lessons, against as many", together, as_many_bare, AIM)


def _copy(house: Path) -> Path:
    """A copy of what the notebooks need, so that the checkout stays as it is."""
    ignored = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    for name in NEEDED:
        source, target = ROOT / name, house / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=ignored)
        else:
            shutil.copy(source, target)
    return house


def _run(notebook: Path, house: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", str(notebook)]
    done = subprocess.run(command, cwd=house, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{notebook.name} fails under nbval:\n{done.stdout[-3000:]}")
