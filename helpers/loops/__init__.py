"""Whether a training loop that the reader wrote is right, and what it did when it is not.

The loop is handed a real model, optimizer and DataLoader and runs under the recorder, several times
and on data that tell faults apart: each sample has a weight of its own, and micro-batch number i a
gradient of 10 ** i in it, so that a gradient shows which micro-batches are in it and what each
counts. Any loop whose updates come out right is right, however it is written.

An exercise for lesson 1, whose loop need not reckon with a short window::

    def train(model, criterion, optimizer, loader, accumulation_steps):
        ...


    takes = ("model", "criterion", "optimizer", "loader", "accumulation_steps")
    check_loop(train, takes, settings=WHOLE_WINDOWS)
"""

from helpers.loops.checking import check_loop, check_runs
from helpers.loops.contrasting import contrastive_runs
from helpers.loops.data import Setting
from helpers.loops.runs import SETTINGS, TAKES, WHOLE_WINDOWS, Counter, Run, build, window_means

__all__ = [
    "SETTINGS",
    "TAKES",
    "WHOLE_WINDOWS",
    "Counter",
    "Run",
    "Setting",
    "build",
    "check_loop",
    "check_runs",
    "contrastive_runs",
    "window_means",
]
