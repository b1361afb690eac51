import functools

import pytest
import torch

from helpers.exercises.lesson_01 import ANY, EQUAL, close
from helpers.loops import WHOLE_WINDOWS, check_loop
from helpers.teaching import check
from tests.exercises.answering import accepts

TAKES = ("model", "criterion", "optimizer", "loader", "accumulation_steps")


def accepts_any(capsys, answer):
    capsys.readouterr()
    check(answer, ANY, same=close)
    said = capsys.readouterr().out
    assert "raised" not in said, said
    return said.startswith("✓")


def as_a_mean_of_means(window):
    return sum(sum(part) / len(part) for part in window) / len(window)


def as_a_tensor(window):
    return torch.tensor(window, dtype=torch.float64).mean(1).mean()


def as_a_mean_of_all(window):
    flat = [sample for part in window for sample in part]
    return sum(flat) / len(flat)


@pytest.mark.parametrize("right", [as_a_mean_of_means, as_a_tensor, as_a_mean_of_all])
def test_accumulating_takes_any_right_way(right):
    assert accepts(right, EQUAL)


WRONG = {
    "not divided": lambda window: sum(sum(part) / len(part) for part in window),
    "sums": lambda window: sum(sum(part) for part in window),
    "divided by samples and steps": lambda window: (
        sum(sum(part) for part in window) / sum(map(len, window)) / len(window)
    ),
    "divided twice": lambda window: (
        sum(sum(part) / len(part) for part in window) / len(window) ** 2
    ),
    "the last one": lambda window: sum(window[-1]) / len(window[-1]) / len(window),
    "the first lost": lambda window: (
        sum(sum(part) / len(part) for part in window[1:]) / len(window)
    ),
    "two hard-coded": lambda window: sum(sum(part) / len(part) for part in window) / 2,
    "four samples hard-coded": lambda window: sum(sum(part) / 4 for part in window) / len(window),
    "a running mean": lambda window: functools.reduce(
        lambda held, part: (held + sum(part) / len(part)) / 2, window, 0.0
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_accumulating_catches(wrong):
    assert not accepts(WRONG[wrong], EQUAL)


def by_weights(window):
    total = sum(map(len, window))
    return sum(len(part) / total * (sum(part) / len(part)) for part in window)


def sums_divided_once(window):
    held, seen = 0.0, 0
    for part in window:
        held, seen = held + sum(part), seen + len(part)
    return held / seen


@pytest.mark.parametrize("right", [as_a_mean_of_all, by_weights, sums_divided_once])
def test_any_sizes_takes_any_right_way(right, capsys):
    assert accepts_any(capsys, right)


WRONG_FOR_ANY = {
    **{name: wrong for name, wrong in WRONG.items() if name != "a running mean"},
    "a mean of means": as_a_mean_of_means,
    "the first one's size": lambda window: (
        sum(sum(part) / len(window[0]) for part in window) / len(window)
    ),
}


@pytest.mark.parametrize("wrong", WRONG_FOR_ANY)
def test_any_sizes_catches(wrong, capsys):
    assert not accepts_any(capsys, WRONG_FOR_ANY[wrong])


def clears_first(model, criterion, optimizer, loader, accumulation_steps):
    counted = 0
    optimizer.zero_grad()
    for x, y in loader:
        (criterion(model(x), y) / accumulation_steps).backward()
        counted += 1
        if counted == accumulation_steps:
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            counted = 0


def clears_before_a_window(model, criterion, optimizer, loader, accumulation_steps):
    for i, (x, y) in enumerate(loader):
        if i % accumulation_steps == 0:
            model.zero_grad()
        loss = criterion(model(x), y)
        loss *= 1 / accumulation_steps
        loss.backward()
        if i % accumulation_steps == accumulation_steps - 1:
            optimizer.step()


def divides_the_gradient(model, criterion, optimizer, loader, accumulation_steps):
    window = []
    for batch in loader:
        window.append(batch)
        if len(window) == accumulation_steps:
            optimizer.zero_grad()
            for x, y in window:
                criterion(model(x), y).backward()
            for parameter in model.parameters():
                parameter.grad /= accumulation_steps
            optimizer.step()
            window = []


def said(capsys, loop):
    capsys.readouterr()
    check_loop(loop, TAKES, WHOLE_WINDOWS)
    return capsys.readouterr().out


@pytest.mark.parametrize("right", [clears_first, clears_before_a_window, divides_the_gradient])
def test_the_loop_takes_any_right_way(right, capsys):
    assert said(capsys, right).startswith(f"✓ {right.__name__}: right in all")


def not_divided(model, criterion, optimizer, loader, accumulation_steps):
    for i, (x, y) in enumerate(loader, 1):
        criterion(model(x), y).backward()
        if i % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()


def never_clears(model, criterion, optimizer, loader, accumulation_steps):
    for i, (x, y) in enumerate(loader, 1):
        (criterion(model(x), y) / accumulation_steps).backward()
        if i % accumulation_steps == 0:
            optimizer.step()


def clears_inside(model, criterion, optimizer, loader, accumulation_steps):
    for i, (x, y) in enumerate(loader, 1):
        optimizer.zero_grad()
        (criterion(model(x), y) / accumulation_steps).backward()
        if i % accumulation_steps == 0:
            optimizer.step()


def steps_every_time(model, criterion, optimizer, loader, accumulation_steps):
    for x, y in loader:
        (criterion(model(x), y) / accumulation_steps).backward()
        optimizer.step()
        optimizer.zero_grad()


def one_too_early(model, criterion, optimizer, loader, accumulation_steps):
    for i, (x, y) in enumerate(loader):
        (criterion(model(x), y) / accumulation_steps).backward()
        if i % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()


def once_at_the_end(model, criterion, optimizer, loader, accumulation_steps):
    for x, y in loader:
        (criterion(model(x), y) / accumulation_steps).backward()
    optimizer.step()
    optimizer.zero_grad()


def two_steps_hard_coded(model, criterion, optimizer, loader, accumulation_steps):
    for i, (x, y) in enumerate(loader, 1):
        (criterion(model(x), y) / 2).backward()
        if i % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize(
    "wrong",
    [
        not_divided,
        never_clears,
        clears_inside,
        steps_every_time,
        one_too_early,
        once_at_the_end,
        two_steps_hard_coded,
    ],
)
def test_the_loop_catches(wrong, capsys):
    assert said(capsys, wrong).startswith("✗")
