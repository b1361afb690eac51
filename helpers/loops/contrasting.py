"""Runs of a loop whose loss compares all pairs of a window, one micro-batch's graph at a time."""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from helpers.gradients import flat_gradient
from helpers.loops.runs import Run
from helpers.models import encoder
from helpers.recorder import Backward, Forward, Trace
from helpers.samples import random_numbers

LR = 0.1
WINDOWS = (((4,) * 4, 4), ((2,) * 6, 3), ((2,) * 5, 2), ((3,) * 2, 1))  # pairs, steps


def contrastive_runs(
    loss_fn: Callable[[Tensor], Tensor],
    windows: Sequence[tuple[Sequence[int], int]] = WINDOWS,
) -> list[Callable[[], Run]]:
    """Makers of runs for :func:`helpers.loops.check_runs`, of a small encoder without dropout.

    The loop takes (model, optimizer, loader, accumulation_steps); the loader gives micro-batches of
    pairs, shape (pairs, 2, 4). Each update should have the gradient of the loss over all the
    embeddings of a window, a short last one included, with no two graphs alive at a time.

    Args:
        loss_fn: from embeddings (pairs, 2, 3) to a scalar.
        windows: for each run the pairs in each micro-batch, and the accumulation steps.
    """
    return [lambda sizes=s, steps=k: _run(loss_fn, sizes, steps) for s, k in windows]


def _run(loss_fn: Callable[[Tensor], Tensor], sizes: Sequence[int], steps: int) -> Run:
    model = encoder(0.0)
    parts = list(random_numbers(sum(sizes), 2, 4).split(list(sizes)))
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    return Run(
        said=f"micro-batches of {', '.join(map(str, sizes))} pairs, k = {steps}",
        model=model,
        arguments=(model, optimizer, parts, steps),
        gradients=_gradients(copy.deepcopy(model), loss_fn, parts, steps),
        also=lambda trace, returned: one_graph_at_a_time(trace, max(sizes)),
    )


def _gradients(model, loss_fn, parts: Sequence[Tensor], steps: int) -> tuple[Tensor, ...]:
    """What each update should have: all embeddings of the window in one graph."""
    optimizer, held = torch.optim.SGD(model.parameters(), lr=LR), []
    for start in range(0, len(parts), steps):
        optimizer.zero_grad()
        loss_fn(model(torch.cat(parts[start : start + steps]))).backward()
        held.append(flat_gradient(model))
        optimizer.step()
    return tuple(held)


def one_graph_at_a_time(trace: Trace, most: int) -> str:
    """What was wrong where more than one micro-batch's graph was alive; empty if nothing.

    Args:
        trace: of the loop.
        most: samples in the largest micro-batch.
    """
    waiting = 0
    for event in trace.events:
        if isinstance(event, Forward) and event.with_grad:
            if event.samples is not None and event.samples > most:
                return f"a forward with a graph took {event.samples} pairs at once, not {most}"
            waiting += 1
            if waiting > 1:
                return "two forwards with a graph came before a backward: two graphs were alive"
        if isinstance(event, Backward):
            waiting = 0
    return ""
