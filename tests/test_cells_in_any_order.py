"""A reader runs cells twice and out of order: no lesson may then show a wrong number."""

import random
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

LESSONS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def texts(outputs):
    """What a cell printed or showed, as text; the device is the machine's own."""
    shown = [
        output.text if output.output_type == "stream" else output.get("data", {}).get("text/plain")
        for output in outputs
    ]
    return ["device" if str(text).startswith("device: ") else text for text in shown]


def run(client, notebook, index):
    client.execute_cell(notebook.cells[index], index)
    return texts(notebook.cells[index].outputs)


def tags(cell):
    return cell.metadata.get("tags", [])


def differing(path):
    """The cells that, run again in any order after a first Run All, show something else."""
    notebook = nbformat.read(path, as_version=4)
    code = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    stored = {i: texts(notebook.cells[i].outputs) for i in code}
    client = NotebookClient(
        notebook, coalesce_streams=True, resources={"metadata": {"path": str(path.parent)}}
    )
    random.Random(0).shuffle(shuffled := list(code))
    with client.setup_kernel():
        for i in code:
            run(client, notebook, i)
        code = [i for i in shuffled if "nbval-ignore-output" not in tags(notebook.cells[i])]
        return [
            notebook.cells[i].id
            for i in code
            for _ in "ab"
            if run(client, notebook, i) != stored[i]
        ]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_cells_run_again_in_any_order_show_the_same(path):
    assert differing(path) == []


def test_a_cell_that_counts_its_runs_is_caught(tmp_path):
    cells = ["total = 0", "total += 1\nprint(total)"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    notebook.cells[1].outputs = [nbformat.v4.new_output("stream", text="1\n")]
    nbformat.write(notebook, path := tmp_path / "counting.ipynb")
    assert notebook.cells[1].id in differing(path)
