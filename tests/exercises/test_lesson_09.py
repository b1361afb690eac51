"""The loop of several ranks is tried in one launch of four; real ones, as the reader's own is."""

from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist

from helpers.exercises.lesson_09 import ON_RANKS, SENT, measured
from helpers.subjects.launching import torchrun
from helpers.subjects.ranks import counted
from tests.exercises.answering import accepts

EXPECTED = dict(ON_RANKS)[4,]


def look_ahead(model, window):
    total = torch.tensor(sum(targets for _, targets in window))
    dist.all_reduce(total)
    for i, (inputs, _) in enumerate(window):
        with nullcontext() if i + 1 == len(window) else model.no_sync():
            (model(inputs).sum() * dist.get_world_size() / total).backward()


def rescale_at_the_end(model, window):
    *others, (inputs, _) = window
    with model.no_sync():
        for earlier, _ in others:
            model(earlier).sum().backward()
    model(inputs).sum().backward()
    total = torch.tensor(float(sum(targets for _, targets in window)))
    dist.all_reduce(total)
    for parameter in model.parameters():
        parameter.grad *= dist.get_world_size() / total


def two_for_the_world_size(model, window):
    total = torch.tensor(sum(targets for _, targets in window))
    dist.all_reduce(total)
    for i, (inputs, _) in enumerate(window):
        with nullcontext() if i + 1 == len(window) else model.no_sync():
            (model(inputs).sum() * 2 / total).backward()


def own_count(model, window):
    total = sum(targets for _, targets in window)
    for i, (inputs, _) in enumerate(window):
        with nullcontext() if i + 1 == len(window) else model.no_sync():
            (model(inputs).sum() / total).backward()


def world_size_forgotten(model, window):
    total = torch.tensor(sum(targets for _, targets in window))
    dist.all_reduce(total)
    for i, (inputs, _) in enumerate(window):
        with nullcontext() if i + 1 == len(window) else model.no_sync():
            (model(inputs).sum() / total).backward()


def sent_every_time(model, window):
    total = torch.tensor(sum(targets for _, targets in window))
    dist.all_reduce(total)
    for inputs, _ in window:
        (model(inputs).sum() * dist.get_world_size() / total).backward()


def around_backward_only(model, window):
    total = torch.tensor(sum(targets for _, targets in window))
    dist.all_reduce(total)
    for i, (inputs, _) in enumerate(window):
        loss = model(inputs).sum() * dist.get_world_size() / total
        with nullcontext() if i + 1 == len(window) else model.no_sync():
            loss.backward()


def first_one_sent(model, window):
    total = torch.tensor(sum(targets for _, targets in window))
    dist.all_reduce(total)
    for i, (inputs, _) in enumerate(window):
        with nullcontext() if i == 0 else model.no_sync():
            (model(inputs).sum() * dist.get_world_size() / total).backward()


RIGHT = (look_ahead, rescale_at_the_end)
WRONG = {
    two_for_the_world_size: [1.5, 1],
    own_count: [(8 / 2 + 12 / 6 + 16 / 4 + 12 / 4) / 4, 1],
    world_size_forgotten: [0.75, 1],
    sent_every_time: [3.0, 2],
    around_backward_only: [3.0, 2],
}


def all_of_them(rank, device):
    loops = (look_ahead, rescale_at_the_end, two_for_the_world_size, own_count)
    loops += (world_size_forgotten, sent_every_time, around_backward_only, first_one_sent)
    return {loop.__name__: measured(rank, device, loop) for loop in loops}


@pytest.fixture(scope="module")
def ranks():
    """What each of four ranks measured of every loop."""
    return torchrun(
        all_of_them, *RIGHT, *WRONG, first_one_sent, measured, counted, ranks=4, cpu=True
    )


@pytest.mark.parametrize("loop", RIGHT)
def test_the_window_of_a_rank_takes_any_right_way(loop, ranks):
    assert [found[loop.__name__] for found in ranks] == [EXPECTED] * 4


@pytest.mark.parametrize("loop", WRONG)
def test_the_window_of_a_rank_catches(loop, ranks):
    assert [found[loop.__name__] for found in ranks] == [pytest.approx(WRONG[loop])] * 4
    assert WRONG[loop] != EXPECTED


def test_the_first_one_sent_leaves_four_ranks_apart(ranks):
    gradients = [found["first_one_sent"][0] for found in ranks]
    assert len(set(gradients)) == 4


def test_a_factor_of_2_is_right_on_two_ranks():
    assert dict(ON_RANKS)[2,][0] == 2 * (6 + 2 + 4 + 8) / (1 + 1 + 2 + 4) / 2


def by_stepping(micro_batches, k):
    found = [False] * micro_batches
    for end in range(k, micro_batches + k, k):
        found[min(end, micro_batches) - 1] = True
    return found


def by_asking(micro_batches, k):
    return torch.tensor([(i + 1) % k == 0 or i == micro_batches - 1 for i in range(micro_batches)])


@pytest.mark.parametrize("right", [by_stepping, by_asking])
def test_which_ones_to_send_takes_any_right_way(right):
    assert accepts(right, SENT)


def short_window_forgotten(micro_batches, k):
    return [(i + 1) % k == 0 for i in range(micro_batches)]


def boundary_shifted(micro_batches, k):
    return [i % k == 0 or i == micro_batches - 1 for i in range(micro_batches)]


def last_alone(micro_batches, k):
    return [i == micro_batches - 1 for i in range(micro_batches)]


def always(micro_batches, k):
    return [True] * micro_batches


@pytest.mark.parametrize("wrong", [short_window_forgotten, boundary_shifted, last_alone, always])
def test_which_ones_to_send_catches(wrong):
    assert not accepts(wrong, SENT)
