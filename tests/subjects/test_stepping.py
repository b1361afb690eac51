import sys

import numpy as np
import pytest
import torch
from torch import nn

from helpers.models import micro_batch_model
from helpers.panels import SteppingPanel
from helpers.subjects.stepping import source_lines, step_through
from tests.subjects.panels import picture_text, stays_right


def document_loop(model, optimizer, batches, k):
    optimizer.zero_grad()  # clear
    for i, batch in enumerate(batches):
        loss = model(batch).mean()  # forward
        loss = loss / k  # scale
        loss.backward()  # backward
        if (i + 1) % k == 0:
            optimizer.step()  # step
            optimizer.zero_grad()  # clear


def lines_run(loop, *arguments):
    lines = source_lines(loop)
    return [(lines[m.line].strip(), m) for m in step_through(loop, *arguments) if m.line >= 0]


def test_gradient_of_the_model_is_its_input():
    model = micro_batch_model(weights=2)
    model(torch.tensor([[3.0, 4.0]])).mean().backward()
    assert model.weight.grad.tolist() == [[3, 4]]
    assert model.weight.tolist() == [[0, 0]]


def test_grad_grows_at_each_backward_by_that_micro_batch():
    after = [m for line, m in lines_run(document_loop, (1, 2, 4, 8), 4) if "backward()" in line]
    assert [m.gradient for m in after] == [0.25, 0.75, 1.75, 3.75]
    assert after[-1].held == ((1, 0.25), (2, 0.5), (3, 1.0), (4, 2.0))


def test_the_weight_moves_at_the_step_and_grad_is_empty_after_clearing():
    run = lines_run(document_loop, (1, 2, 4, 8), 4)
    (at,) = [i for i, (line, _) in enumerate(run) if "step()" in line]
    assert (run[at - 1][1].weight, run[at][1].weight) == (0, -3.75)
    assert (run[at - 1][1].updates, run[at][1].updates) == (0, 1)
    assert (run[at][1].gradient, run[at + 1][1].held) == (3.75, ())


def test_what_is_left_over_is_the_last_micro_batch_of_a_short_window():
    assert step_through(document_loop, (1, 2, 4, 8, 16), 4)[-1].held == ((5, 4.0),)


def clipping_loop(model, optimizer, batches, k):
    for batch in batches:
        model(batch).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def test_clipping_shortens_every_part_alike():
    first, second = (
        m for line, m in lines_run(clipping_loop, (2, 4), 1) if line.startswith("nn.utils")
    )
    assert first.held == ((1, pytest.approx(1)),)
    assert second.held == ((1, pytest.approx(1 / 5)), (2, pytest.approx(4 / 5)))


def scheduled_loop(model, optimizer, batches, k):
    for batch in batches:
        model(batch).mean().backward()
        optimizer.param_groups[0]["lr"] /= 2


def test_the_learning_rate_is_followed():
    assert step_through(scheduled_loop, (1, 1), 1)[-1].lr == 0.25


def test_source_keeps_inner_indentation_only():
    lines = source_lines(document_loop)
    assert lines[0] == "def document_loop(model, optimizer, batches, k):"
    assert lines[1] == "    optimizer.zero_grad()  # clear"


def broken_loop(model, optimizer, batches, k):
    raise RuntimeError("as loops do")


def endless_loop(model, optimizer, batches, k):
    while True:
        k += 1


@pytest.mark.parametrize(
    ("loop", "error", "message"),
    [
        (broken_loop, RuntimeError, "as loops do"),
        (endless_loop, ValueError, "loop must end within 5000 lines"),
    ],
)
def test_a_tracer_that_was_there_is_there_again_also_after_an_error(loop, error, message):
    def tracer(frame, event, argument):
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with pytest.raises(error, match=message):
            step_through(loop, (1,), 1)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: step_through(document_loop, (), 4), ValueError, "micro_gradients must hold"),
        (lambda: step_through(document_loop, (1,), 0), ValueError, "at least 1, got 0"),
        (lambda: step_through(document_loop, (1,), 1.5), TypeError, "at least 1, got 1.5"),
        (lambda: micro_batch_model(0), ValueError, "weights must be .* at least 1, got 0"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


# the panel


def right_loop(model, optimizer, batches, k):
    optimizer.zero_grad()
    for i, batch in enumerate(batches):
        (model(batch).mean() / k).backward()
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()


def clearing_loop(model, optimizer, batches, k):
    for batch in batches:
        optimizer.zero_grad()
        (model(batch).mean() / k).backward()


def stepping_panel():
    loops = {"right": right_loop, "clearing": clearing_loop}
    return SteppingPanel(loops, (1, 2, 4, 8, 16), accumulation_steps=4)


def assert_stepping_panel_is_right(panel):
    now = panel.runs[panel.loop.value][panel.moment.value]
    assert panel.now == now
    heights = [path.vertices[2][1] for path in panel.picture.bars.get_paths()]
    assert heights == pytest.approx(np.cumsum([part for _, part in now.held]).tolist())
    lit = [path.vertices[0][1] for path in panel.picture.light.get_paths()]
    assert lit == ([now.line] if now.line >= 0 else [])
    source = [text.get_text().replace("\xa0", " ") for text in panel.picture.lines]
    assert [line for line in source if line] == panel.sources[panel.loop.value]
    assert f"updates {now.updates}" in picture_text(panel)


@pytest.mark.parametrize("seed", range(3))
def test_controls_in_any_order_leave_the_stepping_panel_right(seed):
    stays_right(stepping_panel(), assert_stepping_panel_is_right, seed)


def test_back_and_forward_go_line_by_line_and_stop_at_the_ends():
    panel = stepping_panel()
    panel.back.click()
    assert panel.moment.value == 0
    for line in range(1, 4):
        panel.forward.click()
        assert panel.moment.value == line
    panel.back.click()
    assert panel.moment.value == 2
    panel.moment.value = panel.moment.max
    panel.forward.click()
    assert panel.moment.value == panel.moment.max


def test_another_loop_starts_from_its_first_line_with_its_own_length():
    panel = stepping_panel()
    panel.moment.value = panel.moment.max
    panel.loop.value = "clearing"
    assert (panel.moment.value, panel.moment.max) == (0, len(panel.runs["clearing"]) - 1)


def long_loop(model, optimizer, batches, k):
    """A loop

    of

    more

    lines

    than

    fit,

    that

    is

    17
    """


@pytest.mark.parametrize(
    ("loops", "message"),
    [
        ({}, "loops must hold at least one loop, got none"),
        ({"long": long_loop}, "loops must have at most 16 lines, got 19 in 'long'"),
    ],
)
def test_loops_that_can_not_be_shown_are_refused(loops, message):
    with pytest.raises(ValueError, match=message):
        SteppingPanel(loops, (1, 2), 2)
