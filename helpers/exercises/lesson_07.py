"""Lesson 07: means without what is not finite, and the data of the loops."""

import math
from collections.abc import Sequence

from helpers.loops import Setting

Summed = Sequence[tuple[float, int]]  # sum of losses and targets of each micro-batch


def left_out(window: Summed) -> float | None:
    """The mean loss of the micro-batches whose losses are finite; None if there is none."""
    total = targets = 0
    for loss, count in window:
        if math.isfinite(loss):
            total, targets = total + loss, targets + count
    return total / targets if targets else None


LEFT_OUT = [
    ((window,), left_out(window))
    for window in (
        [(8.0, 2), (6.0, 6)],
        [(8.0, 2), (math.nan, 6), (4.0, 4)],
        [(math.inf, 3), (6.0, 2)],
        [(-math.inf, 3), (1.0, 4), (2.0, 4)],
        [(6.0, 3), (0.0, 0)],
        [(math.nan, 2), (math.nan, 3)],
        [(0.0, 0), (math.nan, 3)],
    )
]

PAIRS = (
    Setting((2,) * 4, 2, epochs=2),
    Setting((1,) * 5, 4, epochs=2),
    Setting((4, 4, 2), 3),
    Setting((3, 1, 2, 5), 2),
    Setting((1,) * 6, 3),  # long gradients on the way, cut if clipped too early
    Setting((1,) * 3, 4),
    Setting((1, 2, 1), 2, stream=True),
)
