import pytest
import torch

from helpers.exercises.lesson_08 import SPLIT, WITHIN
from helpers.loops import check_runs
from tests.exercises.answering import accepts


def by_trying(fixed, slope, budget, effective_batch):
    fitting = [m for m in range(1, effective_batch + 1) if fixed + m * slope <= budget]
    if not fitting:
        return 0, 0
    steps = 1
    while steps * fitting[-1] < effective_batch:
        steps += 1
    return fitting[-1], steps


def as_a_list(fixed, slope, budget, effective_batch):
    m = max(0, min(int((budget - fixed) / slope), effective_batch))
    return [m, (effective_batch + m - 1) // m if m else 0]


def as_a_tensor(fixed, slope, budget, effective_batch):
    return torch.tensor(by_trying(fixed, slope, budget, effective_batch))


@pytest.mark.parametrize("right", [by_trying, as_a_list, as_a_tensor])
def test_the_split_takes_any_right_way(right):
    assert accepts(right, SPLIT)


def without_a_cap(fixed, slope, budget, effective_batch):
    m = int((budget - fixed) // slope)
    return (m, -(-effective_batch // m)) if m >= 1 else (0, 0)


def rounded_down(fixed, slope, budget, effective_batch):
    m = min(int((budget - fixed) // slope), effective_batch)
    return (m, effective_batch // m) if m >= 1 else (0, 0)


def the_fixed_part_forgotten(fixed, slope, budget, effective_batch):
    m = min(int(budget // slope), effective_batch)
    return (m, -(-effective_batch // m)) if m >= 1 else (0, 0)


def at_least_one(fixed, slope, budget, effective_batch):
    m = max(1, min(int((budget - fixed) // slope), effective_batch))
    return m, -(-effective_batch // m)


def strictly_under_the_budget(fixed, slope, budget, effective_batch):
    fitting = [m for m in range(1, effective_batch + 1) if fixed + m * slope < budget]
    return (fitting[-1], -(-effective_batch // fitting[-1])) if fitting else (0, 0)


def the_other_order(fixed, slope, budget, effective_batch):
    return by_trying(fixed, slope, budget, effective_batch)[::-1]


def the_cap_without_its_step(fixed, slope, budget, effective_batch):
    m = int((budget - fixed) // slope)
    return (min(m, effective_batch), effective_batch // m + 1) if m >= 1 else (0, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        without_a_cap,
        rounded_down,
        the_fixed_part_forgotten,
        at_least_one,
        strictly_under_the_budget,
        the_other_order,
        the_cap_without_its_step,
    ],
)
def test_the_split_catches(wrong):
    assert not accepts(wrong, SPLIT)


def said(capsys, loop):
    capsys.readouterr()
    check_runs(loop, WITHIN)
    return capsys.readouterr().out


def with_slices(model, criterion, optimizer, loader, micro_batch):
    for whole, wanted in loader:
        for start in range(0, len(whole), micro_batch):
            piece = slice(start, start + micro_batch)
            share = len(whole[piece]) / len(whole)
            (share * criterion(model(whole[piece]), wanted[piece])).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def with_even_pieces(model, criterion, optimizer, loader, micro_batch):
    for x, y in loader:
        optimizer.zero_grad()
        pieces = -(-len(x) // micro_batch)
        for part, target in zip(x.tensor_split(pieces), y.tensor_split(pieces), strict=True):
            loss = criterion(model(part), target) * len(part)
            loss.backward()
        for parameter in model.parameters():
            parameter.grad /= len(x)
        optimizer.step()


def with_sums(model, criterion, optimizer, loader, micro_batch):
    for x, y in loader:
        optimizer.zero_grad()
        for i in range(len(x)):  # a sample at a time fits wherever one does
            ((model(x[i : i + 1]) - y[i : i + 1]).square().sum() / len(x)).backward()
        optimizer.step()


@pytest.mark.parametrize("right", [with_slices, with_even_pieces, with_sums])
def test_the_loop_that_fits_takes_any_right_way(right, capsys):
    assert said(capsys, right) == f"✓ {right.__name__}: right in all 6 runs\n"


def all_at_once(model, criterion, optimizer, loader, micro_batch):
    for x, y in loader:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()


def one_backward(model, criterion, optimizer, loader, micro_batch):
    for x, y in loader:
        optimizer.zero_grad()
        losses = [
            criterion(model(a), b) * len(a) / len(x)
            for a, b in zip(x.split(micro_batch), y.split(micro_batch), strict=True)
        ]
        sum(losses).backward()
        optimizer.step()


def divided_by_the_pieces(model, criterion, optimizer, loader, micro_batch):
    for x, y in loader:
        optimizer.zero_grad()
        pieces = list(zip(x.split(micro_batch), y.split(micro_batch), strict=True))
        for a, b in pieces:
            (criterion(model(a), b) / len(pieces)).backward()
        optimizer.step()


def not_divided(model, criterion, optimizer, loader, micro_batch):
    for x, y in loader:
        optimizer.zero_grad()
        for a, b in zip(x.split(micro_batch), y.split(micro_batch), strict=True):
            criterion(model(a), b).backward()
        optimizer.step()


def steps_each_piece(model, criterion, optimizer, loader, micro_batch):
    for x, y in loader:
        for a, b in zip(x.split(micro_batch), y.split(micro_batch), strict=True):
            optimizer.zero_grad()
            (criterion(model(a), b) * len(a) / len(x)).backward()
            optimizer.step()


def clears_inside(model, criterion, optimizer, loader, micro_batch):
    for x, y in loader:
        for a, b in zip(x.split(micro_batch), y.split(micro_batch), strict=True):
            optimizer.zero_grad()
            (criterion(model(a), b) * len(a) / len(x)).backward()
        optimizer.step()


def never_clears(model, criterion, optimizer, loader, micro_batch):
    for x, y in loader:
        for a, b in zip(x.split(micro_batch), y.split(micro_batch), strict=True):
            (criterion(model(a), b) * len(a) / len(x)).backward()
        optimizer.step()


def drops_the_rest(model, criterion, optimizer, loader, micro_batch):
    for x, y in loader:
        optimizer.zero_grad()
        for i in range(len(x) // micro_batch):
            piece = slice(i * micro_batch, (i + 1) * micro_batch)
            (criterion(model(x[piece]), y[piece]) * micro_batch / len(x)).backward()
        optimizer.step()


def the_size_of_the_first_batch(model, criterion, optimizer, loader, micro_batch):
    first = len(next(iter(loader))[0])
    for x, y in loader:
        optimizer.zero_grad()
        for a, b in zip(x.split(micro_batch), y.split(micro_batch), strict=True):
            (criterion(model(a), b) * len(a) / first).backward()
        optimizer.step()


WRONG = {
    all_at_once: "8 samples went forward at once, of 4 that fit",
    one_backward: "4 forwards and 2 backwards: the graphs of several micro-batches were alive",
    divided_by_the_pieces: "counted 1/9, should be 1/8",
    not_divided: "each sample counted 1/4, should be 1/8",
    steps_each_piece: "stepped 4 times, should be 2",
    clears_inside: "should be 1/8",
    never_clears: "the gradient of update 2 holds micro-batches 1 and 2, not 2",
    drops_the_rest: "should be 1/8",
    the_size_of_the_first_batch: "in update 2 each sample counted 1/5, should be 1/7",
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda loop: loop.__name__)
def test_the_loop_that_fits_catches_and_says(wrong, capsys):
    out = said(capsys, wrong)
    assert out.startswith("✗")
    assert WRONG[wrong] in out, out
