"""The flight recorder: what a training loop does to weights, ``.grad``, buffers and learning rate.

``with record(model) as trace:`` around any loop, by hand or a library's; the loop computes the
same, to the bit. ``trace.events`` tells what it did, ``trace.updates`` and ``trace.pending`` what
became of its gradients, ``print(trace)`` all of it as a table.
"""

from helpers.recorder.events import (
    Assign,
    Backward,
    BufferChange,
    Clear,
    Draw,
    Edit,
    Event,
    Forward,
    Log,
    Pending,
    Reading,
    Recomputation,
    Schedule,
    Step,
)
from helpers.recorder.trace import Trace, record

__all__ = [
    "Assign",
    "Backward",
    "BufferChange",
    "Clear",
    "Draw",
    "Edit",
    "Event",
    "Forward",
    "Log",
    "Pending",
    "Reading",
    "Recomputation",
    "Schedule",
    "Step",
    "Trace",
    "record",
]
