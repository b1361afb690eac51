import itertools
import math
import re
from types import SimpleNamespace

import pytest
import torch
from matplotlib.colors import to_hex
from torch import nn

from helpers.figures import line_through
from helpers.memory import measure
from helpers.models import transformer_layer
from helpers.panels import MemoryPanel
from helpers.subjects.memory import (
    ALLOWANCE,
    GIB,
    LAUNCH,
    SAMPLE,
    SHAPES,
    Shape,
    estimate,
    split_for,
    update_time,
)
from tests.subjects.panels import stays_right, values
from tests.subjects.pictures import assert_readable


def test_gpt_2_small_has_124_million_parameters():
    assert round(SHAPES["GPT-2 small"].parameters(1024) / 1e6) == 124
    assert round(SHAPES["GPT-2 XL"].parameters(1024) / 1e6) == 1558


def test_adam_in_float32_takes_16_bytes_a_weight():
    shape = SHAPES["GPT-2 medium"]
    parts = estimate(shape, 512, 1)
    fixed = parts["weights"] + parts["gradients"] + parts["optimizer state"]
    assert fixed == 16 * shape.parameters(512)


def test_only_activations_grow_with_the_micro_batch_and_in_proportion():
    one, four = (estimate(SHAPES["GPT-2 small"], 512, m) for m in (1, 4))
    for part in ("activations", "logits"):
        assert four.pop(part) == 4 * one.pop(part)
    assert four == one


def test_estimated_activations_of_a_layer_are_those_measured():
    shape = Shape(layers=1, hidden=256, heads=4, vocabulary=0)
    for precision, dtype in (("bfloat16", torch.bfloat16), ("float32", torch.float32)):
        layer = transformer_layer(256, 4, dtype=dtype)
        with measure(layer) as memory:
            _output = layer(torch.zeros(2, 128, 256, dtype=dtype))
            kept = sum(tensor.bytes for tensor in memory.saved())
        estimated = estimate(shape, 128, 2, precision)["activations"]
        assert kept == pytest.approx(estimated, rel=0.01)


def test_checkpointing_keeps_less_and_bfloat16_half_of_float32():
    shape = SHAPES["GPT-2 small"]
    plain, recomputed = (
        estimate(shape, 512, 4, checkpointing=on)["activations"] for on in (False, True)
    )
    assert recomputed < plain / 3
    wide, narrow = (estimate(shape, 512, 4, precision) for precision in ("float32", "bfloat16"))
    assert wide["weights"] == 2 * narrow["weights"]


def test_the_published_times_are_those_of_the_lesson():
    four, one = 4 / 8.86, 1 / 7.75
    assert (four - one) / 3 == pytest.approx(SAMPLE, abs=1e-4)
    assert one - (four - one) / 3 == pytest.approx(LAUNCH, abs=1e-4)
    assert update_time(4, 1, LAUNCH, SAMPLE) == pytest.approx(4 * one, rel=1e-2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1), "sequence must be .* at least 1, got 0"),
        ((8, 0), "micro_batch must be .* at least 1, got 0"),
        ((8, 1, "float8"), "precision must be one of 'float32', 'mixed', 'bfloat16', got 'float8'"),
        ((8, 1, "mixed", "Lion"), "optimizer must be one of 'SGD', .*, 'Adam', got 'Lion'"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        estimate(SHAPES["GPT-2 small"], *arguments)


# the panel

# layers, hidden size, heads, vocabulary: of Radford et al., Language Models are Unsupervised
# Multitask Learners (2019)
SIZES = {
    "GPT-2 small": (12, 768, 12, 50257),
    "GPT-2 medium": (24, 1024, 16, 50257),
    "GPT-2 large": (36, 1280, 20, 50257),
    "GPT-2 XL": (48, 1600, 25, 50257),
}
# Bytes of a weight, a gradient, a number of optimizer state; bytes of a number in an activation.
BYTES = {"float32": (4, 4, 4, 4), "mixed": (6, 4, 4, 2), "bfloat16": (2, 2, 2, 2)}
NUMBERS_KEPT = {"SGD": 0, "SGD, momentum": 1, "Adam": 2}
COLOURS = {
    "weights": "#0072b2",
    "gradients": "#d55e00",
    "optimizer state": "#cc79a7",
    "activations": "#56b4e9",
    "logits": "#f0e442",
    "allowance": "#bbbbbb",
}
SEQUENCES, BATCHES = (128, 256, 512, 1024, 2048), (1, 2, 4, 8, 16, 32, 64, 128, 256)
BUDGETS = (4, 8, 12, 16, 24, 40, 80)


def by_hand(model, sequence, batch, budget, precision, optimizer, checkpointing):
    """Micro-batch or None, bytes of the parts, and times by micro-batch, in plain arithmetic."""
    layers, hidden, heads, vocabulary = SIZES[model]
    weight, gradient, state, width = BYTES[precision]
    attention_and_mlp = 4 * hidden * (hidden + 1) + 8 * hidden**2 + 5 * hidden
    parameters = (vocabulary + sequence) * hidden + layers * (attention_and_mlp + 4 * hidden)
    fixed = {
        "weights": weight * parameters,
        "gradients": gradient * parameters,
        "optimizer state": state * NUMBERS_KEPT[optimizer] * parameters,
        "activations": 0,
        "logits": 0,
        "allowance": 1343 * 1024 * 1024,
    }
    # Of s·h·(34 + 5·a·s/h) bytes in half precision s·h·(2 + a·s/h) are masks of a byte a number.
    wide = {2: 34 * hidden + 5 * heads * sequence, 4: 66 * hidden + 9 * heads * sequence}[width]
    layer = sequence * wide
    kept = layers * width * sequence * hidden + layer if checkpointing else layers * layer
    logits = sequence * vocabulary * (width + 4)
    room = (budget * 1024**3 - sum(fixed.values())) // (kept + logits)
    # The largest piece of as many as it takes, cut as evenly as whole samples allow.
    micro_batch = math.ceil(batch / math.ceil(batch / room)) if room >= 1 else None
    sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256, *([micro_batch] if micro_batch else [])]
    most = min(batch, room)
    seconds = 0.1075 * 4 / 3 if checkpointing else 0.1075
    times = {
        m: (math.ceil(batch / m) * 0.0215 + batch * seconds) / (0.0215 + batch * 0.1075)
        for m in sorted(set(sizes))
        if micro_batch and m <= most
    }
    there = micro_batch or 1
    return micro_batch, {**fixed, "activations": kept * there, "logits": logits * there}, times


def spoken(micro_batch, parts, times, batch, checkpointing):
    """The verdict in words."""
    if micro_batch is None:
        largest = ", ".join(p for p, size in parts.items() if size == max(parts.values()))
        need = f"{sum(parts.values()) / 1024**3:.3g} GiB, its largest part"
        return f"not even one sample fits: it takes {need}{'s' * (',' in largest)} {largest}"
    steps = math.ceil(batch / micro_batch)
    smaller = steps * micro_batch - batch
    samples = {1: "1 sample"}.get(batch, f"{batch} samples")
    than = " without checkpointing" if checkpointing else ""
    if steps == 1:
        cost = f", {times[micro_batch]:.3g} times the time{than}" if checkpointing else ""
        return f"{samples} in one batch{cost}"
    split = f"{samples} as {steps} × {micro_batch}"
    if smaller:
        split = f"{samples} as {steps - smaller} × {micro_batch} and {smaller} × {micro_batch - 1}"
    return f"{split}, {times[micro_batch]:.3g} times the time of one batch{than}"


def settings(panel):
    """What the controls say, in the order in which :func:`by_hand` takes it."""
    sizes = (panel.model, panel.sequence, panel.effective_batch, panel.budget)
    choices = (panel.precision, panel.optimizer, panel.checkpointing)
    return [control.value for control in (*sizes, *choices)]


def assert_memory_panel_is_right(panel):
    model, sequence, batch, budget, *rest = settings(panel)
    micro_batch, parts, times = by_hand(model, sequence, batch, budget, *rest)
    gib = {part: size / 1024**3 for part, size in parts.items()}
    verdict = spoken(micro_batch, parts, times, batch, panel.checkpointing.value)
    assert_readable(panel.picture)  # first, for drawing writes the ticks' labels
    assert_bar_is_right(panel.picture, gib, budget)
    assert_times_are_right(panel.picture, micro_batch, times)
    low, high = panel.picture.beside.get_ylim()
    assert low < 1 < high  # a longer time stands higher, and one batch has its line
    assert panel.picture.verdict.get_text() == verdict
    assert panel.table.heading == ("part", "GiB")
    assert panel.table.rows == (
        *((part, f"{size:.3g}") for part, size in gib.items()),
        ("all", f"{sum(gib.values()):.3g}"),
    )
    assert panel.table.closing == verdict
    assert panel.alt == f"A plan for a memory budget: {verdict}"
    marks = re.findall("border-left:6px solid (#[0-9A-Fa-f]{6})", panel.screen.value)
    assert [mark.lower() for mark in marks] == list(COLOURS.values())


def assert_bar_is_right(picture, gib, budget):
    """Segments from 0 on without a gap, each as wide as its part, under its name and colour."""
    end = 0
    assert list(picture.bars) == list(gib)
    for part, bar in picture.bars.items():
        (outline,) = (path.vertices[:4] for path in bar.get_paths())
        start, end = end, end + gib[part]
        assert outline[:, 0].tolist() == pytest.approx([start, end, end, start])
        assert outline[:, 1].tolist() == [0.1, 0.1, 0.95, 0.95]
        assert (bar.get_label(), to_hex(bar.get_facecolor()[0])) == (part, COLOURS[part])
    legend = picture.axes.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == [*COLOURS, "budget"]
    handles = [to_hex(patch.get_facecolor()) for patch in legend.get_patches()]
    assert handles == list(COLOURS.values())
    assert list(picture.budget.get_xdata()) == [budget, budget]
    assert list(picture.budget.get_ydata()) == list(picture.axes.get_ylim())
    left, right = picture.axes.get_xlim()
    assert left == 0
    assert 1.04 * max(end, budget) <= right <= 2.1 * max(end, budget)
    ticks = picture.axes.get_xticks().tolist()
    assert ticks == [right * i / 4 for i in range(5)]
    assert tick_labels(picture.axes.xaxis) == [str(int(tick)) for tick in ticks]
    assert picture.axes.get_xlabel() == "GiB"


def assert_times_are_right(picture, micro_batch, times):
    axes = picture.beside
    assert list(picture.times.get_xdata()) == list(times)
    assert list(picture.times.get_ydata()) == pytest.approx(list(times.values()))
    ring = [] if micro_batch is None else [(micro_batch, pytest.approx(times[micro_batch]))]
    assert list(zip(*picture.chosen.get_data(), strict=True)) == ring
    powers = [m for m in (1, 2, 4, 8, 16, 32, 64, 128, 256) if m <= max((4, *times))]
    assert axes.get_xticks().tolist() == powers
    assert tick_labels(axes.xaxis) == [str(m) for m in powers]
    assert tick_labels(axes.yaxis) == ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")
    assert axes.get_title(loc="right") == "time of an update, one batch = 1"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["the plan"]


def tick_labels(axis):
    return [tick.label1.get_text() for tick in axis.get_major_ticks()]


def test_every_setting_of_the_memory_panel_has_the_plan_worked_out_by_hand():
    for setting in itertools.product(
        SIZES, SEQUENCES, BATCHES, BUDGETS, BYTES, NUMBERS_KEPT, (False, True)
    ):
        model, sequence, batch, budget, *rest = setting
        split = split_for(SHAPES[model], sequence, batch, budget * GIB, *rest)
        micro_batch, parts, times = by_hand(*setting)
        assert (split.micro_batch, split.parts, list(split.times)) == (
            micro_batch,
            parts,
            list(times),
        ), setting
        assert split.steps == (micro_batch and math.ceil(batch / micro_batch)), setting
        assert all(math.isclose(split.times[m], time) for m, time in times.items()), setting


def test_the_memory_panel_offers_the_settings_that_were_worked_out():
    offered = [values(control) for control in MemoryPanel().controls]
    assert offered == [
        list(SIZES),
        list(NUMBERS_KEPT),
        list(SEQUENCES),
        list(BATCHES),
        list(BUDGETS),
        list(BYTES),
        [False, True],
    ]


@pytest.mark.parametrize("seed", range(2))
def test_controls_in_any_order_leave_the_memory_panel_right(seed):
    stays_right(MemoryPanel(), assert_memory_panel_is_right, seed, moves=25)


def test_the_targets_of_the_memory_panel_have_the_answers_given():
    panel = MemoryPanel()
    panel.sequence.value = 1024
    assert panel.split.micro_batch == 5
    assert panel.split.steps == 13
    panel.precision.value = "mixed"
    assert (panel.split.micro_batch, panel.split.steps) == (8, 8)
    panel.precision.value = "bfloat16"
    assert (panel.split.micro_batch, panel.split.steps) == (10, 7)
    with panel.hold():
        panel.sequence.value, panel.precision.value = 512, "float32"
        panel.model.value = "GPT-2 XL"
    assert panel.split.micro_batch is None
    parts = panel.split.parts
    assert round(sum(parts.values()) / GIB, 1) == 29.8
    assert round(parts["optimizer state"] / sum(parts.values()), 2) == 0.39
    mended = {}
    for control, value in (
        (panel.checkpointing, True),
        (panel.precision, "mixed"),
        (panel.precision, "bfloat16"),
        (panel.optimizer, "SGD"),
    ):
        before, control.value = control.value, value
        mended[value] = panel.split.micro_batch
        control.value = before
    assert mended == {True: None, "mixed": None, "bfloat16": 1, "SGD": None}


def test_the_parts_are_those_that_the_lesson_names_beside_the_formula():
    """A quarter of what the panel first shows as kept for backward are logits, not layers."""
    parts = MemoryPanel().split.parts
    share = parts["logits"] / (parts["logits"] + parts["activations"])
    assert round(share, 2) == 0.24


def test_the_effective_batch_changes_nothing_in_the_bar():
    panel = MemoryPanel()
    before = panel.split.parts
    panel.effective_batch.value = 128
    assert panel.split.parts == before


def test_checkpointing_is_never_faster_at_the_published_times():
    panel = MemoryPanel()
    slowest = max(panel.split.times.values())
    panel.checkpointing.value = True
    assert min(panel.split.times.values()) > slowest


def test_the_allowance_is_part_of_what_must_fit():
    assert MemoryPanel().split.parts["allowance"] == ALLOWANCE


def test_a_line_through_points_has_both_in_its_table():
    picture = line_through("Peak", [1, 2], [10, 20], [11, 19], "m")
    assert picture.table.text() == "m          1   2\nmeasured  10  20\nline      11  19"
    (axes,) = picture.figure.axes
    line, points = axes.lines
    assert [list(artist.get_xdata()) for artist in (line, points)] == [[1, 2], [1, 2]]
    assert (list(line.get_ydata()), list(points.get_ydata())) == ([11, 19], [10, 20])
    assert (line.get_linestyle(), points.get_linestyle(), points.get_marker()) == (
        "--",
        "None",
        "o",
    )
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["line", "measured"]
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylim()[0]) == ("Peak", "m", 0)
    assert picture.alt == "Peak. 1: 10, 2: 20"
    assert_readable(SimpleNamespace(figure=picture.figure, moving=[line, points]))


def test_a_net_that_is_measured_stays_as_it_was():
    net = nn.Linear(2, 2)
    before = [p.clone() for p in net.parameters()]
    with measure(net):
        net(torch.ones(1, 2))
    assert all(map(torch.equal, before, net.parameters()))
