"""What the losses are divided by: each fault gets its kind, the mended loop none."""

import pytest
import torch

from tests.audit.loops import (
    audited,
    every,
    kinds,
    loop,
    of_updates,
    right,
    samples,
    stepping_at,
    windows,
)

EQUAL = samples([1, 2], [3, 5], [7, 9], [4, 2])
RAGGED = samples([1, 2], [3, 5, 6], [7], [4, 2], [8, 1, 1], [2])
FOUR_FOUR_TWO = samples([1] * 4, [1] * 4, [7] * 2)
SEVEN = samples(1, 2, 3, 4, 5, 6, 7)


def dividing(divisor, k=3, epochs=1):
    """Sums of losses, over what ``divisor`` makes of a window."""

    def epoch(model, optimizer, batches):
        for window in windows(batches, k):
            for x in window:
                (model(x).sum() / divisor(window)).backward()
            optimizer.step()
            optimizer.zero_grad()

    return loop(epoch, epochs)


def elements(window):
    return sum(map(len, window))


def only(report):
    (update,) = report.updates
    return update.gradient.item(), update.right.item()


def test_nanogpt_168_a_loss_that_is_not_divided():
    report = audited(stepping_at(every(4)), EQUAL, 4)
    assert kinds(report) == {"loss-not-divided"}
    assert only(report) == (4 * 33 / 8, 33 / 8)
    assert audited(stepping_at(every(4), 4), EQUAL, 4).ok


def test_nanogpt_168_is_seen_behind_clipping():
    def epoch(model, optimizer, batches):
        for x in batches:
            model(x).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()

    report = audited(loop(epoch), samples(0.3, 0.1, 0.2, 0.2), 4)
    assert kinds(report) == {"loss-not-divided"}


def test_rf_detr_1503_a_loss_divided_twice():
    report = audited(stepping_at(every(4), 16), EQUAL, 4)
    assert kinds(report) == {"divided-twice"}
    assert only(report) == (33 / 32, 33 / 8)


def test_deepmtp_34_a_mean_of_means_over_a_smaller_micro_batch():
    report = audited(stepping_at(every(3), 3), FOUR_FOUR_TWO, 3)
    assert kinds(report) == {"mean-of-means"}
    assert only(report) == pytest.approx((3.0, 2.2))
    assert audited(right(3), FOUR_FOUR_TWO, 3).ok


def test_a_mean_of_means_over_equal_micro_batches_is_right():
    assert audited(stepping_at(every(2), 2, epochs=3), EQUAL, 2).ok


def test_lightning_19987_a_short_window_divided_by_k():
    report = audited(stepping_at(every(3), 3), SEVEN, 3)
    assert kinds(report) == {"short-window-divided-by-k"}
    assert of_updates(report, "short-window-divided-by-k") == (3,)
    assert report.updates[2].gradient.item() == pytest.approx(7 / 3)
    assert report.updates[2].right.item() == 7


def test_a_short_ragged_window_divided_by_k_is_a_mean_of_means_too():
    report = audited(stepping_at(every(4), 4), RAGGED, 4)
    assert kinds(report) == {"mean-of-means", "short-window-divided-by-k"}
    assert of_updates(report, "mean-of-means") == (1, 2)
    assert of_updates(report, "short-window-divided-by-k") == (2,)


@pytest.mark.parametrize("divisor", [2, 3, 7, 12])
def test_sums_over_a_number_that_is_not_the_elements(divisor):
    report = audited(dividing(lambda window: divisor), RAGGED[:5], 3)
    assert kinds(report) == {"wrong-divisor"}


def test_transformers_46204_a_count_inflated_by_one_for_each_row():
    report = audited(dividing(lambda w: elements(w) + len(w)), RAGGED, 3)
    assert kinds(report) == {"wrong-divisor"}
    (finding,) = report.findings
    assert finding.evidence == pytest.approx({"elements": 6, "divided by": 9})


def test_a_count_left_from_the_window_before():
    batches = samples([1, 2], [3, 5], [7], [4, 2], [8, 1, 1], [2])

    def epoch(model, optimizer, batches):
        stale = 5
        for window in windows(batches, 3):
            for x in window:
                (model(x).sum() / stale).backward()
            stale = elements(window)
            optimizer.step()
            optimizer.zero_grad()

    report = audited(loop(epoch), batches, 3)
    assert kinds(report) == {"wrong-divisor"}
    assert of_updates(report, "wrong-divisor") == (2,)


def test_sums_throughout_are_a_choice():
    report = audited(dividing(lambda window: 1), RAGGED, 3)
    assert report.ok
    assert "sum" in report.choices[0]
    assert kinds(audited(dividing(lambda window: 1), RAGGED, 3, reduction="mean")) == {
        "wrong-divisor"
    }
    assert audited(dividing(lambda window: 1), RAGGED, 3, reduction="sum").ok
    means = audited(dividing(elements), RAGGED, 3, reduction="sum")
    assert kinds(means) == {"wrong-divisor"}


def test_a_sum_in_some_updates_and_a_mean_in_others_is_no_choice():
    report = audited(dividing(lambda w: 1 if w[0][0] == 1 else elements(w)), RAGGED, 3)
    assert kinds(report) == {"wrong-divisor"}
    assert of_updates(report, "wrong-divisor") == (1,)


def test_means_weighted_by_the_share_of_the_samples_are_right():
    def epoch(model, optimizer, batches):
        for window in windows(batches, 3):
            for x in window:
                (model(x).mean() * len(x) / elements(window)).backward()
            optimizer.step()
            optimizer.zero_grad()

    assert audited(loop(epoch), RAGGED, 3).ok


def test_gradients_rescaled_once_before_the_step_are_right():
    def epoch(model, optimizer, batches):
        for window in windows(batches, 3):
            for x in window:
                model(x).sum().backward()
            for parameter in model.parameters():
                parameter.grad /= elements(window)
            optimizer.step()
            optimizer.zero_grad()

    assert audited(loop(epoch), RAGGED, 3).ok


def test_two_faults_at_once_are_both_named():
    off_by_one = stepping_at(lambda i, n: i % 3 == 0)
    assert kinds(audited(off_by_one, samples(*[[1, 2]] * 9), 3)) == {
        "boundary-off-by-one",
        "loss-not-divided",
    }
    dropped = stepping_at(every(4, flush=False), 16)
    assert kinds(audited(dropped, RAGGED, 4)) == {
        "window-dropped",
        "divided-twice",
        "mean-of-means",
    }
