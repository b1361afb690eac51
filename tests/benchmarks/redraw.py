"""The kernel's part of a move: from a control's new value to the numbers and the picture as SVG.

Twenty milliseconds is a frame or so of the screen: below it, the kernel is not what one waits for.
"""

import itertools
from collections.abc import Iterator

from helpers.panels import CuttingPanel, TrainingPanel
from helpers.panels.training import LEARNING_RATES, OPTIMIZERS
from tests.benchmarks.table import Line, in_turn

AIM = 0.020
MOVES = 100


def measure() -> Iterator[Line]:
    cutting, training = CuttingPanel(), TrainingPanel()
    gaps = itertools.cycle(cutting.gaps)
    # A run that was shown before is kept, so each of these is new to the panel.
    unseen = itertools.product([2, 4], OPTIMIZERS, LEARNING_RATES, ["steps", "samples", "none"])

    def cut() -> None:
        gap = next(gaps)
        gap.value = not gap.value

    def train() -> None:
        steps, optimizer, (_, lr), scaling = next(unseen)
        with training.hold():
            training.batch_size.value, training.accumulation_steps.value = 2, steps
            training.optimizer.value, training.lr.value = optimizer, lr
            training.scaling.value = scaling

    cuts, runs = in_turn(MOVES, cut, train)
    yield Line("CuttingPanel redrawn in the kernel", cuts, aim=AIM)
    yield Line("TrainingPanel redrawn in the kernel", runs, aim=AIM)
