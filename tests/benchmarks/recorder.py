"""What recording norms costs a loop, beside the same loop unwatched.

The loop is long enough for the recorder to measure what it has written down while it runs. Time to
read the trace afterwards is not counted: it is the reader's, not the loop's.
"""

from collections.abc import Callable, Iterator

import torch
from torch import nn

from helpers.models import small_convnet
from helpers.recorder import record
from helpers.samples import digits
from tests.benchmarks.table import Line, in_turn

PASSES, BATCHES, BATCH, STEPS = 3, 28, 64, 4
UPDATES, SIZE = PASSES * BATCHES, BATCH // STEPS
AIM = 1.05


def measure() -> Iterator[Line]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two threads that wait for each other measure the machine's load
    try:
        bare, recorded = in_turn(30, *_loops())
    finally:
        torch.set_num_threads(threads)
    bare, recorded = ([seconds / UPDATES for seconds in each] for each in (bare, recorded))
    yield Line(f"one update of {STEPS} micro-batches, unwatched", bare)
    yield Line("  the same recorded, norms only", recorded, bare, AIM)


def _loops() -> tuple[Callable[[], None], Callable[[], None]]:
    x, y = digits(BATCHES * BATCH)
    batches = list(zip(x.split(BATCH), y.split(BATCH), strict=True))
    loss_fn = nn.CrossEntropyLoss()

    def loop(model: nn.Module) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
        for inputs, targets in PASSES * batches:
            optimizer.zero_grad()
            for a, b in zip(inputs.split(SIZE), targets.split(SIZE), strict=True):
                (loss_fn(model(a), b) / STEPS).backward()
            optimizer.step()

    def recorded() -> None:
        model = small_convnet()
        with record(model, keep_vectors_up_to=0):
            loop(model)

    return lambda: loop(small_convnet()), recorded
