"""One loop with faults to choose, several at once, audited on data to choose."""

from collections.abc import Callable, Sequence
from functools import cache

from torch import Tensor, nn
from torch.optim import SGD

from helpers import checks
from helpers.audit import Report, audit
from helpers.subjects.museum import each, line, micro_batches
from helpers.subjects.museum_loops import K

EPOCHS = 2
GRADIENTS = (3, 1, 4, 2, 5, 9, 2, 6, 5, 4, 5, 8, 9, 7, 9, 3)  # of the samples, in their order

# How many samples the micro-batches of an epoch hold.
DATA = {
    "equal": (2, 2, 2, 2, 2, 2),
    "unequal": (1, 3, 2, 2, 1, 3),
    "equal, one over": (2, 2, 2, 2, 2, 2, 2),
    "unequal, one over": (1, 3, 2, 2, 1, 3, 2),
}
# What a mean loss is multiplied by: of a micro-batch of n samples, in a window of these sizes.
SCALES: dict[str, Callable[[int, Sequence[int]], float]] = {
    "right": lambda n, sizes: n / sum(sizes),
    "not divided": lambda n, sizes: 1,
    "by k": lambda n, sizes: 1 / K,
    "by its length": lambda n, sizes: 1 / len(sizes),
    "twice": lambda n, sizes: n / sum(sizes) / K,
}
# Whether the optimizer steps after micro-batch i, from 0, of n.
BOUNDARIES: dict[str, Callable[[int, int], bool]] = {
    "right": lambda i, n: (i + 1) % K == 0 or i + 1 == n,
    "full windows": lambda i, n: (i + 1) % K == 0,
    "i % k == 0": lambda i, n: i % K == 0,
    "always": lambda i, n: True,
}
CLEARING = ("right", "before backward", "never")


def faulty(scale: str, boundary: str, clearing: str) -> Callable[[nn.Module, Sequence], None]:
    """A loop of two epochs with these faults; "right" is none.

    Raises:
        ValueError: there is no fault of that name.
    """
    checks.one_of("scale", scale, SCALES)
    checks.one_of("boundary", boundary, BOUNDARIES)
    checks.one_of("clearing", clearing, CLEARING)

    def train(model: nn.Module, batches: Sequence[Tensor]) -> None:
        optimizer = SGD(model.parameters(), lr=0.1)
        for _ in range(EPOCHS):
            for i, x in enumerate(batches):
                window = batches[i // K * K : i // K * K + K]
                loss = model(x).mean() * SCALES[scale](len(x), [len(other) for other in window])
                if clearing == "before backward":
                    optimizer.zero_grad()
                loss.backward()
                if BOUNDARIES[boundary](i, len(batches)):
                    optimizer.step()
                    if clearing == "right":
                        optimizer.zero_grad()

    return train


def data_of(name: str) -> list[Tensor]:
    """The micro-batches of an epoch; each number is a sample and its gradient."""
    checks.one_of("name", name, DATA)
    numbers, cut = iter(GRADIENTS), DATA[name]
    return micro_batches(*[[next(numbers) for _ in range(size)] for size in cut])


def step_ends(data: str, boundary: str) -> list[int]:
    """After how many micro-batches, over all epochs, the optimizer steps."""
    n = len(DATA[data])
    places = [(epoch * n + i + 1, i) for epoch in range(EPOCHS) for i in range(n)]
    return [end for end, i in places if BOUNDARIES[boundary](i, n)]


@cache
def audited(data: str, scale: str, boundary: str, clearing: str) -> Report:
    """What the audit says of the loop with these faults on these data, a mean being meant."""
    train = faulty(scale, boundary, clearing)
    return audit(train, line(), data_of(data), each, K, reduction="mean")
