"""A reader opens each lesson in JupyterLab and presses Restart Kernel and Run All."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.browser.lab import ROOT, Lab

CUT_OFF = "buttons => buttons.filter(b => b.scrollWidth > b.clientWidth).map(b => b.textContent)"
LESSONS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("name", LESSONS)
def test_lesson_runs_from_top_to_bottom(lab: Lab, name: str):
    with lab.open(name) as notebook:
        assert notebook.errors() == [], "as stored, before anything has run"
        notebook.restart_and_run_all()
        assert notebook.errors() == []
        assert notebook.counts() == list(range(1, len(notebook.stored) + 1))
        buttons = notebook.page.locator(".jp-OutputArea .jupyter-button")
        assert buttons.evaluate_all(CUT_OFF) == [], "labels that do not fit"


def test_what_goes_wrong_in_a_notebook_is_seen(lab: Lab):
    sources = (
        "import sys; print('careful', file=sys.stderr)",
        "from IPython.display import Javascript; Javascript('console.error(\"lost\")')",
        "1 / 0",
        "print('never reached')",
    )
    faulty = new_notebook(
        cells=[new_code_cell(source) for source in sources],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    nbformat.write(faulty, lab.house / "notebooks" / "faulty.ipynb")
    with lab.open("faulty.ipynb") as notebook:
        notebook.restart_and_run_all()
        assert notebook.counts() == [1, 2, 3, None]
        stderr, error, console = notebook.errors()
    assert "careful" in stderr
    assert "ZeroDivisionError" in error
    assert "lost" in console
