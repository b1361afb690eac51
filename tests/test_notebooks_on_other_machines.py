"""What a lesson says must not hang on the last digits, which other machines round otherwise."""

import ast
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from tests.test_cells_in_any_order import tags, texts

ROOT = Path(__file__).parents[1]
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OTHER_MACHINE = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.other_machine import OtherMachine
other_machine = OtherMachine(seed={{seed}})
other_machine.__enter__()
"""


@dataclass(frozen=True)
class Run:
    """How a notebook came out on another machine."""

    differing: dict[str, list[str]]  # the texts shown, of the cells where others are stored
    rounded: list[str]  # products that a GPU may round to TF32, and the lesson's line for each
    moved: int  # how many numbers came out otherwise


def on_another_machine(path: Path, seed: int = 0) -> Run:
    """The notebook's run where every inexact float32 result is a neighbour of the one here."""
    notebook = nbformat.read(path, as_version=4)
    lesson = [cell for cell in notebook.cells if cell.cell_type == "code"]
    stored = {cell.id: texts(cell.outputs) for cell in compared(lesson)}
    start = nbformat.v4.new_code_cell(OTHER_MACHINE.format(seed=seed))
    told = nbformat.v4.new_code_cell("other_machine.moved, sorted(other_machine.rounded)")
    notebook.cells = [start, *notebook.cells, told]
    folder = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, coalesce_streams=True, resources=folder, timeout=600).execute()
    moved, rounded = ast.literal_eval(texts(told.outputs)[0])
    shown = {cell.id: texts(cell.outputs) for cell in compared(lesson)}
    differing = {name: text for name, text in shown.items() if text != stored[name]}
    return Run(differing, rounded, moved)


def compared(cells: list[NotebookNode]) -> list[NotebookNode]:
    return [cell for cell in cells if "nbval-ignore-output" not in tags(cell)]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_every_compared_text_comes_out_again(path):
    run = on_another_machine(path)
    assert run.differing == {}
    assert run.rounded == [], "run these under same_on_every_device"
    assert run.moved > 0


def planted(path: Path, *sources: str) -> Path:
    """A notebook with these cells, and as their outputs what each prints here."""
    names, cells = {}, []
    for source in sources:
        with redirect_stdout(StringIO()) as printed:
            exec(source, names)
        shown = [
            nbformat.v4.new_output("stream", text=text) for text in [printed.getvalue()] if text
        ]
        cells.append(nbformat.v4.new_code_cell(source, id=f"cell-{len(cells)}", outputs=shown))
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


IMPORTS = """
import torch
from torch import nn
from helpers.device import same_on_every_device
from helpers.gradients import accumulated_gradient, full_batch_gradient
from helpers.models import one_neuron
from helpers.samples import eight_samples
"""
CONVOLUTION = """
numbers = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
with same_on_every_device():
    total = nn.functional.conv2d(numbers, numbers[:1, :, :3, :3]).sum().item()
"""


def test_eight_digits_of_a_convolution_are_caught_and_two_are_not(tmp_path):
    digits = ["print(f'{total:.8f}')", "print(f'{total:.2f}')"]
    run = on_another_machine(planted(tmp_path / "n.ipynb", IMPORTS, CONVOLUTION, *digits))
    assert list(run.differing) == ["cell-2"]


def test_a_net_outside_same_on_every_device_is_caught_and_one_inside_is_not(tmp_path):
    unsafe = [
        "nn.Conv2d(1, 2, 3)(torch.rand(1, 1, 5, 5)).sum().backward()",
        "nn.Linear(5, 4)(torch.rand(3, 5)).sum().backward()",
        "_ = nn.MultiheadAttention(4, 1)(*[torch.rand(5, 1, 4)] * 3)",
    ]
    safe = [f"with same_on_every_device():\n    {line}  # safe" for line in unsafe]
    run = on_another_machine(planted(tmp_path / "n.ipynb", IMPORTS, *unsafe, *safe))
    assert {told.split(": ", 1)[1] for told in run.rounded} == set(unsafe)
    assert {"convolution", "convolution_backward", "mm"} < {
        told.split(": ")[0] for told in run.rounded
    }


def test_the_eight_samples_are_the_same_everywhere_to_the_bit(tmp_path):
    exact = """
batch = one_neuron(), nn.MSELoss(), *eight_samples()
print(full_batch_gradient(*batch).tolist(), accumulated_gradient(*batch, (4, 4)).tolist())
"""
    run = on_another_machine(planted(tmp_path / "n.ipynb", IMPORTS, exact))
    assert run == Run(differing={}, rounded=[], moved=0)
