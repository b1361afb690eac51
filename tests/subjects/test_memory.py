import pytest
import torch
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
    update_time,
)
from tests.subjects.panels import stays_right


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
    assert four.pop("activations") == 4 * one.pop("activations")
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


def total_with(panel, micro_batch):
    settings = panel.precision.value, panel.optimizer.value, panel.checkpointing.value
    shape = SHAPES[panel.model.value]
    return ALLOWANCE + sum(estimate(shape, panel.sequence.value, micro_batch, *settings).values())


def assert_memory_panel_is_right(panel):
    budget = panel.budget.value * GIB
    if panel.split.micro_batch is None:
        assert sum(panel.split.parts.values()) > budget
        assert panel.split.times == {}
    else:
        assert sum(panel.split.parts.values()) <= budget
        if panel.split.micro_batch < panel.effective_batch.value:
            assert total_with(panel, panel.split.micro_batch + 1) > budget
        assert (panel.split.steps - 1) * panel.split.micro_batch < panel.effective_batch.value
        assert panel.split.steps * panel.split.micro_batch >= panel.effective_batch.value
        chosen = panel.picture.chosen.get_data()
        assert [float(v[0]) for v in chosen] == [
            panel.split.micro_batch,
            panel.split.times[panel.split.micro_batch],
        ]
    widths = [p.vertices[1][0] - p.vertices[0][0] for p in panel.picture.bars.get_paths()]
    assert widths == pytest.approx([size / GIB for size in panel.split.parts.values()])
    assert set(panel.picture.budget.get_xdata()) == {panel.budget.value}


@pytest.mark.parametrize("seed", range(3))
def test_controls_in_any_order_leave_the_memory_panel_right(seed):
    stays_right(MemoryPanel(), assert_memory_panel_is_right, seed)


def test_the_targets_of_the_memory_panel_have_the_answers_given():
    panel = MemoryPanel()
    panel.sequence.value = 1024
    assert panel.split.micro_batch == 5
    panel.precision.value = "mixed"
    assert panel.split.micro_batch == 9
    with panel.hold():
        panel.sequence.value, panel.precision.value = 512, "float32"
        panel.model.value = "GPT-2 XL"
    assert panel.split.micro_batch is None
    panel.checkpointing.value = True
    assert panel.split.micro_batch is None
    with panel.hold():
        panel.checkpointing.value, panel.precision.value = False, "bfloat16"
    assert panel.split.micro_batch == 1
    panel.optimizer.value = "SGD"
    assert panel.split.micro_batch > 1


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
    line, points = picture.figure.axes[0].lines
    assert (list(line.get_ydata()), list(points.get_ydata())) == ([11, 19], [10, 20])


def test_a_net_that_is_measured_stays_as_it_was():
    net = nn.Linear(2, 2)
    before = [p.clone() for p in net.parameters()]
    with measure(net):
        net(torch.ones(1, 2))
    assert all(map(torch.equal, before, net.parameters()))
