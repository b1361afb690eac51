"""Lesson 02: the cases of its exercises, worked out by the loops that they are about."""

from collections.abc import Callable

from torch import Tensor, nn

from helpers.gradients import flat_gradient
from helpers.models import one_neuron
from helpers.samples import eight_samples

CURVATURE = 9.947  # the largest of the eight samples' loss
FULL_NORM = 3.64

# At the limit itself, as with 1/4 and a curvature of 8, SGD swings for ever.
MOST_STEPS = [
    ((1 / 16, CURVATURE), 2),
    ((1 / 64, CURVATURE), 8),
    ((1 / 8, CURVATURE), 1),
    ((1 / 4, CURVATURE), 0),
    ((1 / 4, 8.0), 0),
    ((1 / 8, 8.0), 1),
    ((1 / 16, 2.5), 8),
    ((1 / 16, 30.0), 1),
]


def stranger(
    divisions: int, clears_inside: bool = False, clips: bool = False
) -> Callable[[int], Tensor]:
    """A loop over the eight samples in k equal steps that hands back its ``.grad`` before the step.

    Args:
        divisions: how often it divides each loss by k.
        clears_inside: whether it clears before every micro-batch.
        clips: whether it clips to the full batch's norm, so that no log of norms shows anything.
    """

    def gradient(k: int) -> Tensor:
        model, (x, y) = one_neuron(), eight_samples()
        for inputs, targets in zip(x.chunk(k), y.chunk(k), strict=True):
            if clears_inside:
                model.zero_grad()
            (nn.functional.mse_loss(model(inputs), targets) / k**divisions).backward()
        if clips:
            nn.utils.clip_grad_norm_(model.parameters(), FULL_NORM + 1e-4)
        return flat_gradient(model)

    gradient.__name__ = "gradient"  # what a ✗ calls it; more would tell the verdict
    return gradient


DIAGNOSE = [
    ((stranger(divisions=1),), "right"),
    ((stranger(divisions=0),), "not divided"),
    ((stranger(divisions=2),), "divided twice"),
    ((stranger(divisions=1, clears_inside=True),), "something else"),
    ((stranger(divisions=0, clears_inside=True),), "something else"),
    ((stranger(divisions=0, clears_inside=True, clips=True),), "something else"),
]
