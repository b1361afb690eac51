"""Lesson 03: which micro-batches are in a gradient."""

from collections import Counter
from itertools import combinations

MICRO_GRADIENTS = (1, 10, 100, 1000)

# Every sum of some of them that can be at the step, a quarter of each, and what is in it.
WHO_WAS_IN_IT = [
    ((sum(some) / 4,), list(some))
    for size in range(4, 0, -1)
    for some in combinations(MICRO_GRADIENTS, size)
]


def same_members(got: object, expected: object) -> bool:
    """Whether a list, tuple, set or tensor holds these numbers, each once, in whatever order."""
    return Counter(map(float, got)) == Counter(map(float, expected))
