import html
import itertools
import re
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from torch import nn

from helpers.figures.stepping import MOST_CHARACTERS, MOST_NAMES, names_beside, stacked
from helpers.models import micro_batch_model
from helpers.panels import SteppingPanel
from helpers.subjects.stepping import source_lines, step_through
from tests.subjects.panels import picture_text, stays_right
from tests.subjects.pictures import assert_readable, legend_looks


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


def gathering_loop(model, optimizer, batches, k):
    for batch in batches:
        (model(batch).mean() / k).backward()
    optimizer.step()


def test_parts_that_add_up_to_zero_are_still_in_grad():
    before_the_step = step_through(gathering_loop, (4, -4, 8), 1)[-2]
    assert before_the_step.held == ((1, 4), (2, -4), (3, 8))
    first_two = [m for m in step_through(gathering_loop, (4, -4), 1) if m.backwards == 2][-1]
    assert (first_two.held, first_two.gradient) == (((1, 4), (2, -4)), 0)


def test_a_micro_batch_without_a_gradient_is_a_part_of_zero():
    assert step_through(gathering_loop, (0, 3), 1)[-1].held == ((1, 0), (2, 3))


def zeroing_loop(model, optimizer, batches, k):
    for batch in batches:
        model(batch).mean().backward()
    optimizer.zero_grad(set_to_none=False)


def zeroing_model_loop(model, optimizer, batches, k):
    for batch in batches:
        model(batch).mean().backward()
    model.zero_grad(set_to_none=False)


def deleting_loop(model, optimizer, batches, k):
    for batch in batches:
        model(batch).mean().backward()
    model.weight.grad = None


def emptying_loop(model, optimizer, batches, k):
    for batch in batches:
        model(batch).mean().backward()
    model.weight.grad.zero_()


@pytest.mark.parametrize("gradients", [(4, -4), (1, 2)])
@pytest.mark.parametrize("loop", [zeroing_loop, zeroing_model_loop, deleting_loop])
def test_cleared_is_cleared_whatever_the_parts_added_up_to(loop, gradients):
    before, after = step_through(loop, gradients, 1)[-2:]
    assert [part for _, part in before.held] == list(gradients)
    assert after.held == ()


def test_a_gradient_emptied_by_hand_is_empty():
    assert step_through(emptying_loop, (1, 2), 1)[-1].held == ()


def one_line_loop(model, optimizer, batches, k):
    [(optimizer.zero_grad(), model(b).mean().backward(), optimizer.step()) for b in batches]
    [model(b).mean().backward() for b in batches]


def test_several_backwards_and_clears_in_one_line_are_told_apart():
    moments = step_through(one_line_loop, (1, 2), 1)
    assert [m.held for m in moments if m.line == 1][-1] == ((2, 2),)
    assert moments[-1].held == ((2, 2), (3, 1), (4, 2))


def by_hand_loop(model, optimizer, batches, k):
    model.weight.grad = torch.full((1, 1), 5.0)
    model(batches[0]).mean().backward()


def test_a_gradient_set_by_hand_is_no_micro_batchs():
    assert [m.held for m in step_through(by_hand_loop, (2,), 1)][-2:] == [
        ((0, 5),),
        ((0, 5), (1, 2)),
    ]
    panel = SteppingPanel({"by hand": by_hand_loop}, (2,), 1)
    panel.moment.value = panel.moment.max
    assert panel.table.rows == (("set by hand", "5"), ("micro-batch 1", "2"))
    assert [text.get_text() for text in panel.picture.names][:2] == ["by hand", "1"]
    assert_readable(panel.picture)


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


LOOPS = {"right": right_loop, "clearing": clearing_loop, "gathering": gathering_loop}
FEW, MANY = (1, 2, 4, 8, 16), (3, -1, 4, 1, -5, 9, 0, -12, 2, 6, 5, 3)
OKABE_ITO = ("#E69F00", "#56B4E9", "#CC79A7", "#999999")


def moments_by_hand(name, gradients, k):
    """(line, parts in .grad, weight, backwards, updates) after each line, by plain arithmetic."""
    parts, weight, updates = {}, 0, 0
    yield -1, {}, weight, 0, 0
    if name == "right":
        yield 1, {}, 0, 0, 0
    for i, c in enumerate(gradients, start=1):
        loop_line = 2 if name == "right" else 1
        yield loop_line, dict(parts), weight, i - 1, updates
        if name == "clearing":
            parts = {}
            yield 2, {}, weight, i - 1, updates
        parts[i] = c / k
        yield 2 if name == "gathering" else 3, dict(parts), weight, i, updates
        if name == "right":
            yield 4, dict(parts), weight, i, updates
            if i % k == 0:
                weight, updates = weight - sum(parts.values()), updates + 1
                yield 5, dict(parts), weight, i, updates
                parts = {}
                yield 6, {}, weight, i, updates
    yield loop_line, dict(parts), weight, i, updates
    if name == "gathering":
        yield 3, dict(parts), weight - sum(parts.values()), i, 1


def said(value):
    return f"{value:.4g}".replace("-", "−") if value else "0"


def pale_of(number):
    return [0.75 + 0.25 * part for part in to_rgb(OKABE_ITO[(number - 1) % 4])]


def assert_stepping_panel_is_right(panel, gradients=FEW, k=4):
    name, picture = panel.loop.value, panel.picture
    run = list(moments_by_hand(name, gradients, k))
    assert panel.moment.max == len(run) - 1
    line, parts, weight, backwards, updates = run[panel.moment.value]
    grad = sum(parts.values())

    assert_readable(picture)
    corners = [path.vertices[:4].tolist() for path in picture.light.get_paths()]
    assert corners == ([[[0, line], [1, line], [1, line + 1], [0, line + 1]]] * (line >= 0))
    source = [text.get_text().replace("\xa0", " ") for text in picture.lines]
    assert [text for text in source if text] == source_lines(LOOPS[name])
    assert [text.get_position()[1] for text in picture.lines] == [i + 0.5 for i in range(16)]

    positive, negative, spans = 0, 0, []
    for part in parts.values():
        if part < 0:
            spans += [negative, negative + part]
            negative += part
        else:
            spans += [positive, positive + part]
            positive += part
    bars = [path.vertices for path in picture.bars.get_paths()]
    assert [y for bar in bars for y in (bar[0][1], bar[2][1])] == pytest.approx(spans)
    assert all((bar[0][0], bar[2][0]) == (0, 1) for bar in bars)
    colours = picture.bars.get_facecolor()[:, :3].tolist()
    assert len(colours) == len(parts)
    for colour, number in zip(colours, parts, strict=True):
        assert colour == pytest.approx(pale_of(number), abs=1 / 255)
    named = [text.get_text() for text in picture.names if text.get_text()]
    ends = [[int(number) for number in name.split("–")] for name in named]
    assert all(
        any(first <= number <= last for first, *_, last in map(both, ends)) for number in parts
    )

    right = sum(gradients[:k]) / k
    assert list(picture.right.get_ydata()) == [right, right]
    assert picture.right.get_linestyle() == "--"
    assert list(picture.sum.get_ydata()) == pytest.approx([grad])
    low, high = picture.axes.get_ylim()
    sums = [sum(max(p, 0) for p in m[1].values()) for m in run]
    debts = [sum(min(p, 0) for p in m[1].values()) for m in run]
    assert high >= max(*sums, right)
    assert low <= min(debts)
    assert high < 2.4 * max(*sums, right, *(-debt for debt in debts))
    ticks = [
        (tick.get_loc(), tick.label1.get_text()) for tick in picture.axes.yaxis.get_major_ticks()
    ]
    assert all(said(at) == text for at, text in ticks)
    most = high / 1.1
    scale = [0, most / 2, most] if low == 0 else [-most, 0, most]
    assert [at for at, _ in ticks] == pytest.approx(scale)

    assert picture.title.get_text() == f".grad {said(grad)}"
    assert picture.counters.get_text().splitlines() == [
        f"weight {said(weight)}",
        "lr 1",
        f"backwards {backwards}",
        f"updates {updates}",
    ]
    rows = [(f"micro-batch {number}", said(part)) for number, part in parts.items()]
    assert panel.table.heading == ("in .grad", "part")
    assert list(panel.table.rows) == (rows or [("nothing", "0")])
    run_last = source_lines(LOOPS[name])[line].strip() if line >= 0 else "nothing yet"
    assert panel.table.closing == f"after “{run_last}”: .grad {said(grad)}, weight {said(weight)}"
    assert panel.alt == f"A loop, line by line: {panel.table.closing}"
    assert html.escape(panel.alt) in panel.screen.value
    marks = re.findall(r"border-left:6px solid (#\w+)", panel.screen.value)
    assert marks == [OKABE_ITO[(number - 1) % 4] for number in parts]


def both(ends):
    return ends if len(ends) == 2 else ends * 2


@pytest.mark.parametrize("gradients", [FEW, MANY])
def test_every_moment_of_every_loop_is_shown_right(gradients):
    panel = SteppingPanel(LOOPS, gradients, 4)
    for name in LOOPS:
        panel.loop.value = name
        for moment in range(panel.moment.max + 1):
            panel.moment.value = moment
            assert_stepping_panel_is_right(panel, gradients)


def test_controls_in_any_order_leave_the_stepping_panel_right():
    stays_right(stepping_panel(), assert_stepping_panel_is_right, seed=0, moves=30)


def stepping_panel():
    return SteppingPanel(LOOPS, FEW, accumulation_steps=4)


parts = st.lists(st.sampled_from([-3.0, -1.0, -0.01, 0.0, 0.01, 0.1, 1.0, 5.0]), max_size=60)


@given(parts, st.floats(0.055, 1))
def test_every_part_has_a_name_and_no_two_names_meet(parts, room):
    held = list(enumerate(parts, start=1))
    named = list(names_beside(held, list(stacked(held)), room))
    heights = sorted(height for _, height in named)
    assert all(b - a > room - 1e-9 for a, b in itertools.pairwise(heights))
    ends = [both([int(number) for number in name.split("–")]) for name, _ in named]
    assert all(any(first <= n <= last for first, last in ends) for n, _ in held)
    shown = list(stacked(held))
    height = max((b for _, b in shown), default=0) - min((b for _, b in shown), default=0)
    assert len(named) <= height / room + 2


def test_there_are_texts_for_all_names_that_have_room():
    panel = SteppingPanel({"gathering": gathering_loop}, (1,) * 64, 1)
    panel.moment.value = panel.moment.max
    named = [text.get_text() for text in panel.picture.names if text.get_text()]
    assert len(named) < MOST_NAMES
    assert (named[0][:2], named[-1][-2:]) == ("1–", "64")
    assert_readable(panel.picture)


@pytest.mark.parametrize("scale", [1e-4, 0.3, 7.0, 3e5])
def test_gradients_of_any_size_fill_the_picture(scale):
    panel = SteppingPanel({"gathering": gathering_loop}, (scale, scale), 1)
    panel.moment.value = panel.moment.max
    _, top = panel.picture.axes.get_ylim()
    assert 2 * scale <= top < 5 * scale
    assert_readable(panel.picture)


def test_a_run_without_any_gradient_can_be_shown():
    panel = SteppingPanel({"gathering": gathering_loop}, (0, 0), 2)
    panel.moment.value = panel.moment.max
    assert panel.table.rows == (("micro-batch 1", "0"), ("micro-batch 2", "0"))
    assert_readable(panel.picture)


def comparing_loop(model, optimizer, batches, k):
    for i, _ in enumerate(batches):
        if i < k and k > i & 3 and "<b>" and "$\\alpha$ is a formula":
            continue


def test_signs_of_html_and_formulas_in_a_loop_are_shown_as_they_are():
    panel = SteppingPanel({"comparing": comparing_loop}, (1, 2), 3)
    panel.moment.value = 2
    line = source_lines(comparing_loop)[2]
    assert line.strip() in picture_text(panel).replace("\xa0", " ")
    picture, _, page = panel.screen.value.partition("</svg>")
    assert f"after “{html.escape(line.strip())}”" in page
    assert f"after “{html.escape(line.strip())}”" in picture  # for a screen reader
    assert "<b>&quot;" not in panel.screen.value
    assert not re.search(r"i < k|k > i|<b>\"", panel.screen.value)
    assert line.strip() in panel.table.closing


def wide_loop(model, optimizer, batches, k):
    for batch in batches:
        model(batch).mean().backward()  # a comment that goes on and on, beyond the bar


def test_of_a_line_too_long_for_the_picture_the_beginning_is_shown():
    panel = SteppingPanel({"wide": wide_loop}, (1, 2), 2)
    line = source_lines(wide_loop)[2]
    assert len(line) > MOST_CHARACTERS
    shown = panel.picture.lines[2].get_text().replace("\xa0", " ")
    assert shown == line[: MOST_CHARACTERS - 1] + "…"
    assert_readable(panel.picture)
    panel.moment.value = 2
    assert line.strip() in panel.alt


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


def test_the_legend_names_the_sum_and_what_is_right_at_a_step():
    panel = SteppingPanel({"loop": document_loop}, (1, 2, 4, 8), 4)
    (legend,) = filter(None, (axes.get_legend() for axes in panel.picture.figure.axes))
    assert legend_looks(legend) == {
        "sum: .grad": ("<", "None", "#555555"),
        "right at a step": ("None", "--", "#000000"),
    }
