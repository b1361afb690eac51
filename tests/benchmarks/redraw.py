"""The kernel's part of a move: from a control's new value to the numbers and the picture as SVG.

Twenty milliseconds is a frame or so of the screen: below it, the kernel is not what one waits for.
"""

import itertools
from collections.abc import Callable, Iterator

from helpers.panels import (
    CuttingPanel,
    DevicesPanel,
    EquivalencePanel,
    LibrariesPanel,
    MemoryPanel,
    MuseumPanel,
    SteppingPanel,
    TokensPanel,
    TrainingPanel,
    WindowsPanel,
)
from helpers.panels.training import LEARNING_RATES
from helpers.subjects.training import OPTIMIZERS
from tests.benchmarks.table import Line, in_turn

AIM = 0.020
MOVES = 100


def loop(model, optimizer, batches, k):
    optimizer.zero_grad()
    for i, batch in enumerate(batches):
        (model(batch).mean() / k).backward()
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()


def measure() -> Iterator[Line]:
    moves = {
        "CuttingPanel": _cut(CuttingPanel()),
        "TrainingPanel, no setting repeated": _train(TrainingPanel()),
        "SteppingPanel": _through((panel := stepping()).moment, range(panel.moment.max)),
        "WindowsPanel": _through(WindowsPanel().samples, range(1, 41)),
        "TokensPanel": _through(TokensPanel().targets[3], range(13)),
        "EquivalencePanel, settings repeated": _through(
            EquivalencePanel().accumulation_steps, (1, 2, 4, 8)
        ),
        "LibrariesPanel": _through(LibrariesPanel().samples, range(2, 17)),
        "MemoryPanel": _through(MemoryPanel().sequence, (128, 256, 512, 1024, 2048)),
        "MuseumPanel, settings repeated": _through(
            MuseumPanel().scale, ("by k", "twice", "not divided")
        ),
        "DevicesPanel": _through(DevicesPanel({1: [2**20] * 16}).ranks, (2, 4, 8, 16)),
    }
    for name, seconds in zip(moves, in_turn(MOVES, *moves.values()), strict=True):
        yield Line(f"{name}, redrawn in the kernel", seconds, aim=AIM)


def stepping() -> SteppingPanel:
    return SteppingPanel({"loop": loop}, (1, 2, 4, 8, 16), accumulation_steps=4)


def _cut(panel: CuttingPanel) -> Callable[[], None]:
    gaps = itertools.cycle(panel.gaps)

    def move() -> None:
        gap = next(gaps)
        gap.value = not gap.value

    return move


def _train(panel: TrainingPanel) -> Callable[[], None]:
    # A run that was shown before is kept, so each of these is new to the panel.
    unseen = itertools.product([2, 4], OPTIMIZERS, LEARNING_RATES, ["steps", "samples", "none"])

    def move() -> None:
        steps, optimizer, (_, lr), scaling = next(unseen)
        with panel.hold():
            panel.batch_size.value, panel.accumulation_steps.value = 2, steps
            panel.optimizer.value, panel.lr.value = optimizer, lr
            panel.scaling.value = scaling

    return move


def _through(control, values) -> Callable[[], None]:
    """Through the values again and again."""
    turn = itertools.cycle(values)

    def move() -> None:
        control.value = next(turn)

    return move
