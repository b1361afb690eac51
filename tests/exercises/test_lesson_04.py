"""Lesson 04's exercises take every right answer and catch every plausible wrong one."""

import math
from itertools import chain, islice, repeat

import pytest

from helpers.exercises.lesson_04 import UPDATES
from tests.exercises.answering import verdict

LESSON = "04"


def walked(micro_batches, k, epochs, flush):
    made = since = 0
    for drawn in range(1, micro_batches * epochs + 1):
        since += 1
        if since == k or (flush and drawn % micro_batches == 0):
            made, since = made + 1, 0
    return made


COUNTS = {
    "by ceiling": lambda n, k, e, flush: e * math.ceil(n / k) if flush else n * e // k,
    "by divmod": lambda n, k, e, flush: (
        e * (n // k + bool(n % k)) if flush else divmod(n * e, k)[0]
    ),
    "walked": walked,
    "as a float": lambda *asked: float(walked(*asked)),
}


@pytest.mark.parametrize("right", COUNTS)
def test_the_number_of_updates_takes(right):
    assert verdict(LESSON, "exercise-1", COUNTS[right]).startswith("✓")


WRONG_COUNTS = {
    "flush ignored": lambda n, k, e, flush: e * (n // k),
    "always flushed": lambda n, k, e, flush: e * -(-n // k),
    "flushed once at the end": lambda n, k, e, flush: -(-n * e // k) if flush else n * e // k,
    "dropped in place of carried": lambda n, k, e, flush: e * -(-n // k) if flush else e * (n // k),
    "epochs forgotten": lambda n, k, e, flush: -(-n // k) if flush else n // k,
    "one too many": lambda n, k, e, flush: e * (n // k + 1) if flush else n * e // k,
    "micro-batches": lambda n, k, e, flush: n * e,
    "not rounded": lambda n, k, e, flush: n * e / k,
    "rounded": lambda n, k, e, flush: e * math.ceil(n / k) if flush else round(n * e / k),
}


@pytest.mark.parametrize("wrong", WRONG_COUNTS)
def test_the_number_of_updates_catches(wrong):
    assert verdict(LESSON, "exercise-1", WRONG_COUNTS[wrong]).startswith("✗")


def test_the_numbers_asked_for_are_right():
    assert dict(UPDATES) == {asked: walked(*asked) for asked, _ in UPDATES}


# A loop for any length.


def windows(loader, k):
    batches = iter(loader)
    while window := list(islice(batches, k)):
        yield window


def by_windows(model, optimizer, loader, k):
    for window in windows(loader, k):
        optimizer.zero_grad()
        for batch in window:
            (model(batch).mean() * len(batch) / sum(map(len, window))).backward()
        optimizer.step()


def sums_then_divides(net, opt, data, steps):
    batches = list(data)
    seen = 0
    for i, rows in enumerate(batches, start=1):
        net(rows).sum().backward()
        seen += len(rows)
        if i % steps == 0 or i == len(batches):
            for p in net.parameters():
                p.grad = p.grad / seen
            opt.step()
            opt.zero_grad(set_to_none=False)
            seen = 0


def looks_ahead(model, optimizer, loader, k):
    """The end is a None after the last micro-batch."""
    held = []
    for batch in chain(loader, [None]):
        if batch is not None:
            held.append(batch)
        if held and (batch is None or len(held) == k):
            for one in held:
                (model(one).sum() / sum(map(len, held))).backward()
            optimizer.step()
            model.zero_grad()
            held = []


@pytest.mark.parametrize("loop", [by_windows, sums_then_divides, looks_ahead])
def test_any_right_loop_passes(loop):
    assert verdict(LESSON, "exercise-2", loop) == "✓ train: right in all 13 runs\n"


def usual(model, optimizer, loader, k, scale=lambda k, held: k, due=None, clear_first=False):
    """The usual loop over a list, and how its end may be handled."""
    batches = list(loader)
    if clear_first:
        optimizer.zero_grad()
    for i, batch in enumerate(batches):
        start = i // k * k
        held = len(batches[start : start + k])
        (model(batch).mean() / scale(k, held)).backward()
        last = i + 1 == len(batches)
        if due(i, k, last) if due else (i + 1) % k == 0 or last:
            optimizer.step()
            optimizer.zero_grad()


def fault(**how):
    return lambda *objects: usual(*objects, **how)


def asks_for_length(model, optimizer, loader, k):
    len(loader)
    by_windows(model, optimizer, loader, k)


def steps_again_at_the_end(model, optimizer, loader, k):
    usual(model, optimizer, loader, k, due=lambda i, k, last: (i + 1) % k == 0)
    optimizer.step()
    optimizer.zero_grad()


WRONG = {
    "leaked": (
        fault(due=lambda i, k, last: (i + 1) % k == 0),
        "left in .grad at the end: micro-batch 5",
    ),
    "dropped": (
        fault(due=lambda i, k, last: (i + 1) % k == 0, clear_first=True),
        "left in .grad at the end: micro-batch 5",
    ),
    "divided by k": (fault(), "in update 2 each counted 1/4, should be 1"),
    "by micro-batches": (
        fault(scale=lambda k, held: held),
        "each sample of micro-batch 1 counted 1/6, should be 1/5",
    ),
    "a second step at the end": (steps_again_at_the_end, "stepped 2 times, should be 1"),
    "length asked for": (asks_for_length, "raised TypeError"),
    "only the short window": (fault(due=lambda i, k, last: last), "stepped once, should be 3"),
    "undivided": (fault(scale=lambda k, held: 1), "each counted 1, should be 1/2"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_every_fault_is_told(wrong):
    loop, told = WRONG[wrong]
    said = verdict(LESSON, "exercise-2", loop)
    assert told in said
    assert "✓" not in said


# With targets and epochs.


def pairs(count=len, criterion_scale=None, clear_each_epoch=False, reset=True):
    """A loop over pairs that counts ``count`` of the inputs."""

    def loop(model, optimizer, loader, k, criterion, epochs):
        for _ in range(epochs):
            for window in windows(loader, k):
                total = sum(count(x) for x, _ in window)
                optimizer.zero_grad()
                for x, y in window:
                    scale = count(x) / total
                    (criterion(model(x), y) * scale).backward()
                optimizer.step()

    return loop


def pairs_by_hand(model, optimizer, loader, k, criterion, epochs):
    for batches in repeat(list(loader), epochs):
        for start in range(0, len(batches), k):
            window = batches[start : start + k]
            for x, y in window:
                (criterion(model(x), y) * x.shape[0]).backward()
            for p in model.parameters():
                p.grad /= sum(y.shape[0] for _, y in window)
            optimizer.step()
            optimizer.zero_grad()


def pairs_with_own_loss(model, optimizer, loader, k, criterion, epochs):
    for _ in range(epochs):
        for window in windows(loader, k):
            total = sum(len(y) for _, y in window)
            for x, y in window:
                ((model(x) - y).square().sum() / total).backward()
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("loop", [pairs(), pairs_by_hand, pairs_with_own_loss])
def test_any_right_loop_over_pairs_passes(loop):
    assert verdict(LESSON, "exercise-3", loop) == "✓ train_pairs: right in all 11 runs\n"


def one_epoch(model, optimizer, loader, k, criterion, epochs):
    pairs()(model, optimizer, loader, k, criterion, 1)


def leaks(model, optimizer, loader, k, criterion, epochs):
    for _ in range(epochs):
        for i, (x, y) in enumerate(loader):
            (criterion(model(x), y) / k).backward()
            if (i + 1) % k == 0:
                optimizer.step()
                optimizer.zero_grad()


def carries_on(model, optimizer, loader, k, criterion, epochs):
    for i, (x, y) in enumerate(chain.from_iterable(repeat(loader, epochs))):
        (criterion(model(x), y) / k).backward()
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()


def loss_per_sample_forgotten(model, optimizer, loader, k, criterion, epochs):
    for _ in range(epochs):
        for window in windows(loader, k):
            total = sum(len(x) for x, _ in window)
            optimizer.zero_grad()
            for x, y in window:
                (criterion(model(x), y) / total).backward()
            optimizer.step()


WRONG_PAIRS = {
    "the pair counted in place of its samples": (
        pairs(count=lambda x: 2),
        "counted 1/6, should be 1/5",
    ),
    "one epoch": (one_epoch, "stepped 2 times, should be 4"),
    "leaked": (leaks, "holds micro-batches 5, 6 and 7, not 5"),
    "carried on": (carries_on, "holds micro-batches 5 and 6, not 5"),
    "a mean divided by the samples": (loss_per_sample_forgotten, "each sample counted 1/8"),
}


@pytest.mark.parametrize("wrong", WRONG_PAIRS)
def test_every_fault_over_pairs_is_told(wrong):
    loop, told = WRONG_PAIRS[wrong]
    said = verdict(LESSON, "exercise-3", loop)
    assert told in said
    assert "✓" not in said
