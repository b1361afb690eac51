import itertools
import re
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from torch.nn import functional as F

from helpers.figures import weight_bars
from helpers.gradients import compare, flat_gradient
from helpers.models import tiny_language_model
from helpers.panels import TokensPanel
from helpers.subjects.tokens import (
    IGNORED,
    count_targets,
    pad,
    sequences,
    target_gradients,
    token_loss,
)
from tests.subjects.panels import stays_right
from tests.subjects.pictures import assert_readable, overlapping, text_extents

OKABE_ITO = ("#E69F00", "#56B4E9", "#CC79A7", "#999999")


def gradient(model, batches, rule="tokens"):
    """The accumulated gradient over micro-batches of sequences."""
    total = sum(len(sequence) - 1 for batch in batches for sequence in batch)
    model.zero_grad()
    for batch in batches:
        tokens, labels = pad(batch)
        if rule == "tokens":
            (token_loss(model(tokens), labels, "sum") / total).backward()
        else:
            (token_loss(model(tokens), labels) / len(batches)).backward()
    return flat_gradient(model)


# padding and counting


def test_labels_are_the_next_tokens_and_the_last_has_none():
    tokens, labels = pad([torch.tensor([5, 6, 7]), torch.tensor([1, 2])])
    assert tokens.tolist() == [[5, 6, 7], [1, 2, 0]]
    assert labels.tolist() == [[6, 7, IGNORED], [2, IGNORED, IGNORED]]


def test_two_rows_of_three_and_five_have_six_targets_not_eight():
    _, labels = pad(sequences([3, 5]))
    assert count_targets(labels) == 6
    assert (24 / count_targets(labels), 24 / 8) == (4, 3)


def test_a_mean_over_no_target_is_nan_and_a_sum_is_zero():
    logits, labels = torch.zeros(1, 3, 12), torch.full((1, 3), IGNORED)
    assert token_loss(logits, labels).isnan()
    assert token_loss(logits, labels, "sum") == 0


def test_padding_changes_no_loss():
    model = tiny_language_model()
    short, long = sequences([4, 30])
    alone = token_loss(model(pad([short])[0]), pad([short])[1], "sum")
    tokens, labels = pad([short, long])
    beside = F.cross_entropy(model(tokens)[0], labels[0], ignore_index=IGNORED, reduction="sum")
    assert torch.allclose(alone, beside, rtol=1e-5)


def test_the_model_sees_no_later_token():
    model = tiny_language_model()
    (long,) = sequences([12])
    rows = target_gradients(model, long)
    assert rows.shape == (11, sum(p.numel() for p in model.parameters()))
    assert torch.allclose(target_gradients(model, long[:5]), rows[:4], atol=1e-6)


@pytest.mark.parametrize(("length", "step"), [(8, 1), (9, 3)])
def test_sequences_of_up_to_eight_count_in_ones_and_longer_ones_in_threes(length, step):
    steps = Counter()
    for sequence in sequences([length] * 200):
        steps.update(((sequence[1:] - sequence[:-1]) % 12).tolist())
    assert steps.most_common(1)[0][0] == step
    assert steps[step] > 4 * steps[4 - step]


def test_model_and_sequences_leave_the_random_state_alone():
    state = torch.random.get_rng_state()
    tiny_language_model(), sequences([3, 9])
    assert torch.equal(torch.random.get_rng_state(), state)


def test_cross_entropy_of_no_target_is_nan_with_a_gradient_of_zero():
    logits = torch.zeros(1, 3, 12, requires_grad=True)
    token_loss(logits, torch.full((1, 3), IGNORED)).backward()
    assert torch.equal(logits.grad, torch.zeros(1, 3, 12))


# the rule

lengths = st.lists(st.integers(2, 20), min_size=2, max_size=7)


@settings(max_examples=25)
@given(lengths=lengths, seed=st.integers(0, 1000), data=st.data())
def test_by_tokens_any_cut_and_any_padding_give_the_full_batch(lengths, seed, data):
    model, batch = tiny_language_model(), sequences(lengths, seed)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(batch) - 1))))
    pieces = [batch[a:b] for a, b in itertools.pairwise([0, *cuts, len(batch)])]
    accumulated = gradient(model, pieces)
    assert compare(accumulated, gradient(model, [batch])).relative_difference < 1e-5


@given(targets=st.lists(st.integers(1, 8), min_size=2, max_size=6), data=st.data())
def test_by_tokens_dyadic_gradients_are_exact(targets, data):
    """A power of two of targets in all, each with a small dyadic gradient: no rounding anywhere."""
    total = 1 << (sum(targets) - 1).bit_length()
    targets.append(total - sum(targets)) if total > sum(targets) else None
    values = [data.draw(st.integers(-16, 16)) / 4 for _ in range(total)]
    weight = torch.zeros((), requires_grad=True)
    rest = iter(values)
    for count in targets:
        own = torch.tensor([next(rest) for _ in range(count)])
        ((weight * own).sum() / total).backward()
    assert weight.grad.item() == sum(values) / total


def test_by_steps_unequal_lengths_are_far_off_and_equal_ones_are_not():
    model = tiny_language_model()
    unequal, equal = sequences([3, 3, 4, 20, 5, 24, 3, 18]), sequences([9] * 8)
    for batch, low, high in ((unequal, 0.4, 0.7), (equal, 0, 1e-5)):
        pairs = [batch[i : i + 2] for i in range(0, 8, 2)]
        error = compare(gradient(model, pairs, "steps"), gradient(model, [batch]))
        assert low <= error.relative_difference < high


def test_two_tokens_of_class_one_and_six_of_class_zero_vanish_by_mean_of_means():
    b = torch.zeros((), dtype=torch.float64, requires_grad=True)

    def loss(label, count, reduction):
        logits = torch.stack([b, torch.zeros_like(b)]).expand(count, 2)
        return F.cross_entropy(logits, torch.full((count,), label), reduction=reduction)

    (wrong,) = torch.autograd.grad((loss(1, 2, "mean") + loss(0, 6, "mean")) / 2, b)
    (right,) = torch.autograd.grad((loss(1, 2, "sum") + loss(0, 6, "sum")) / 8, b)
    assert (wrong.item(), right.item()) == (pytest.approx(0, abs=1e-15), -0.25)


# the still picture


def test_the_bars_of_each_rule_are_its_weights_in_order_with_the_fair_share_dashed():
    rules = {"divided by steps": [0.1, 0.25, 0.05, 0.6], "weighted by samples": [0.25] * 4}
    picture = weight_bars("Weights", rules)
    left, right = picture.figure.axes
    assert (left.get_title(), right.get_title()) == tuple(rules)
    for axes, weights, colour in zip(
        picture.figure.axes, rules.values(), ("#0072B2", "#009E73"), strict=True
    ):
        assert [bar.get_height() for bar in axes.patches] == weights
        middles = [bar.get_x() + bar.get_width() / 2 for bar in axes.patches]
        assert middles == pytest.approx([1, 2, 3, 4])
        assert {bar.get_facecolor()[:3] for bar in axes.patches} == {to_rgb(colour)}
        assert list(axes.lines[0].get_ydata()) == [0.25, 0.25]
        assert axes.get_xticks().tolist() == [1, 2, 3, 4]
        assert axes.get_ylim()[0] == 0
        assert axes.get_ylim()[1] > 1.2 * 0.6
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["fair"]
    assert (left.get_ylabel(), left.get_xlabel()) == ("weight", "sample")
    assert picture.table.heading == ("weight of sample", "1", "2", "3", "4")
    assert picture.table.rows == (
        ("divided by steps", "0.1", "0.25", "0.05", "0.6"),
        ("weighted by samples", "0.25", "0.25", "0.25", "0.25"),
    )
    assert picture.alt == (
        "Weights. divided by steps: 0.1, 0.25, 0.05, 0.6; "
        "weighted by samples: 0.25, 0.25, 0.25, 0.25"
    )
    extents = text_extents(picture)
    assert list(overlapping(extents)) == []
    assert all(picture.figure.bbox.contains(box.x0, box.y0) for _, box in extents)


# bad input


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: sequences([]), TypeError, r"lengths must be one or more whole numbers, got \[\]"),
        (lambda: sequences([2.5]), TypeError, "lengths must be"),
        (lambda: sequences([0, 3]), ValueError, "each of lengths must be from 1 to 64"),
        (lambda: sequences([65]), ValueError, "each of lengths must be from 1 to 64"),
        (lambda: pad([]), ValueError, "batch must hold at least one sequence, got none"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


# the panel


@pytest.fixture(scope="module")
def shared_panel():
    return TokensPanel()


@pytest.fixture
def panel(shared_panel):
    """The panel as it opens; making one works out 96 gradients."""
    with shared_panel.hold():
        start = (2, 2, 3, 12, 2, 10, 3, 4)
        for slider, value in zip(shared_panel.targets, start, strict=True):
            slider.value = value
        for i, gap in enumerate(shared_panel.gaps, start=1):
            gap.value = i % 2 == 0
        shared_panel.rule.value = "means"
    return shared_panel


def measured_error(panel):
    """The same from autograd, on real padded batches; sequences without targets have one token."""
    full = [
        s[: slider.value + 1] for s, slider in zip(sequences([13] * 8), panel.targets, strict=True)
    ]
    rest = iter(full)
    pieces = [[next(rest) for _ in range(size)] for size in panel.sizes]
    model, total = tiny_language_model(), sum(slider.value for slider in panel.targets)
    factors = {
        "means": lambda n, size: 1 / len(panel.sizes) / n,
        "sequences": lambda n, size: size / 8 / n,
        "tokens": lambda n, size: 1 / total,
    }[panel.rule.value]
    model.zero_grad()
    for piece in pieces:
        tokens, labels = pad(piece)
        if count_targets(labels):
            loss = token_loss(model(tokens), labels, "sum")
            (loss * factors(count_targets(labels), len(piece))).backward()
    return compare(flat_gradient(model), gradient(model, [full])).relative_difference


@pytest.mark.parametrize("rule", ["means", "sequences", "tokens"])
def test_the_panels_error_is_what_autograd_measures(panel, rule):
    panel.rule.value = rule
    panel.gaps[1].value = False
    panel.targets[7].value = panel.targets[6].value = 0
    assert panel.window.error == pytest.approx(measured_error(panel), abs=1e-5)


def by_hand(panel):
    """For each micro-batch its sequences' targets and the weight of its mean loss."""
    targets, pieces = [slider.value for slider in panel.targets], [[]]
    for i, count in enumerate(targets):
        pieces[-1].append(count)
        if i < 7 and panel.gaps[i].value:
            pieces.append([])
    total = sum(targets)
    weigh = {
        "means": lambda piece: 1 / len(pieces),
        "sequences": lambda piece: len(piece) / 8,
        "tokens": lambda piece: sum(piece) / total if total else 0,
    }[panel.rule.value]
    return [(piece, weigh(piece) if sum(piece) else 0) for piece in pieces]


def verdict_by_hand(panel, error):
    pieces = by_hand(panel)
    if not any(sum(piece) for piece, _ in pieces):
        return "no target in the whole window: no step at all"
    says_nan = panel.rule.value != "tokens" and any(sum(piece) == 0 for piece, _ in pieces)
    begin = "the loss is NaN, " if says_nan else ""
    if error < 1e-6:
        return begin + "every target counts the same: the full-batch gradient, up to rounding"
    return begin + f"the gradient is off by {error:.0%} of the full batch's length"


def assert_numbered(picture, panel):
    """The number of every sequence that has targets over the middle of its bar."""
    counts = [slider.value for slider in panel.targets]
    ends = list(itertools.accumulate(counts))
    over = {
        str(i): end - count / 2
        for i, (end, count) in enumerate(zip(ends, counts, strict=True), start=1)
        if count
    }
    shown = [text for text in picture.numbers if text.get_text()]
    assert {text.get_text(): text.get_position()[0] for text in shown} == over
    assert all(text.get_position()[1] > 1 for text in shown)  # above the axes


def assert_tokens_panel_is_right(panel):
    pieces, picture = by_hand(panel), panel.picture
    total = sum(count for piece, _ in pieces for count in piece)
    measured = measured_error(panel) if total else 0
    error = 0 if measured < 2e-5 else measured  # what rounding leaves is nobody's error
    assert picture.error.get_paths()[0].vertices[1][1] == pytest.approx(error, rel=1e-3, abs=1e-5)
    verdict = verdict_by_hand(panel, error)

    assert_readable(picture)
    bars, expected = [path.vertices for path in picture.shares.bars.get_paths()], []
    for number, (piece, weight) in enumerate(pieces):
        for count in piece:
            if count:
                expected.append((count, weight / sum(piece) * total, OKABE_ITO[number % 4]))
    ends = list(itertools.accumulate(count for count, _, _ in expected))
    assert [bar[0][0] for bar in bars] == [0, *ends][: len(ends)]
    assert [bar[2][0] for bar in bars] == ends
    for corner in (1, 2):
        heights = [bar[corner][1] for bar in bars]
        assert heights == pytest.approx([share for _, share, _ in expected])
    colours = picture.shares.bars.get_facecolor()[:, :3]
    for colour, (_, _, full) in zip(colours, expected, strict=True):
        assert list(colour) == pytest.approx([0.75 + 0.25 * c for c in to_rgb(full)], abs=1 / 255)
    assert_numbered(picture, panel)
    axes = picture.shares.axes
    most = max((share for _, share, _ in expected), default=1)
    assert most < axes.get_ylim()[1] <= max(2.2, 2.51 * most)
    assert total <= axes.get_xlim()[1] <= max(10, 2 * total)
    assert error < picture.beside.get_ylim()[1] <= max(1.5, 2.01 * error)
    for axis in (axes.xaxis, axes.yaxis, picture.beside.yaxis):
        ticks = [(tick.get_loc(), tick.label1.get_text()) for tick in axis.get_major_ticks()]
        assert all(float(text) == at for at, text in ticks)
        assert {at for at, _ in ticks} >= ({1} if axis is axes.yaxis else {0, max(ticks)[0]})
    assert [*axes.get_title().split(",")] == verdict.split(",")

    rows = [
        (
            "1 sequence" if len(piece) == 1 else f"{len(piece)} sequences",
            str(sum(piece)),
            f"{weight:.3g}",
            f"{weight / sum(piece) * total:.3g}" if sum(piece) else "–",
        )
        for piece, weight in pieces
    ]
    assert panel.table.heading == (
        *("micro-batch", "targets", "weight of its mean", "each target counts"),
    )
    assert list(panel.table.rows) == rows
    assert panel.table.closing == verdict
    assert panel.alt == f"Eight sequences cut into micro-batches: {verdict}"
    marks = re.findall(r"border-left:6px solid (#\w+)", panel.screen.value)
    assert marks == [OKABE_ITO[i % 4] for i in range(len(pieces))]


def test_controls_in_any_order_leave_the_tokens_panel_right(panel):
    stays_right(panel, assert_tokens_panel_is_right, seed=0, moves=30)


@pytest.mark.parametrize(
    ("targets", "cuts", "rule", "error", "share"),
    [
        ((1, 12, 12, 12, 12, 12, 12, 12), {1}, "means", 1.79, 42.5),
        ((12, 0, 0, 0, 0, 0, 1, 12), {1, 7}, "sequences", 3.61, 18.75),
        ((0, 0, 0, 0, 0, 0, 0, 1), {4}, "means", 0.5, 0.5),
    ],
)
def test_errors_and_weights_far_beyond_the_fair_share_are_in_the_picture(
    panel, targets, cuts, rule, error, share
):
    with panel.hold():
        for slider, value in zip(panel.targets, targets, strict=True):
            slider.value = value
        for i, gap in enumerate(panel.gaps, start=1):
            gap.value = i in cuts
        panel.rule.value = rule
    assert round(panel.window.error, 2) == error
    assert max(panel.window.shares) == pytest.approx(share)
    assert_tokens_panel_is_right(panel)


def test_the_targets_of_the_token_panel_have_the_answers_given(panel):
    for slider, value in zip(panel.targets, (3, 4, 5, 2, 1, 6, 7, 0), strict=True):
        slider.value = value
    assert panel.window.error < 1e-5  # 7 targets in each micro-batch
    with panel.hold():
        for slider, value in zip(panel.targets, (1, 0, 12, 12, 12, 12, 12, 12), strict=True):
            slider.value = value
    assert max(panel.window.shares) > 5
    panel.targets[0].value = 0
    for rule, nan in {"means": True, "sequences": True, "tokens": False}.items():
        panel.rule.value = rule
        assert panel.window.loss_is_nan == nan
        assert (panel.window.error < 1e-5) != nan


def test_cut_after_3_5_and_6_by_sequences_is_worse_than_by_steps(panel):
    for i, gap in enumerate(panel.gaps, start=1):
        gap.value = i in (3, 5, 6)
    assert round(panel.window.error, 2) == 0.17
    panel.rule.value = "sequences"
    assert round(panel.window.error, 2) == 0.36


def test_a_window_without_any_target_makes_no_step(panel):
    with panel.hold():
        for slider in panel.targets:
            slider.value = 0
    assert panel.table.closing == "no target in the whole window: no step at all"
