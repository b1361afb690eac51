import json
import os
from pathlib import Path

import nbformat
import pytest

from tests.store_outputs import NotStored, store_outputs


def notebook_of(path: Path, *sources: str, **metadata) -> Path:
    cells = [nbformat.v4.new_code_cell(source, metadata=metadata) for source in sources]
    cells.insert(0, nbformat.v4.new_markdown_cell("# Sums", metadata={"kept": True}))
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kept": {"as": "it is"}})
    path.write_text(json.dumps(notebook, indent=3) + "\n", encoding="utf-8")
    return path


def test_only_outputs_and_counts_change_and_a_second_run_changes_nothing(tmp_path):
    path = notebook_of(tmp_path / "sums.ipynb", "import ipywidgets", "print(1 + 1); print(2)", "3")
    before = json.loads(path.read_text(encoding="utf-8"))
    assert store_outputs(path)
    stored = path.read_text(encoding="utf-8")
    after = json.loads(stored)
    assert [cell.pop("execution_count", None) for cell in after["cells"]] == [None, 1, 2, 3]
    assert after["cells"][2]["outputs"][0]["text"] == ["2\n", "2\n"]
    assert after["cells"][3]["outputs"][0]["data"]["text/plain"] == ["3"]
    for cell in [*before["cells"], *after["cells"]]:
        cell.pop("outputs", None)
        cell.pop("execution_count", None)
    assert after == before
    assert stored.startswith('{\n   "')
    assert not store_outputs(path)


def test_outputs_are_those_of_the_cpu_on_any_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("GA_DEVICE", "cuda")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    path = notebook_of(
        tmp_path / "device.ipynb",
        "import os; print(os.environ['GA_DEVICE'], repr(os.environ['CUDA_VISIBLE_DEVICES']))",
    )
    store_outputs(path)
    assert json.loads(path.read_text())["cells"][1]["outputs"][0]["text"] == ["cpu ''\n"]
    assert os.environ["GA_DEVICE"] == "cuda"


@pytest.mark.parametrize("source", ["1 / 0", "import sys; print('!', file=sys.stderr)"])
def test_an_error_or_a_warning_is_not_stored(source, tmp_path):
    path = notebook_of(tmp_path / "bad.ipynb", source)
    before = path.read_bytes()
    with pytest.raises(NotStored, match=r"bad\.ipynb: .*cell"):
        store_outputs(path)
    assert path.read_bytes() == before
