"""What an audit costs beside the same training without it: the digits net, 8 updates."""

from collections.abc import Iterator

import torch
from torch.nn import functional as F

from helpers.audit import audit
from helpers.models import small_convnet
from helpers.samples import digits
from tests.benchmarks.table import Line, in_turn

UPDATES, STEPS, SIZE = 8, 4, 16
AIM = 10.0


def measure() -> Iterator[Line]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two threads that wait for each other measure the machine's load
    x, y = digits(UPDATES * STEPS * SIZE)
    batches = list(zip(x.split(SIZE), y.split(SIZE), strict=True))

    def each(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1], reduction="none")

    def train(model, batches):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
        for i, (inputs, targets) in enumerate(batches):
            (F.cross_entropy(model(inputs), targets) / STEPS).backward()
            if (i + 1) % STEPS == 0:
                optimizer.step()
                optimizer.zero_grad()

    try:
        bare, audited = in_turn(
            20,
            lambda: train(small_convnet(), batches),
            lambda: audit(train, small_convnet(), batches, each, STEPS),
        )
    finally:
        torch.set_num_threads(threads)
    yield Line(f"{UPDATES} updates of the digits net", bare)
    yield Line("  the same, audited", audited, bare, AIM)
