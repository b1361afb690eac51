import itertools
from collections import Counter
from operator import sub

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb

from helpers.figures.shares import first_above
from helpers.panels import WindowsPanel
from helpers.subjects.windows import POLICIES, timeline
from tests.subjects.panels import stays_right, values
from tests.subjects.pictures import assert_readable

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


SAID = {
    "true mean": "step on the short window, with the mean over its own samples",
    "divided by k": "step on the short window, its losses divided by k all the same",
    "dropped": "no step on the short window, its gradients thrown away",
    "carried on": "count on into the next epoch, so that every window is full",
    "leaked": "count anew, with the short window still in .grad",
}
OKABE_ITO = ("#E69F00", "#56B4E9", "#CC79A7", "#999999")
MOST = 11  # fair shares, of any setting


def by_hand(samples, batch_size, k, epochs, policy):
    """Micro-batches as (first sample, size) in the windows of the updates; and those left over."""
    drawn, cuts = [], []
    for epoch in range(epochs):
        for count, start in enumerate(range(0, samples, batch_size), start=1):
            drawn.append((epoch * samples + start, min(batch_size, samples - start)))
            last = start + batch_size >= samples
            if policy != "carried on" and (count % k == 0 or (last and policy != "leaked")):
                cuts.append(len(drawn))
    if policy == "carried on":
        cuts = list(range(k, len(drawn) + 1, k))
    windows = [drawn[a:b] for a, b in itertools.pairwise([0, *cuts])]
    rest = drawn[cuts[-1] if cuts else 0 :]
    if policy == "dropped":
        rest = [batch for window in windows if len(window) < k for batch in window] + rest
        windows = [window for window in windows if len(window) == k]
    return windows, rest


def drawn_by_hand(samples, batch_size, k, epochs, policy):
    """Shares and owners of all samples, then where micro-batches, steps and epochs end."""
    windows, rest = by_hand(samples, batch_size, k, epochs, policy)
    shares, owners = [0.0] * (samples * epochs), [None] * (samples * epochs)
    for number, window in enumerate(windows):
        count = sum(size for _, size in window)
        for first, size in window:
            share = 1 if policy == "true mean" else count / (k * size)
            shares[first : first + size] = [share] * size
            owners[first : first + size] = [number] * size
    ends = sorted(first + size for window in (*windows, rest) for first, size in window)
    steps = [first + size for first, size in (window[-1] for window in windows)]
    return shares, owners, ends, steps, [samples * epoch for epoch in range(1, epochs + 1)]


def test_every_setting_of_the_panel_gives_the_windows_worked_out_by_hand():
    panel, most = WindowsPanel(), 0
    numbers = (panel.samples, panel.batch_size, panel.accumulation_steps, panel.epochs)
    settings = itertools.product(*map(values, (*numbers, panel.policy)))
    for setting in settings:
        run = timeline(*setting)
        shares, *rest = drawn_by_hand(*setting)
        assert max(map(abs, map(sub, run.shares(), shares))) < 1e-9, setting
        assert [run.owners(), run.batch_ends(), run.step_ends(), run.epoch_ends()] == rest, setting
        most = max(most, *shares)
    assert most == MOST


def test_the_picture_has_room_for_the_largest_share_of_any_setting():
    panel = WindowsPanel()
    with panel.hold():
        panel.samples.value, panel.batch_size.value, panel.epochs.value = 33, 8, 3
        panel.policy.value = "leaked"
    assert max(panel.run.shares()) == pytest.approx(MOST)
    assert_windows_panel_is_right(panel)


@given(st.floats(0, 1e12), st.lists(st.floats(0.1, 200), min_size=1, max_size=6))
def test_there_is_a_limit_above_any_value(value, limits):
    limit = first_above(value, sorted(limits))
    assert limit > value
    assert limit == min((known for known in limits if known > value), default=limit)
    assert limit in limits or limit <= 2 * max(value, max(limits))


def assert_windows_panel_is_right(panel):
    samples, batch_size = panel.samples.value, panel.batch_size.value
    k, epochs, policy = panel.accumulation_steps.value, panel.epochs.value, panel.policy.value
    setting = (samples, batch_size, k, epochs, policy)
    shares, owners, ends, steps, epoch_ends = drawn_by_hand(*setting)
    picture, axes = panel.picture, panel.picture.shares.axes

    assert_readable(picture)
    bars = [path.vertices for path in picture.shares.bars.get_paths()]
    assert [bar[0][0] for bar in bars] == [0, *ends[:-1]]
    assert [bar[2][0] for bar in bars] == ends
    starts = [0, *ends[:-1]]
    assert [bar[1][1] for bar in bars] == pytest.approx([shares[start] for start in starts])
    assert [bar[2][1] for bar in bars] == pytest.approx([shares[start] for start in starts])
    assert all(bar[0][1] == bar[3][1] == 0 for bar in bars)
    for colour, start in zip(picture.shares.bars.get_facecolor(), starts, strict=True):
        owner = owners[start]
        full = (1, 1, 1) if owner is None else to_rgb(OKABE_ITO[owner % 4])
        assert colour[:3].tolist() == pytest.approx([0.75 + 0.25 * c for c in full], abs=1 / 255)

    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    assert (left, bottom) == (0, 0)
    assert samples * epochs <= right <= max(10, 2 * samples * epochs)
    assert max(shares) < top <= max(2.2, 2.5 * max(*shares, 1))
    for axis in (axes.xaxis, axes.yaxis):
        ticks = [(tick.get_loc(), tick.label1.get_text()) for tick in axis.get_major_ticks()]
        assert all(float(text) == at for at, text in ticks)
        assert {at for at, _ in ticks} >= ({0, right} if axis is axes.xaxis else {0, 1})
    (fair,) = [line for line in axes.lines if line.get_label() == "1 is fair"]
    assert list(fair.get_ydata()) == [1, 1]

    assert picture.steps.get_xdata() == steps
    assert picture.steps.get_ydata() == [top] * len(steps)
    segments = [segment.tolist() for segment in picture.epochs.get_segments()]
    assert segments == [[[end, 0], [end, top]] for end in epoch_ends]
    unused = [place for place, owner in enumerate(owners) if owner is None]
    assert list(picture.unused.get_xdata()) == [place + 0.5 for place in unused]
    assert all(0 < y < top / 4 for y in picture.unused.get_ydata())
    assert (picture.steps.get_marker(), picture.unused.get_marker()) == ("v", "x")
    assert picture.verdict.get_text() == SAID[policy]

    windows, _ = by_hand(*setting)
    kinds = Counter()
    for window in windows:
        count = sum(size for _, size in window)
        weight = 1 if policy == "true mean" else len(window) / k
        kinds[str(len(window)), str(count), f"{weight:.3g}"] += 1
    rows = [(f"{times} ×", *kind) for kind, times in kinds.items()]
    assert panel.table.heading == ("updates", "micro-batches", "samples", "weights add up to")
    assert list(panel.table.rows) == (rows or [("0 ×", "–", "–", "–")])
    assert panel.table.closing == f"updates: {len(windows)}, samples unused: {len(unused)}"
    assert panel.alt == f"Windows of a training run: {panel.table.closing}"
    assert panel.alt in panel.screen.value
    assert "border-left" not in panel.screen.value  # rows are kinds of update, and have no colour


@pytest.mark.parametrize("seed", range(2))
def test_controls_in_any_order_leave_the_windows_panel_right(seed):
    stays_right(WindowsPanel(), assert_windows_panel_is_right, seed, moves=30)


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
