import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb

from helpers.panels import DevicesPanel
from helpers.subjects.devices import SPEEDS, all_reduce_time, update
from tests.subjects.panels import stays_right, values
from tests.subjects.pictures import assert_readable

MIB = 2**20
BUCKETS = {cap: [cap * MIB] * (16 // cap) for cap in (1, 2, 4, 8, 16)}
OKABE_ITO = ("#E69F00", "#56B4E9", "#CC79A7", "#999999")
WAYS = {"without no_sync": False, "with no_sync": True}


def ring(size, ranks, speed):
    """2 (W - 1) steps of 0.05 ms and a W-th of the bits each; speed in Gbit/s, so 1e6 a ms."""
    return sum(0.05 + 8 * size / ranks / (speed * 1e6) for _ in range(2 * (ranks - 1)))


def after_backward(sizes, ranks, speed):
    """How long after a backward began its last bucket is there: the slowest chain of buckets."""
    times = [ring(size, ranks, speed) for size in sizes]
    ready = [20 * sum(sizes[: i + 1]) / sum(sizes) for i in range(len(sizes))]
    return max(ready[i] + sum(times[i:]) for i in range(len(sizes)))


def end_by_hand(sizes, ranks, k, speed, no_sync):
    synced = 10 + after_backward(sizes, ranks, speed)
    return (k - 1) * 30 + synced if no_sync else k * synced


def test_a_ring_of_two_sends_each_byte_once():
    assert all_reduce_time(125_000, ranks=2, speed=1) == pytest.approx(1 + 2 * 0.05)


def test_in_a_large_ring_a_byte_goes_twice():
    assert all_reduce_time(125_000, ranks=1000, speed=1) == pytest.approx(2 * 0.999 + 1998 * 0.05)


def test_one_bucket_overlaps_nothing():
    sizes, time = [16 * MIB], 2 * 0.05 + 16 * MIB / 125_000
    assert update(sizes, 2, 4, 1, no_sync=False).end == pytest.approx(4 * (30 + time))
    assert update(sizes, 2, 4, 1, no_sync=True).end == pytest.approx(4 * 30 + time)


def test_one_rank_sends_nothing_and_waits_for_nothing():
    for no_sync in (True, False):
        alone = update([MIB] * 4, 1, 4, 1, no_sync)
        assert (alone.all_reduces, alone.bytes_sent, alone.waiting, alone.end) == (0, 0, 0, 120)


def test_every_setting_of_the_panel_takes_the_time_worked_out_by_hand():
    panel = DevicesPanel(BUCKETS)
    controls = (panel.ranks, panel.accumulation_steps, panel.bucket_size, panel.speed)
    for ranks, k, cap, speed in itertools.product(*map(values, controls)):
        for no_sync in (True, False):
            done = update(BUCKETS[cap], ranks, k, speed, no_sync)
            synced = 1 if no_sync else k
            assert done.end == pytest.approx(end_by_hand(BUCKETS[cap], ranks, k, speed, no_sync))
            assert done.computing == pytest.approx(30 * k)
            assert done.waiting == pytest.approx(done.end - 30 * k)
            assert done.all_reduces == synced * len(BUCKETS[cap])
            assert done.bytes_sent == pytest.approx(synced * 2 * (ranks - 1) / ranks * 16 * MIB)


sizes = st.lists(st.integers(1, 50 * MIB), min_size=1, max_size=8)


@given(sizes, st.integers(2, 64), st.integers(1, 9), st.sampled_from(SPEEDS), st.booleans())
def test_nothing_is_sent_before_it_is_there_and_no_two_at_once(sizes, ranks, k, speed, no_sync):
    done = update(sizes, ranks, k, speed, no_sync)
    assert done.end == pytest.approx(end_by_hand(sizes, ranks, k, speed, no_sync))
    link = [span for span in done.spans if span.kind == "all-reduce"]
    rank = [span for span in done.spans if span.kind != "all-reduce"]
    for lane in (link, rank):
        assert all(a.end <= b.start + 1e-9 for a, b in itertools.pairwise(lane))
    for forward in (span for span in rank if span.kind == "forward"):
        before = [span.end for span in link if span.micro_batch < forward.micro_batch]
        assert forward.start >= max(before, default=0) - 1e-9


@given(sizes, st.integers(2, 64), st.sampled_from(SPEEDS))
def test_with_one_step_no_sync_changes_nothing(sizes, ranks, speed):
    assert update(sizes, ranks, 1, speed, True) == update(sizes, ranks, 1, speed, False)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([], 2, 1, 1), ValueError, "bucket_sizes must hold at least one size, got none"),
        (([0], 2, 1, 1), ValueError, "each of bucket_sizes must be .* at least 1, got 0"),
        (([1], 0, 1, 1), ValueError, "ranks must be a whole number of at least 1, got 0"),
        (([1], 2, 1.5, 1), TypeError, "accumulation_steps must be .* at least 1, got 1.5"),
        (([1], 2, 1, 0), ValueError, "speed must be above 0 Gbit/s, got 0"),
    ],
)
def test_bad_numbers_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        update(*arguments, no_sync=True)


# the panel


def spans_by_hand(ranks, k, cap, speed, no_sync):
    """(kind, micro-batch, start, end) of all that a rank and its link do."""
    sizes, start = BUCKETS[cap], 0.0
    for i in range(k):
        yield "forward", i, start, start + 10
        yield "backward", i, start + 10, start + 30
        if no_sync and i < k - 1:
            start += 30
            continue
        for n in range(1, len(sizes) + 1):
            until = (
                start
                + 10
                + max(
                    20 * (first + 1) / len(sizes) + (n - first) * ring(sizes[0], ranks, speed)
                    for first in range(n)
                )
            )
            yield "all-reduce", i, until - ring(sizes[0], ranks, speed), until
        start += 10 + after_backward(sizes, ranks, speed)


def short(value):
    return f"{value:.4g}"


def assert_devices_panel_is_right(panel):
    setting = (
        panel.ranks.value,
        panel.accumulation_steps.value,
        panel.bucket_size.value,
        panel.speed.value,
    )
    ranks, k, cap, speed = setting
    picture, axes = panel.picture, panel.picture.axes
    assert_readable(picture)

    expected, ends = {"forward": [], "backward": [], "all-reduce": []}, []
    for no_sync, lane in ((False, 4), (True, 2)):
        for kind, i, start, end in spans_by_hand(*setting, no_sync):
            expected[kind].append((lane - (kind == "all-reduce"), i, start, end))
        ends.append(end_by_hand(BUCKETS[cap], ranks, k, speed, no_sync))
    lanes = {4: 3.9, 3: 3.1, 2: 1.5, 1: 0.7}
    labels = dict(
        zip(axes.get_yticks(), (t.get_text() for t in axes.get_yticklabels()), strict=True)
    )
    assert labels == {3.9: "computes", 3.1: "link", 1.5: "computes", 0.7: "link"}
    for kind, boxes in expected.items():
        bars = picture.bars[kind]
        assert len(bars.get_paths()) == len(boxes)
        for path, colour, (lane, i, start, end) in zip(
            bars.get_paths(), bars.get_facecolor(), boxes, strict=True
        ):
            (left, low), (right, high) = path.vertices.min(0), path.vertices.max(0)
            assert (left, right) == pytest.approx((start, end))
            assert (low + high) / 2 == pytest.approx(lanes[lane])
            assert high - low == pytest.approx(0.6)
            full = to_rgb(OKABE_ITO[i % 4])
            wanted = [0.75 + 0.25 * c for c in full] if kind == "forward" else full
            assert colour[:3].tolist() == pytest.approx(wanted, abs=1 / 255)
    assert [bars.get_hatch() for bars in picture.bars.values()] == [None, None, "////"]

    assert picture.steps.get_xdata() == pytest.approx(ends)
    assert picture.steps.get_ydata() == pytest.approx([4.35, 1.95])
    assert picture.steps.get_marker() == "v"
    left, right = axes.get_xlim()
    assert left == 0
    assert max(ends) < right <= max(50, 2 * max(ends))
    ticks = [(t.get_loc(), t.label1.get_text()) for t in axes.xaxis.get_major_ticks()]
    assert [at for at, _ in ticks] == pytest.approx([right * n / 5 for n in range(6)])
    assert all(float(text) == at for at, text in ticks)
    before, after = (axes.texts[n].get_text().replace("\n", " ") for n in range(2))
    assert [before, after] == list(WAYS)
    assert axes.texts[0].get_position()[1] > axes.texts[1].get_position()[1]

    n = len(BUCKETS[cap])
    megabytes = 2 * (ranks - 1) / ranks * 16 * MIB / 1e6
    rows = [
        (way, str(n * often), *map(short, (megabytes * often, 30 * k, end - 30 * k, end)))
        for (way, often), end in zip(zip(WAYS, (k, 1), strict=True), ends, strict=True)
    ]
    times = ("ms computing", "ms waiting", "ms in all")
    assert panel.table.heading == ("one update", "all-reduces", "MB sent", *times)
    assert list(panel.table.rows) == rows
    said = f"effective batch: {ranks * k} micro-batches; with no_sync in "
    assert panel.table.closing == f"{said}{ends[1] / ends[0]:.2g} of the time"
    assert picture.verdict.get_text() == panel.table.closing
    assert list(panel.updates) == list(WAYS)
    assert panel.alt == f"One update on several ranks: {panel.table.closing}"
    assert "border-left" not in panel.screen.value


@pytest.mark.parametrize("seed", range(2))
def test_controls_in_any_order_leave_the_devices_panel_right(seed):
    stays_right(DevicesPanel(BUCKETS), assert_devices_panel_is_right, seed, moves=10)


def test_the_longest_update_has_room():
    panel = DevicesPanel(BUCKETS)
    with panel.hold():
        panel.ranks.value, panel.accumulation_steps.value, panel.bucket_size.value = 16, 8, 1
    assert_devices_panel_is_right(panel)


def test_the_panel_offers_the_sizes_that_were_measured():
    assert values(DevicesPanel({3: [3, 3], 5: [6]}).bucket_size) == [3, 5]
    with pytest.raises(ValueError, match="buckets must hold at least one bucket size, got none"):
        DevicesPanel({})


def shares(panel, control):
    """For each value of a control the share of the time that no_sync leaves."""
    found = {}
    for value in values(control):
        control.value = value
        before, after = panel.updates.values()
        found[value] = after.end / before.end
    return found


def test_the_targets_of_the_devices_panel_have_the_answers_given():
    panel = DevicesPanel(BUCKETS)
    panel.speed.value = 10
    by_size = shares(panel, panel.bucket_size)
    assert [size for size, share in by_size.items() if share > 0.95] == [1, 2]
    panel.speed.value = 100
    assert min(shares(panel, panel.bucket_size).values()) > 0.95

    with panel.hold():
        panel.speed.value, panel.ranks.value = 10, 16
    ends = {}
    for panel.bucket_size.value in BUCKETS:
        ends[panel.bucket_size.value] = panel.updates["with no_sync"].end
    assert min(ends, key=ends.get) == 4
    assert ends[4] == pytest.approx(136, abs=0.5)
    assert 16 * 30 * 0.05 == 24  # latencies at 1 MiB
    panel.accumulation_steps.value = 1
    before, after = panel.updates.values()
    assert before == after
