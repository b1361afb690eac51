from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.panels import WindowsPanel
from helpers.subjects.windows import POLICIES, timeline
from tests.subjects.panels import stays_right

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
    with pytest.raises(
        ValueError, match=r"policy must be one of 'true mean', .*'leaked', got 'flush'"
    ):
        timeline(5, 1, 4, 1, "flush")


# the panel


def assert_windows_panel_is_right(panel):
    samples, epochs = panel.samples.value, panel.epochs.value
    places = [
        (batch.epoch * samples + i, batch.weight * sum(len(b.samples) for b in u.micro_batches))
        for u in panel.run.updates
        for batch in u.micro_batches
        for i in batch.samples
    ]
    shares = [dict(places).get(place, 0) for place in range(samples * epochs)]
    assert panel.run.shares() == pytest.approx(shares)
    bars = [path.vertices for path in panel.picture.shares.bars.get_paths()]
    drawn = {i: bar[1][1] for bar in bars for i in range(round(bar[0][0]), round(bar[2][0]))}
    assert [drawn[place] for place in range(samples * epochs)] == pytest.approx(shares)
    assert len(panel.picture.steps.get_xdata()) == len(panel.run.updates)
    crosses = [x - 0.5 for x in panel.picture.unused.get_xdata()]
    assert crosses == [place for place, share in enumerate(shares) if share == 0]
    top = panel.picture.shares.axes.get_ylim()[1]
    assert max(shares) < top


@pytest.mark.parametrize("seed", range(3))
def test_controls_in_any_order_leave_the_windows_panel_right(seed):
    stays_right(WindowsPanel(), assert_windows_panel_is_right, seed)


@pytest.mark.parametrize("policy", ["true mean", "divided by k", "dropped", "carried on", "leaked"])
def test_all_policies_agree_when_the_samples_divide(policy):
    panel = WindowsPanel()
    panel.samples.value, panel.policy.value = 6, policy
    assert panel.run.shares() == pytest.approx([1] * 12)


def test_the_targets_of_the_windows_panel_have_the_answers_given():
    panel = WindowsPanel()
    with panel.hold():
        panel.samples.value, panel.batch_size.value = 26, 4
    assert panel.run.shares() == pytest.approx(([1] * 24 + [1 / 3] * 2) * 2)
    with panel.hold():
        panel.batch_size.value, panel.accumulation_steps.value = 1, 6
        panel.policy.value = "leaked"
    most = 0
    for panel.samples.value in range(1, 41):
        most = max([most, *(update.total_weight for update in panel.run.updates)])
    assert most == pytest.approx(11 / 6)
    with panel.hold():
        panel.samples.value, panel.policy.value = 5, "dropped"
    assert panel.run.updates == ()
