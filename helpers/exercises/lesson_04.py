"""Lesson 04: updates counted, and loaders that do not know their length."""

from helpers.loops import Setting


def updates_made(micro_batches: int, k: int, epochs: int, flush: bool) -> int:
    """How often a loop steps, counted one micro-batch at a time."""
    made = pending = 0
    for _ in range(epochs):
        for _ in range(micro_batches):
            pending += 1
            if pending == k:
                made, pending = made + 1, 0
        if flush and pending:
            made, pending = made + 1, 0
    return made


UPDATES = [
    (asked, updates_made(*asked))
    for asked in (
        (5, 4, 2, True),
        (5, 4, 2, False),
        (12, 4, 3, True),
        (12, 4, 3, False),
        (7, 3, 3, True),
        (7, 3, 3, False),
        (3, 4, 2, True),
        (3, 4, 1, False),
    )
]

STREAMS = (Setting((1,) * 5, 4, stream=True), Setting((4, 4, 2), 2, epochs=2, stream=True))
