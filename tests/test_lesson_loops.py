"""The loops that lessons 03 and 04 call right, and those they call wrong, taken from the lessons.

Each sample has a weight of its own with a gradient of 1: a gradient shows what each sample counts.
"""

from pathlib import Path

import nbformat
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from helpers.models import micro_batch_model
from helpers.recorder import record

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
LINE_BY_LINE = NOTEBOOKS / "03_the_loop_line_by_line.ipynb"
LAST_WINDOW = NOTEBOOKS / "04_the_last_window.ipynb"


def functions_of(lesson: Path, *cells: str) -> dict:
    """What the named cells define; calls that show something are left out."""
    sources = {cell.id: cell.source for cell in nbformat.read(lesson, as_version=4).cells}
    space = {}
    imports = [line for line in sources["set-up"].splitlines() if "import " in line]
    exec("\n".join(imports), space)
    for cell in cells:
        exec(sources[cell].split("\n\n\nprint(")[0].split("\n\n\nprove(")[0], space)
    return space


LOOPS = functions_of(LAST_WINDOW, "windows", "right-loop", "look-ahead", "prove-usual")


def weights_of_each_update(loop, samples, batch_size, k):
    model = micro_batch_model(weights=samples)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    batches = iter(torch.eye(samples).split(batch_size))  # of unknown length
    with record(model) as trace:
        loop(model, optimizer, batches, k)
    return torch.stack([update.gradient.vector for update in trace.updates])


@pytest.mark.parametrize("loop", ["right_loop", "look_ahead_loop"])
@given(samples=st.integers(1, 40), batch_size=st.integers(1, 9), k=st.integers(1, 6))
def test_each_sample_enters_once_and_every_update_is_a_mean(loop, samples, batch_size, k):
    weights = weights_of_each_update(LOOPS[loop], samples, batch_size, k)
    used = weights != 0
    assert used.sum(0).tolist() == [1] * samples
    assert torch.allclose(weights[used], (used / used.sum(1, keepdim=True))[used])


def test_the_usual_loop_loses_the_short_window():
    weights = weights_of_each_update(LOOPS["usual_loop"], samples=5, batch_size=1, k=4)
    assert weights.tolist() == [[pytest.approx(0.25)] * 4 + [0]]


def gradients(loop, batches, k):
    model = micro_batch_model()
    with record(model) as trace:
        batches = [torch.tensor(batch, dtype=torch.float32).reshape(-1, 1) for batch in batches]
        loop(model, torch.optim.SGD(model.parameters(), lr=1.0), batches, k)
    return [update.gradient.vector.item() for update in trace.updates]


@pytest.mark.parametrize("loop", ["right_loop", "look_ahead_loop"])
def test_sizes_two_two_and_one_give_the_mean_of_the_five(loop):
    two_two_one = [[1, 1], [1, 1], [9]]
    assert gradients(LOOPS[loop], two_two_one, 3) == [pytest.approx(13 / 5)]
    assert gradients(LOOPS["usual_loop"], two_two_one, 3) == [pytest.approx(11 / 3)]


@pytest.mark.parametrize("loop", ["right_loop", "look_ahead_loop"])
def test_frozen_and_unused_parameters_are_left_alone(loop):
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    model[0].requires_grad_(False)
    model.unused = nn.Parameter(torch.ones(1))
    model.forward = lambda x: model[1](model[0](x))
    before = [parameter.clone() for parameter in model.parameters()]
    LOOPS[loop](model, torch.optim.SGD(model.parameters(), lr=1.0), [torch.ones(2, 1)] * 3, 2)
    moved = [bool((a != b).any()) for a, b in zip(before, model.parameters(), strict=True)]
    assert dict(zip(dict(model.named_parameters()), moved, strict=True)) == {
        "unused": False,
        "0.weight": False,
        "0.bias": False,
        "1.weight": True,
        "1.bias": True,
    }


# What lesson 03 says of a line in the wrong place.

IN_THE_WRONG_PLACE = functions_of(
    LINE_BY_LINE,
    "usual-loop",
    "clear-inside",
    "scale-late",
    "divided-twice",
    "clip",
)


def test_a_shifted_boundary_makes_only_the_first_window_short():
    source = {cell.id: cell.source for cell in nbformat.read(LINE_BY_LINE, as_version=4).cells}
    space = {}
    exec(source["boundary-shifted"].split("\n\n\n")[0], space)
    nine = [[2.0**i] for i in range(9)]
    assert gradients(space["boundary_shifted"], nine, 4) == [0.25, 7.5, 120.0]


@pytest.mark.parametrize(
    ("loop", "gradient"),
    [
        ("usual_loop", 1111 / 4),
        ("clear_inside", 1000 / 4),
        ("scale_late", 1111.0),
        ("divided_twice", 1111 / 16),
    ],
)
def test_the_number_at_the_step_names_the_fault(loop, gradient):
    four = [[1.0], [10.0], [100.0], [1000.0]]
    assert gradients(IN_THE_WRONG_PLACE[loop], four, 4) == [gradient]


def test_the_norm_that_clipping_returns_gives_clipping_too_early_away():
    for too_early, norms, direction in (
        (False, [5.0], [3 / 5, 4 / 5]),
        (True, [3.0, 17**0.5, 1.0], [1 / 17**0.5, 4 / 17**0.5]),
    ):
        gradient, returned = IN_THE_WRONG_PLACE["clipped"](too_early)
        assert [norm.item() for norm in returned] == pytest.approx(norms, rel=1e-5)
        assert gradient == pytest.approx(direction, rel=1e-5)


def test_five_updates_of_four_and_one_use_fourteen_micro_batches():
    model = micro_batch_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with record(model) as trace:
        for _ in range(3):
            LOOPS["right_loop"](model, optimizer, [torch.ones(1, 1)] * 5, 4)
    assert trace.updates[4].backwards[-1] == 14 != 5 * 4
