import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

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


def assert_tokens_panel_is_right(panel):
    total = sum(slider.value for slider in panel.targets)
    assert len(panel.window.shares) == total
    bars = [path.vertices for path in panel.picture.shares.bars.get_paths()]
    drawn = [b[1][1] for b in bars for _ in range(round(b[2][0] - b[0][0]))]
    assert drawn == pytest.approx(panel.window.shares)
    (error,) = panel.picture.error.get_paths()
    assert error.vertices[1][1] == pytest.approx(panel.window.error)
    assert panel.window.loss_is_nan == ("the loss is NaN" in panel.table.closing or not total)
    if panel.rule.value == "tokens" and total:
        assert panel.window.error < 1e-5


def test_controls_in_any_order_leave_the_tokens_panel_right(panel):
    stays_right(panel, assert_tokens_panel_is_right, seed=0)


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
