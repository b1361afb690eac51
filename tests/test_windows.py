from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.windows import POLICIES, timeline, windows

GRADIENTS = (1, 10, 100, 1000, 10000)


def gradients(updates, micro=GRADIENTS):
    """Each update's gradient when micro-batch i (of one sample) has the gradient micro[i]."""
    return [
        sum(batch.weight * micro[i] for batch in update.micro_batches for i in batch.samples)
        for update in updates
    ]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("true mean", [277.75, 10000, 277.75, 10000]),
        ("divided by k", [277.75, 2500, 277.75, 2500]),
        ("dropped", [277.75, 277.75]),
        ("carried on", [277.75, 2527.75]),
        ("leaked", [277.75, 2777.75]),
    ],
)
def test_five_micro_batches_with_k_4_over_two_epochs(policy, expected):
    assert gradients(timeline(5, 1, 4, 2, policy).updates) == expected


def test_seven_micro_batches_with_k_3_over_two_epochs():
    micro = range(1, 8)
    updates = {p: gradients(timeline(7, 1, 3, 2, p).updates, micro) for p in POLICIES}
    assert updates["true mean"] == pytest.approx([2, 5, 7, 2, 5, 7])
    assert updates["divided by k"] == pytest.approx([2, 5, 7 / 3, 2, 5, 7 / 3])
    assert updates["dropped"] == pytest.approx([2, 5, 2, 5])
    assert updates["carried on"] == pytest.approx([2, 5, 10 / 3, 4])
    assert updates["leaked"] == pytest.approx([2, 5, 13 / 3, 5])


numbers = {
    "samples": st.integers(1, 40),
    "batch_size": st.integers(1, 9),
    "accumulation_steps": st.integers(1, 6),
    "epochs": st.integers(1, 3),
}


@given(**numbers)
def test_the_true_mean_uses_every_sample_once_and_weights_all_of_an_update_alike(**numbers):
    run = timeline(**numbers, policy="true mean")
    used = Counter((b.epoch, i) for u in run.updates for b in u.micro_batches for i in b.samples)
    assert used == Counter(
        (e, i) for e in range(numbers["epochs"]) for i in range(numbers["samples"])
    )
    assert run.unused == ()
    for update in run.updates:
        count = sum(len(batch.samples) for batch in update.micro_batches)
        assert {batch.weight for batch in update.micro_batches} == {1 / count}


@given(**numbers, policy=st.sampled_from(list(POLICIES)))
def test_no_policy_uses_a_sample_twice_or_loses_one_silently(policy, **numbers):
    run = timeline(**numbers, policy=policy)
    used = [b for update in run.updates for b in update.micro_batches] + list(run.unused)
    drawn = sorted((batch.epoch, i) for batch in used for i in batch.samples)
    assert drawn == [(e, i) for e in range(numbers["epochs"]) for i in range(numbers["samples"])]


@given(**numbers)
def test_all_policies_agree_when_nothing_is_left_over(**numbers):
    k, size = numbers["accumulation_steps"], numbers["batch_size"]
    numbers["samples"] = size * k * 2
    runs = [timeline(**numbers, policy=policy) for policy in POLICIES]
    weights = [[u.total_weight for u in run.updates] for run in runs]
    assert all(w == pytest.approx([1] * 2 * numbers["epochs"]) for w in weights)
    assert all(run.unused == () for run in runs)


@given(st.lists(st.integers(), max_size=30), st.integers(1, 7))
def test_windows_are_the_items_in_order_and_only_the_last_is_short(items, k):
    cut = list(windows(iter(items), k))
    assert [item for window in cut for item in window] == items
    assert all(len(window) == k for window in cut[:-1])
    assert all(window for window in cut)


def test_windows_draw_nothing_before_it_is_needed():
    drawn = []
    items = (drawn.append(i) or i for i in range(100))
    next(windows(items, 3))
    assert drawn == [0, 1, 2]


@pytest.mark.parametrize(
    ("numbers", "error", "message"),
    [
        ((0, 1, 1, 1), ValueError, "samples must be a whole number of at least 1, got 0"),
        ((5, 0, 1, 1), ValueError, "batch_size must be a whole number of at least 1, got 0"),
        ((5, 1, -1, 1), ValueError, "accumulation_steps must be .* at least 1, got -1"),
        ((5, 1, 2.5, 1), TypeError, "accumulation_steps must be .* at least 1, got 2.5"),
        ((5, 1, 1, 0), ValueError, "epochs must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_numbers_are_named(numbers, error, message):
    with pytest.raises(error, match=message):
        timeline(*numbers, "true mean")


def test_an_unknown_policy_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match=r"policy must be one of true mean, .*leaked, got 'flush'"):
        timeline(5, 1, 4, 1, "flush")
    with pytest.raises(ValueError, match=r"accumulation_steps must be .* at least 1, got 0"):
        list(windows([1], 0))
