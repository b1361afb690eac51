"""Lesson 01: windows of samples' gradients, and what .grad holds after them."""

TWO_OF_FOUR = [[4, 6, 6, -4], [-16, -4, 16, 0]]
FOUR_OF_TWO = [[4, 6], [6, -4], [-16, -4], [16, 0]]

EQUAL = [
    ((TWO_OF_FOUR,), 1.0),
    ((FOUR_OF_TWO,), 1.0),
    (([[8]],), 8.0),
    (([[1], [10], [100], [1000]],), 277.75),
    (([[1, 3], [10, 30]],), 11.0),
]
ANY = [
    (([[4, 6, 6, -4, -16], [-4, 16, 0]],), 1.0),
    ((TWO_OF_FOUR,), 1.0),
    (([[3], [1, 2, 2]],), 2.0),
    (([[1], [10, 10, 10], [100, 100]],), 231 / 6),
    (([[8]],), 8.0),
]


def close(got: float, expected: float) -> bool:
    """Whether two numbers are one up to rounding: sums may be taken in any order."""
    return abs(got - expected) < 1e-9
