"""What a loop does to gradients and weights between two micro-batches of one window."""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from helpers.audit.parts import Sight
from helpers.audit.running import Run
from helpers.audit.uses import Story, Taken

CLOSE = 1e-3  # how far apart two lengths or factors may be that are meant to be one


def stale(story: Story, taken: Taken) -> int:
    """How many of an update's micro-batches went forward before the last update, back after it."""
    ends = [t.at for t in story.updates if t.at < taken.at]
    return sum(any(use.at < end < use.back for end in ends) for use in taken.fresh)


def moved(run: Run, story: Story, taken: Taken) -> int:
    """How often the weights change, without an update, between an update's micro-batches."""
    uses = sorted((use for use in taken.fresh if use.forwards), key=lambda use: use.at)
    ends = [t.at for t in story.updates]
    count = 0
    for use, after in itertools.pairwise(uses):
        seen = [run.forwards[u.forwards[0]].weights for u in (use, after)]
        count += seen[0] != seen[1] and not any(use.at < end < after.at for end in ends)
    return count


def name_edits(
    story: Story, taken: Taken, sight: Sight, rounding: float, max_norm: float | None
) -> tuple[str, dict[str, float]]:
    """The fault that changes ``.grad`` while the window fills, and its numbers.

    Args:
        story: what the loop did.
        taken: an update whose gradients were changed on the way.
        sight: its gradient as the optimizer saw it.
        rounding: how far apart, relative to their lengths, two equal gradients may be.
        max_norm: the length that gradients are meant to be clipped to, if that is known.
    """
    numbers = [b for b in dict.fromkeys(use.backward for use in taken.fresh) if b]
    seen = [story.backwards[b] for b in numbers]
    befores = [b.held.vector * sight.owned for b in seen]
    between = [(b.held.vector - b.added.vector) * sight.owned for b in seen[1:]]
    afters = [*between, sight.gradient]
    factors, lengths = [], []
    for before, after in zip(befores, afters, strict=True):
        factor = _factor(before, after, rounding)
        if factor is None:
            return "unexplained", {}
        if abs(factor - 1) > CLOSE:
            factors.append(factor)
            lengths.append(after.norm().item())
    if len(factors) < 2:
        return "unexplained", {}
    target = max_norm or max(lengths)
    if all(f < 1 for f in factors) and _one(lengths) and abs(lengths[0] / target - 1) < CLOSE:
        return "clipped-every-micro-batch", {"length": target, "clipped": len(lengths)}
    if _one(factors) and len(factors) == len(seen):
        return "scaler-inside-window", {"multiplied each time by": factors[0]}
    return "unexplained", {}


def _factor(before: Tensor, after: Tensor, rounding: float) -> float | None:
    length = (before @ before).item()
    if not length > 0:
        return 1.0 if torch.equal(before, after) else None
    factor = (after @ before).item() / length
    far = (after - factor * before).norm().item()
    return factor if far <= rounding * max(abs(factor), CLOSE) * length**0.5 else None


def _one(numbers: Sequence[float]) -> bool:
    return max(numbers) - min(numbers) <= CLOSE * max(map(abs, numbers))
