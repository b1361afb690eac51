"""Lesson 10: factors tried out in Accelerate, and what Keras leaves in its accumulator."""

import functools
from collections.abc import Callable, Sequence

import torch

from helpers.recorder import record
from helpers.subjects.library_loops import LinearLoss, Settings, with_accelerate


def shares_with(
    factors: Callable[[list[int], int], Sequence[float]],
) -> Callable[[int, int, int], list[float]]:
    """A function that tells what each sample counts in Accelerate when a reader sets the factors.

    Args:
        factors: given the samples of each micro-batch of an epoch, and k, what each micro-batch's
            mean loss is to be multiplied by before Accelerate divides it by k.

    Returns:
        A function of (samples, batch size, k) that runs Accelerate: each sample's weight, 1 is
        fair, to four digits. It counts as unwritten while ``factors`` is.
    """

    @functools.wraps(factors)
    def shares(samples: int, batch_size: int, k: int) -> list[float]:
        parts = torch.eye(samples).split(batch_size)
        chosen = factors([len(part) for part in parts], k)
        if chosen is None or chosen is ...:
            return chosen
        if len(chosen) != len(parts):
            raise ValueError(f"factors must give one for each of {len(parts)} micro-batches")
        batches = [
            {"x": part, "factor": torch.full((len(part),), float(factor))}
            for part, factor in zip(parts, chosen, strict=True)
        ]
        with record(model := LinearLoss(samples)) as trace:
            with_accelerate(model, batches, Settings(k))
        fair = torch.zeros(samples)
        for start, update in zip(range(0, len(parts), k), trace.updates, strict=True):
            fair += update.gradient.vector * sum(map(len, parts[start : start + k]))
        return [round(share, 4) for share in fair.tolist()]

    return shares


# (samples, batch size, k): equal, a smaller last micro-batch, a short window, and both
FAIR = [
    ((samples, size, k), [1.0] * samples)
    for samples, size, k in ((8, 4, 2), (8, 5, 2), (5, 1, 4), (13, 4, 3), (7, 2, 3))
]


def left_by_keras(micro_batches: int, k: int, epochs: int) -> tuple[int, int, int]:
    """Updates, micro-batches left over, and steps of a schedule before the last update."""
    updates = held = last = 0
    for drawn in range(micro_batches * epochs):
        held += 1
        if held == k:
            updates, held, last = updates + 1, 0, drawn
    return updates, held, last


LEFT = [
    (asked, left_by_keras(*asked))
    for asked in ((5, 4, 2), (6, 3, 1), (7, 4, 3), (8, 2, 2), (3, 2, 3))
]
