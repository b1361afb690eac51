"""The loops that lesson 03 calls right, taken from the lesson and run on every length.

Each sample has a weight of its own with a gradient of 1: a gradient shows what each sample counts.
"""

from pathlib import Path

import nbformat
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.models import micro_batch_model
from helpers.recorder import record

LESSON = Path(__file__).parents[1] / "notebooks" / "03_the_loop_line_by_line.ipynb"


def functions_of(*cells: str) -> dict:
    """What the named cells define; calls that show something are left out."""
    sources = {cell.id: cell.source for cell in nbformat.read(LESSON, as_version=4).cells}
    space = {}
    for cell in cells:
        exec(sources[cell].split("\n\n\nprint(")[0], space)
    return space


LOOPS = functions_of("windows", "right-loop", "look-ahead")


def weights_of_each_update(loop, samples, batch_size, k):
    model = micro_batch_model(weights=samples)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    batches = iter(torch.eye(samples).split(batch_size))  # of unknown length
    with record(model) as trace:
        loop(model, optimizer, batches, k)
    return torch.stack([update.gradient.vector for update in trace.updates])


@given(samples=st.integers(1, 40), batch_size=st.integers(1, 9), k=st.integers(1, 6))
def test_the_right_loop_takes_each_sample_once_and_every_update_is_a_mean(samples, batch_size, k):
    weights = weights_of_each_update(LOOPS["right_loop"], samples, batch_size, k)
    used = weights != 0
    assert used.sum(0).tolist() == [1] * samples
    assert torch.allclose(weights[used], (used / used.sum(1, keepdim=True))[used])


@given(samples=st.integers(1, 40), k=st.integers(1, 6))
def test_the_look_ahead_loop_does_so_for_equal_micro_batches(samples, k):
    weights = weights_of_each_update(LOOPS["look_ahead_loop"], samples, 1, k)
    used = weights != 0
    assert used.sum(0).tolist() == [1] * samples
    assert torch.allclose(weights[used], (used / used.sum(1, keepdim=True))[used])


def test_the_documents_loop_loses_the_short_window():
    document_loop = functions_of("document-loop")["document_loop"]
    weights = weights_of_each_update(document_loop, samples=5, batch_size=1, k=4)
    assert weights.tolist() == [[pytest.approx(0.25)] * 4 + [0]]
