"""What the helpers' accumulation loop costs beside the same loop written out in plain PyTorch.

Both do the same work on the same batches, from the same weights: the bare loop, too, keeps each
mean loss and the length of each gradient, as a training loop does that logs.
"""

from collections.abc import Iterator

import torch
from torch import nn

from helpers.gradients import accumulate
from helpers.models import small_convnet
from helpers.samples import digits
from helpers.subjects.training import train
from tests.benchmarks.table import Line, in_turn

BATCH, STEPS = 64, 4
SIZE = BATCH // STEPS
AIM = 1.02


def measure() -> Iterator[Line]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two threads that wait for each other measure the machine's load
    try:
        yield from _lines()
    finally:
        torch.set_num_threads(threads)


def _lines() -> Iterator[Line]:
    images, labels = digits(512)
    batches = list(zip(images.split(BATCH), labels.split(BATCH), strict=True))
    loss_fn = nn.CrossEntropyLoss()

    def start() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = small_convnet()
        return model, torch.optim.SGD(model.parameters(), lr=0.02)

    def bare() -> None:
        model, optimizer = start()
        logged = []
        for x, y in batches:
            optimizer.zero_grad()
            losses = []
            for inputs, targets in zip(x.split(SIZE), y.split(SIZE), strict=True):
                loss = loss_fn(model(inputs), targets)
                (loss / STEPS).backward()
                losses.append(loss.detach())
            norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
            optimizer.step()
            logged.append((torch.stack(losses).mean().item(), norm.item()))

    def trained() -> None:
        model, optimizer = start()
        train(model, optimizer, loss_fn, batches, STEPS)

    def bare_window() -> None:
        model, optimizer = start()
        for x, y in batches:
            optimizer.zero_grad()
            losses = []
            for inputs, targets in zip(x.split(SIZE), y.split(SIZE), strict=True):
                loss = loss_fn(model(inputs), targets)
                (loss / STEPS).backward()
                losses.append(loss.detach())
            optimizer.step()

    def accumulated() -> None:
        model, optimizer = start()
        for x, y in batches:
            optimizer.zero_grad()
            cut = list(zip(x.split(SIZE), y.split(SIZE), strict=True))
            accumulate(model, loss_fn, cut, (1 / STEPS,) * STEPS)
            optimizer.step()

    loops = in_turn(120, bare, trained, bare_window, accumulated)
    by_hand, ours, by_hand_window, ours_window = ([t / len(batches) for t in ts] for ts in loops)
    yield Line("one update written out, logging loss and norm", by_hand)
    yield Line("  the same by helpers.gradients.train", ours, by_hand, AIM)
    yield Line("one update written out, logging nothing", by_hand_window)
    yield Line("  the same by helpers.gradients.accumulate", ours_window, by_hand_window, AIM)
