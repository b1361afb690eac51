"""Lesson 03's exercises take every right answer and catch every plausible wrong one."""

from itertools import islice

import pytest
import torch
from torch import nn

from helpers.exercises.lesson_03 import WHO_WAS_IN_IT
from tests.exercises.answering import verdict

LESSON = "03"
FOUR = (1, 10, 100, 1000)


def by_digits(gradient):
    return [c for c in FOUR if 4 * gradient // c % 10]


WHO = {
    "a list": by_digits,
    "in other order": lambda g: by_digits(g)[::-1],
    "a tuple": lambda g: tuple(by_digits(g)),
    "a set": lambda g: set(by_digits(g)),
    "a tensor": lambda g: torch.tensor(by_digits(g)),
    "floats": lambda g: [float(c) for c in by_digits(g)],
    "from its text": lambda g: [
        10**i for i, digit in enumerate(reversed(str(int(4 * g)))) if digit == "1"
    ],
}


@pytest.mark.parametrize("right", WHO)
def test_who_was_in_it_takes(right):
    assert verdict(LESSON, "exercise-1", WHO[right]).startswith("✓")


WRONG_WHO = {
    "the division forgotten": lambda g: [c for c in FOUR if g // c % 10],
    "its number in place of its gradient": lambda g: [
        i for i, c in enumerate(FOUR) if c in by_digits(g)
    ],
    "all of them": lambda g: list(FOUR),
    "the largest only": lambda g: by_digits(g)[-1:],
    "one too few": lambda g: by_digits(g)[1:],
    "each twice": lambda g: by_digits(g) * 2,
    "those that are missing": lambda g: [c for c in FOUR if c not in by_digits(g)],
    "the sum": lambda g: 4 * g,
    "nothing": lambda g: [],
}


@pytest.mark.parametrize("wrong", WRONG_WHO)
def test_who_was_in_it_catches(wrong):
    said = verdict(LESSON, "exercise-1", WRONG_WHO[wrong])
    assert said.startswith("✗")


def test_every_subset_is_asked_for():
    assert len(WHO_WAS_IN_IT) == 2**4 - 1
    assert all(sum(inside) == 4 * gradient for (gradient,), inside in WHO_WAS_IN_IT)


# Loops: three right ones of other shape, and the faults that the lesson names.


def clears_first(model, optimizer, loader, k):
    for i, batch in enumerate(loader):
        if i % k == 0:
            optimizer.zero_grad()
        (model(batch).mean() / k).backward()
        if i % k == k - 1:
            optimizer.step()


def by_windows(net, opt, data, steps):
    source = iter(data)
    while window := list(islice(source, steps)):
        for rows in window:
            (net(rows).sum() / sum(map(len, window))).backward()
        opt.step()
        net.zero_grad(set_to_none=False)


def divides_at_the_end(model, optimizer, loader, k):
    waiting = 0
    for batch in list(loader):
        model(batch).mean().backward()
        waiting += 1
        if waiting == k:
            for weight in model.parameters():
                weight.grad.mul_(1 / k)
            optimizer.step()
            optimizer.zero_grad()
            waiting = 0


def weighs_the_gradient(model, optimizer, loader, k):
    optimizer.zero_grad(set_to_none=True)
    for i, batch in enumerate(loader, 1):
        loss = model(batch).mean()
        loss.backward(gradient=torch.tensor(1 / k))
        if not i % k:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


RIGHT = [clears_first, by_windows, divides_at_the_end, weighs_the_gradient]


@pytest.mark.parametrize("loop", RIGHT)
def test_any_right_loop_passes(loop):
    assert verdict(LESSON, "exercise-2", loop) == "✓ train: right in all 5 runs\n"


def usual(
    scale=lambda k: k,
    due=lambda i, k, n: (i + 1) % k == 0,
    clear_inside=False,
    clear=True,
    before_step=lambda model, norm: nn.utils.clip_grad_norm_(model.parameters(), norm),
    after_backward=lambda model, norm, scheduler: None,
    schedule=lambda scheduler: scheduler.step(),
    schedule_first=False,
    late=False,
    step=True,
):
    """The loop of either exercise with something in another place."""

    def loop(model, optimizer, loader, k, scheduler=None, max_norm=None):
        for i, batch in enumerate(loader):
            if clear_inside:
                optimizer.zero_grad()
            loss = model(batch).mean()
            (loss if late else loss / scale(k)).backward()
            if max_norm:
                after_backward(model, max_norm, scheduler)
            if due(i, k, len(loader)):
                if max_norm:
                    before_step(model, max_norm)
                    if schedule_first:
                        scheduler.step()
                if step:
                    optimizer.step()
                if scheduler and not schedule_first:
                    schedule(scheduler)
                if clear:
                    optimizer.zero_grad()

    return loop


WRONG = {
    "cleared inside": (usual(clear_inside=True), "holds micro-batch 2, not 1 and 2"),
    "never cleared": (usual(clear=False), "holds micro-batches 1 and 2, not 2"),
    "not divided": (usual(scale=lambda k: 1), "each counted 1, should be 1/2"),
    "divided after backward": (usual(late=True), "each counted 1, should be 1/2"),
    "divided twice": (usual(scale=lambda k: k * k), "each counted 1/4, should be 1/2"),
    "two in place of k": (usual(scale=lambda k: 2), "each counted 1/2, should be 1"),
    "divided by the loader's length": (
        lambda model, optimizer, loader, k: usual(scale=lambda k: len(loader))(
            model, optimizer, loader, k
        ),
        "each counted 1/3, should be 1",
    ),
    "boundary shifted": (
        usual(due=lambda i, k, n: i % k == 0),
        "holds micro-batch 1, not 1 and 2",
    ),
    "one too late": (
        usual(due=lambda i, k, n: i and i % k == 0),
        "stepped 0 times, should be 1",
    ),
    "a step for each": (usual(due=lambda i, k, n: True), "stepped 2 times, should be 1"),
    "one step at the end": (usual(due=lambda i, k, n: i + 1 == n), "stepped once, should be 3"),
    "no step": (usual(step=False), "stepped 0 times, should be 1"),
    "every second": (usual(due=lambda i, k, n: i % 2 == 1), "stepped once, should be 3"),
    "no accumulation": (
        usual(due=lambda i, k, n: True, scale=lambda k: 1),
        "stepped 2 times, should be 1",
    ),
}


@pytest.mark.parametrize("fault", WRONG)
def test_every_fault_is_told(fault):
    loop, told = WRONG[fault]
    said = verdict(LESSON, "exercise-2", loop)
    assert told in said
    assert "✓" not in said


# With clipping and a schedule.


def clips_windows(model, optimizer, loader, k, scheduler, max_norm):
    source = iter(loader)
    while window := list(islice(source, k)):
        optimizer.zero_grad()
        for batch in window:
            (model(batch).mean() / k).backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        scheduler.step()


def clips_by_hand(model, optimizer, loader, k, scheduler, max_norm):
    for i, batch in enumerate(loader, start=1):
        (model(batch).mean() / k).backward()
        if i % k == 0:
            gradients = [p.grad for p in model.parameters()]
            norm = torch.cat([g.flatten() for g in gradients]).norm()
            if norm > max_norm:
                for gradient in gradients:
                    gradient *= max_norm / norm
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()


CLIPPED_RIGHT = [usual(), clips_windows, clips_by_hand]


@pytest.mark.parametrize("loop", CLIPPED_RIGHT)
def test_clipped_and_scheduled_once_a_window_passes(loop):
    said = verdict(LESSON, "exercise-3", loop)
    assert said == "✓ train_clipped: right in all 5 runs\n"


def clip(model, norm, *_):
    nn.utils.clip_grad_norm_(model.parameters(), norm)


CLIPPED_WRONG = {
    "not clipped": (usual(before_step=lambda *_: None), "has a gradient of norm"),
    "clipped after each backward": (usual(after_backward=clip), "points elsewhere"),
    "clipped after each backward only": (
        usual(after_backward=clip, before_step=lambda *_: None),
        "points elsewhere",
    ),
    "clipped to twice the norm": (
        usual(before_step=lambda model, norm: clip(model, 2 * norm)),
        "of norm 100, should be 50",
    ),
    "by value": (
        usual(before_step=lambda m, n: nn.utils.clip_grad_value_(m.parameters(), n)),
        "has a gradient of norm",
    ),
    "scheduled for each micro-batch": (
        usual(after_backward=lambda m, n, s: s.step(), schedule=lambda s: None),
        "the scheduler moved 2 times, should be 1",
    ),
    "scheduled before the step": (usual(schedule_first=True), "ran at lr 0.5, should be 1"),
    "not scheduled": (usual(schedule=lambda s: None), "the scheduler moved 0 times"),
    "divided twice": (usual(scale=lambda k: k * k), "each counted 1/4, should be 1/2"),
}


@pytest.mark.parametrize("fault", CLIPPED_WRONG)
def test_clipping_and_schedule_in_the_wrong_place_are_told(fault):
    loop, told = CLIPPED_WRONG[fault]
    said = verdict(LESSON, "exercise-3", loop)
    assert told in said
    assert "✓" not in said
