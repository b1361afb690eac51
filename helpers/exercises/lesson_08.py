"""Lesson 08: a split worked out by hand, and runs of a loop that must fit."""

from dataclasses import replace

from helpers.loops import Run, Setting, build
from helpers.recorder import Backward, Trace

# (fixed, slope, budget, effective batch), and the largest micro-batch with its steps
SPLIT = [
    ((6592, 2089, 16000, 16), (4, 4)),
    ((10, 3, 20, 8), (3, 3)),
    ((10, 3, 12, 8), (0, 0)),
    ((10, 3, 13, 8), (1, 8)),
    ((10, 3, 1000, 8), (8, 1)),  # more room than samples
    ((10, 3, 5, 8), (0, 0)),
    ((10, 2.5, 20, 9), (4, 3)),
]

TAKES = ("model", "criterion", "optimizer", "loader")
PIECES = (((8, 8), 4), ((8, 8), 3), ((5, 7, 2), 2), ((6,), 6), ((4,), 8), ((3, 3), 1))


def within(sizes: tuple[int, ...], micro_batch: int) -> Run:
    """A fresh run over batches of these sizes, none of which may go forward at once.

    Args:
        sizes: samples in each batch of the loader; each makes one update.
        micro_batch: the most samples in a forward.
    """
    run = build(Setting(sizes, 1), TAKES)
    forwards: list[int] = []
    run.model.register_forward_pre_hook(lambda model, inputs: forwards.append(len(inputs[0])))

    def fits(trace: Trace, returned: object) -> str:
        if max(forwards) > micro_batch:
            return f"{max(forwards)} samples went forward at once, of {micro_batch} that fit"
        backwards = sum(isinstance(event, Backward) for event in trace.events)
        if backwards < len(forwards):
            return (
                f"{len(forwards)} forwards and {backwards} backwards: the graphs of several "
                "micro-batches were alive at once"
            )
        return ""

    said = f"batches of {' and '.join(map(str, sizes))}, {micro_batch} at a time"
    arguments = (*run.arguments, micro_batch)
    return replace(run, said=said, arguments=arguments, also=fits)


WITHIN = [lambda sizes=sizes, most=most: within(sizes, most) for sizes, most in PIECES]
