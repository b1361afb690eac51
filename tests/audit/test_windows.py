"""Which micro-batches enter which update: each fault gets its kind, the mended loop none."""

import pytest
import torch
from torch.optim import AdamW

from tests.audit.loops import (
    SGD,
    OneWeight,
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

SEVEN = samples(1, 2, 3, 4, 5, 6, 7)
POWERS = samples(1, 2, 4, 8)  # no two selections of them have one sum
FIRST_IS_EIGHT = samples(8, 1, 1, 1, 1, 1, 1, 1)


def gradients(report):
    return [update.gradient.item() for update in report.updates]


def rights(report):
    return [update.right.item() for update in report.updates]


def carried_on(k, epochs):
    def train(model, batches):
        optimizer, seen = SGD(model.parameters(), 0.1), 0
        for _ in range(epochs):
            for x in batches:
                (model(x).mean() / k).backward()
                seen += 1
                if seen % k == 0:
                    optimizer.step()
                    optimizer.zero_grad()

    return train


def test_a_right_loop_passes_and_each_update_is_shown_beside_the_right_one():
    report = audited(right(3, epochs=2), SEVEN, 3)
    assert report.ok
    assert gradients(report) == rights(report) == [2, 5, 7, 2, 5, 7]


def test_torchseq_8_a_last_window_without_a_step_is_dropped():
    report = audited(stepping_at(every(3, flush=False), 3), SEVEN, 3)
    assert kinds(report) == {"window-dropped"}
    assert gradients(report) == [2, 5]


def test_a_last_window_cleared_before_its_step_is_dropped_in_every_epoch():
    def epoch(model, optimizer, batches):
        optimizer.zero_grad()
        for i, x in enumerate(batches):
            (model(x).mean() / 3).backward()
            if (i + 1) % 3 == 0:
                optimizer.step()
                optimizer.zero_grad()

    report = audited(loop(epoch, epochs=2), SEVEN, 3)
    assert kinds(report) == {"window-dropped"}


def test_torchtune_a_last_window_never_run_is_dropped():
    def epoch(model, optimizer, batches):
        for start in (0, 3):
            for x in batches[start : start + 3]:
                (model(x).mean() / 3).backward()
            optimizer.step()
            optimizer.zero_grad()

    assert kinds(audited(loop(epoch, epochs=2), SEVEN, 3)) == {"window-dropped"}


def test_a_whole_window_cleared_in_the_middle_is_dropped():
    def epoch(model, optimizer, batches):
        for i, x in enumerate(batches):
            (model(x).mean() / 2).backward()
            if i % 2:
                if i != 3:
                    optimizer.step()
                optimizer.zero_grad()

    assert kinds(audited(loop(epoch), samples(1, 2, 3, 4, 5, 6), 2)) == {"window-dropped"}


def test_a_tail_dropped_on_purpose_is_a_choice():
    report = audited(stepping_at(every(3, flush=False), 3), SEVEN, 3, last_window="drop")
    assert report.ok
    assert "dropped" in report.choices[0]


def test_transformers_22082_a_tail_leaks_into_the_next_epoch():
    report = audited(stepping_at(every(3, flush=False), 3, epochs=2), SEVEN, 3)
    assert kinds(report) == {"window-leaked"}
    assert of_updates(report, "window-leaked") == (3,)
    assert gradients(report) == pytest.approx([2, 5, 13 / 3, 5])
    assert rights(report) == [2, 5, 2, 5]


def test_a_window_carried_on_is_a_choice_unless_flushing_was_asked_for():
    report = audited(carried_on(3, epochs=2), SEVEN, 3)
    assert report.ok
    assert "2 micro-batches wait" in report.choices[0]
    assert gradients(report) == pytest.approx([2, 5, 10 / 3, 4])
    flushing = audited(carried_on(3, epochs=2), SEVEN, 3, last_window="flush")
    assert kinds(flushing) == {"window-carried-on"}


def test_a_window_that_waits_at_the_end_may_be_meant_so():
    assert kinds(audited(carried_on(3, epochs=1), SEVEN, 3)) == {"window-dropped"}
    assert audited(carried_on(3, epochs=1), SEVEN, 3, last_window="carry on").ok


def test_llms_from_scratch_299_the_first_step_comes_one_micro_batch_in():
    report = audited(stepping_at(lambda i, n: i % 4 == 0, 4), FIRST_IS_EIGHT, 4)
    assert kinds(report) == {"boundary-off-by-one"}
    assert gradients(report) == [2, 1]
    assert rights(report) == [2.75, 1]


def test_a_step_one_micro_batch_late_is_off_by_one():
    late = stepping_at(lambda i, n: i % 3 == 0 and i > 0, 3)
    assert kinds(audited(late, samples(*range(1, 13)), 3)) == {"boundary-off-by-one"}


def test_windows_of_one_micro_batch_too_many_are_off_by_one():
    assert kinds(audited(stepping_at(every(4), 3), samples(*range(1, 13)), 3)) == {
        "boundary-off-by-one"
    }


def test_a_boundary_off_by_one_is_found_over_several_epochs():
    early = stepping_at(lambda i, n: i % 3 == 0, 3, epochs=3)
    assert kinds(audited(early, SEVEN, 3)) == {"boundary-off-by-one"}


def test_accelerate_616_clearing_before_each_backward_loses_all_but_the_last():
    def epoch(model, optimizer, batches):
        for i, x in enumerate(batches):
            loss = model(x).mean() / 4
            optimizer.zero_grad()
            loss.backward()
            if (i + 1) % 4 == 0:
                optimizer.step()

    report = audited(loop(epoch), POWERS, 4)
    assert kinds(report) == {"cleared-inside-window"}
    assert (gradients(report), rights(report)) == ([2.0], [3.75])


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("optimizer_of", [SGD, AdamW])
@pytest.mark.parametrize("faulty", [(1, 2, 3), (2,), (3,)])
def test_clearing_just_before_the_step_loses_the_whole_window(optimizer_of, set_to_none, faulty):
    def train(model, batches):
        optimizer = optimizer_of(model.parameters(), lr=0.1)
        for number, window in enumerate(windows(batches, 3), 1):
            for x in window:
                (model(x).mean() / len(window)).backward()
            if number in faulty:
                optimizer.zero_grad(set_to_none)
            optimizer.step()
            optimizer.zero_grad(set_to_none)

    report = audited(train, SEVEN, 3)
    assert kinds(report) == {"cleared-inside-window"}
    assert of_updates(report, "cleared-inside-window") == faulty
    off = [update.comparison.relative_difference for update in report.updates]
    assert off == pytest.approx([float(number in faulty) for number in (1, 2, 3)])


def test_an_update_that_a_grad_scaler_leaves_out_is_no_fault():
    def train(model, batches):
        optimizer = SGD(model.parameters(), 0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126, backoff_factor=2.0**-120)
        for window in windows(batches, 2):
            for x in window:
                scaler.scale(model(x).mean() / 2).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

    data = [x.float() for x in samples([4, 8], [9, 5], [1, 2], [3, 1], [5, 6], [7, 2])]
    report = audited(train, data, 2, OneWeight().float())
    assert report.ok
    assert [update.expected for update in report.updates] == [((1, 3), (1, 4)), ((1, 5), (1, 6))]


def test_a_validation_inside_the_window_that_clears_is_named():
    def epoch(model, optimizer, batches):
        for i, x in enumerate(batches):
            (model(x).mean() / 4).backward()
            if i == 5:
                model.zero_grad()
            if (i + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()

    report = audited(loop(epoch), samples(*range(1, 13)), 4)
    assert kinds(report) == {"cleared-inside-window"}
    assert of_updates(report, "cleared-inside-window") == (2,)


def test_gradients_never_cleared_are_used_again():
    report = audited(stepping_at(every(2), 2, clear=False), POWERS, 2)
    assert kinds(report) == {"never-cleared"}
    assert of_updates(report, "never-cleared") == (2,)
    assert gradients(report) == [1.5, 7.5]


def test_qwen_326_a_step_after_every_micro_batch():
    report = audited(stepping_at(lambda i, n: True, 4), POWERS, 4)
    assert kinds(report) == {"stepped-every-micro-batch"}
    assert gradients(report) == [0.25, 0.5, 1, 2]


def test_stepping_every_time_and_never_clearing_are_both_named():
    report = audited(stepping_at(lambda i, n: True, 4, clear=False), POWERS, 4)
    assert kinds(report) == {"stepped-every-micro-batch", "never-cleared"}


def test_a_loop_without_a_step():
    def epoch(model, optimizer, batches):
        for x in batches:
            model(x).mean().backward()

    assert kinds(audited(loop(epoch), POWERS, 2)) == {"never-stepped"}


def test_dpr_31_the_number_of_updates_is_held_against_what_was_meant():
    assert audited(right(2, epochs=2), POWERS, 2, optimizer_updates=4).ok
    for meant in (2, 8):
        report = audited(right(2, epochs=2), POWERS, 2, optimizer_updates=meant)
        assert kinds(report) == {"wrong-number-of-updates"}


def test_a_dropped_window_says_more_than_the_number_of_updates():
    train = stepping_at(every(3, flush=False), 3)
    assert kinds(audited(train, SEVEN, 3, optimizer_updates=3)) == {"window-dropped"}


def test_windows_of_any_other_length_are_unexplained():
    assert kinds(audited(stepping_at(every(5), 2), samples(*range(1, 11)), 2)) == {"unexplained"}
