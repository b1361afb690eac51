"""What goes along with the updates: learning rate, moving averages, reported losses, graphs."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from helpers.audit.parts import Parts
from helpers.audit.records import Finding
from helpers.audit.running import Run
from helpers.audit.uses import Story, Taken
from helpers.recorder import BufferChange, Schedule

CLOSE = 1e-4


def learning_rate(run: Run, story: Story, meant: Sequence[float] | None) -> list[Finding]:
    """Whether the learning rate moves with the micro-batches, or along another schedule."""
    inside = _moved_inside(run, story)
    if inside:
        times = {"windows in which it moved": len(inside)}
        return [Finding("scheduler-every-micro-batch", tuple(inside), times)]
    if meant is None:
        return []
    used = [t.steps[0].learning_rates[0] for t in story.updates if t.steps[0].learning_rates]
    wrong = [n for n, (a, b) in enumerate(zip(used, meant, strict=False), 1) if not _close(a, b)]
    if not wrong:
        return []
    first = wrong[0]
    numbers = {"first used": used[first - 1], "first meant": meant[first - 1]}
    moves = itertools.accumulate(len(t.fresh) for t in story.updates)
    shown = [(rate, meant[n - 1]) for rate, n in zip(used, moves, strict=False) if n <= len(meant)]
    if shown and all(_close(rate, early) for rate, early in shown):
        return [Finding("scheduler-every-micro-batch", tuple(wrong), numbers)]
    return [Finding("scheduler-wrong-length", tuple(wrong), numbers)]


def _moved_inside(run: Run, story: Story) -> list[int]:
    """The updates between whose micro-batches the learning rate moved."""
    events = run.trace.events
    found = []
    for taken in story.updates:
        places = [use.back for use in taken.fresh if use.backward]
        if places and any(isinstance(e, Schedule) for e in events[min(places) : max(places)]):
            found.append(taken.number)
    return found


def own_averages(run: Run, story: Story, model: nn.Module) -> list[Finding]:
    """Moving averages that a module keeps in its buffers, and moves in each forward."""
    steps: dict[str, list[Tensor]] = {}
    for event in run.trace.events:
        if isinstance(event, BufferChange) and event.in_forward:
            sizes = [model.get_buffer(name).numel() for name in event.buffers]
            if event.before.vector is None or sum(sizes) != len(event.before.vector):
                continue
            change = (event.after.vector - event.before.vector).split(sizes)
            for name, part in zip(event.buffers, change, strict=True):
                if model.get_buffer(name).is_floating_point():
                    steps.setdefault(name, []).append(part)
    averages = [name for name, changes in steps.items() if _is_average(model, name, changes)]
    updates = [t.number for t in story.updates if len(t.fresh) > 1]
    if not averages or not updates:
        return []
    numbers = {f"changes of {name}": len(steps[name]) for name in averages}
    return [Finding("ema-every-micro-batch", tuple(updates), numbers)]


def _is_average(model: nn.Module, name: str, changes: list[Tensor]) -> bool:
    """Whether a buffer follows the data: no count, and not the layers that are known to do so."""
    path, _, last = name.rpartition(".")
    module = model.get_submodule(path)
    kind = type(module).__name__
    if isinstance(module, _BatchNorm) or "SpectralNorm" in kind or last in ("weight_u", "weight_v"):
        return False
    return any(not torch.allclose(changes[0], change) for change in changes[1:])


def weight_average(
    run: Run, story: Story, start: nn.Module, averaged: nn.Module, decay: float
) -> list[Finding]:
    """Whether a moving average of the weights, from those at the start, moved once an update.

    Args:
        run: the loop.
        story: what it did.
        start: the model before.
        averaged: the averaged model.
        decay: the share that an average keeps when it moves.
    """
    final, first = _flat(averaged.parameters()), _flat(start.parameters())
    after = _after_updates(run, story)
    before = [first, *after]
    counts = [len(t.fresh) for t in story.updates]

    def averaged_over(trail: Iterable[Tensor]) -> Tensor:
        average = first
        for weights in trail:
            average = decay * average + (1 - decay) * weights
        return average

    if _near(final, averaged_over(after)):
        return []
    trails = (
        [w for n, count in enumerate(counts) for w in [*[before[n]] * (count - 1), after[n]]],
        [w for n, count in enumerate(counts) for w in [before[n]] * count],
    )
    off = (final - averaged_over(after)).norm().item()
    if any(_near(final, averaged_over(trail)) for trail in trails):
        numbers = {"moves": sum(counts), "moves meant": len(after), "off by": off}
        return [Finding("ema-every-micro-batch", tuple(t.number for t in story.updates), numbers)]
    return [Finding("unexplained", (), {"average off by": off})]


def _after_updates(run: Run, story: Story) -> list[Tensor]:
    """The weights after each update: what the next window's first forward saw."""
    after = [t.fresh[0] for t in story.updates[1:] if t.fresh and t.fresh[0].forwards]
    seen = [run.forwards[use.forwards[0]].state.weights for use in after]
    return [*(_flat(weights) for weights in seen), _flat(run.model.parameters())]


def _flat(tensors: Any) -> Tensor:
    return torch.cat([t.detach().double().flatten() for t in tensors])


def _near(a: Tensor, b: Tensor) -> bool:
    return (a - b).norm().item() <= CLOSE * max(a.norm().item(), 1e-12)


def logged_loss(
    story: Story, parts: Parts, logged: Sequence[float], k: int, by_sum: bool
) -> list[Finding]:
    """Whether the loss that the loop reports for each update is that of its window.

    Raises:
        ValueError: it does not report one for each update.
    """
    if len(logged) != len(story.updates):
        raise ValueError(
            f"logged must give one loss for each update, {len(story.updates)}, got {len(logged)}"
        )
    wrong, numbers = [], {}
    for taken, value in zip(story.updates, logged, strict=True):
        right = _loss_of(taken, parts, by_sum)
        if right is not None and not _close(float(value), right):
            wrong.append(taken.number)
            numbers = numbers or {"logged": float(value), "loss": right, "micro-batches": k}
    return [Finding("logged-loss-wrong", tuple(wrong), numbers)] if wrong else []


def _loss_of(taken: Taken, parts: Parts, by_sum: bool) -> float | None:
    full = [part for part in map(parts.own, taken.fresh) if not part.void]
    if not full:
        return None
    total = sum(part.total for part in full)
    return total if by_sum else total / sum(part.weight for part in full)


def graphs(run: Run, story: Story) -> list[Finding]:
    """Whether the graph of a micro-batch outlives the next one."""
    uses = [use for use in story.uses if use.forwards]
    kept: dict[int, int] = {}
    forwards = {f for use in uses for f in use.forwards}
    for before, use in itertools.pairwise(uses):
        alive = [f for f in run.forwards[use.forwards[0]].alive if f < before.forwards[0]]
        alive = forwards.intersection(alive)
        if alive:
            update = next((t.number for t in story.updates if use in t.fresh), 0)
            kept[update] = max(kept.get(update, 0), len(alive))
    if not kept:
        return []
    updates = tuple(sorted(n for n in kept if n))
    return [Finding("graph-kept-alive", updates, {"graphs held besides": max(kept.values())})]


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-9)
