"""Runs of a loop: the objects that it is handed, and which updates are right."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from helpers import checks
from helpers.loops.data import DATA, Setting, loader_of
from helpers.recorder import Trace

TAKES = ("model", "optimizer", "loader", "accumulation_steps")

WHOLE_WINDOWS = (
    Setting((1,) * 2, 2),
    Setting((1,) * 3, 1),
    Setting((1,) * 6, 3),
    Setting((2,) * 4, 2, epochs=2),
    Setting((3,) * 4, 4),
)
SETTINGS = (
    *WHOLE_WINDOWS,
    Setting((1,) * 5, 4),
    Setting((1,) * 5, 2, epochs=2),
    Setting((1,) * 7, 3, epochs=2),
    Setting((1,) * 3, 4, epochs=2),
    Setting((2, 2, 1), 3),
    Setting((4, 4, 2), 2, epochs=2),
)

# Clipping hides a wrong scale, so that not every window may be clipped: the mean of micro-batches 1
# to 3 is shorter, later ones are longer.
MAX_NORM = 50.0

Update = dict[int, float]  # which micro-batches, counted from 1 over all epochs, and each's weight
Right = Callable[[Sequence[int], int, int], list[Update]]


def window_means(counts: Sequence[int], accumulation_steps: int, epochs: int) -> list[Update]:
    """The updates of which each is the mean over a window, a short one at an epoch's end included.

    An update holds, for each micro-batch in it, what every one of its samples counts. A window
    without samples makes no update.

    Args:
        counts: samples, or labels, of each micro-batch of an epoch.
        accumulation_steps: micro-batches in a full window.
        epochs: passes over the data.
    """
    updates = []
    for epoch in range(epochs):
        for start in range(0, len(counts), accumulation_steps):
            window = range(start, min(start + accumulation_steps, len(counts)))
            total = sum(counts[i] for i in window)
            numbers = (epoch * len(counts) + i + 1 for i in window if counts[i])
            if total:
                updates.append(dict.fromkeys(numbers, 1 / total))
    return updates


@dataclass(frozen=True)
class Counter:
    """Something that a loop does a number of times."""

    said: str  # such as "the scheduler moved"
    read: Callable[[], int]
    right: int


@dataclass(frozen=True)
class Run:
    """One run of a loop: what it is handed, and what it should do.

    :func:`build` makes one from a :class:`Setting`; an exercise with a model of its own makes it by
    hand, with ``gradients`` and without ``parts``.
    """

    said: str
    model: nn.Module
    arguments: tuple
    gradients: tuple[Tensor, ...]  # at each right update, flat, in model order
    calls: int = 1
    parts: Tensor | None = None  # each sample's own gradient, a row each; no two share a weight
    owners: tuple[int, ...] = ()  # the micro-batch of an epoch, from 0, that each sample is in
    updates: tuple[Update, ...] = ()
    micro_batches: int = 0  # in an epoch
    epochs: int = 1
    max_norm: float | None = None
    learning_rates: tuple[float, ...] = ()  # at each right update; empty if they don't matter
    counters: tuple[Counter, ...] = ()
    also: Callable[[Trace, object], str] | None = None  # of the trace and of what was returned
    all_used: bool = True  # whether the right updates use every micro-batch
    unit: str = "sample"


def build(
    setting: Setting,
    takes: Sequence[str] = TAKES,
    data: str | None = None,
    right: Right = window_means,
) -> Run:
    """A fresh run of a setting.

    Args:
        setting: what it is made of.
        takes: what the loop is handed, in this order, of ``model``, ``criterion``, ``optimizer``,
            ``loader``, ``accumulation_steps``, ``epochs``, ``scheduler``, ``max_norm``,
            ``scaler`` (a GradScaler) and ``ema`` (an AveragedModel).
        data: what the loader gives: "inputs", where the loss is ``model(batch).mean()``; "pairs"
            of inputs and targets, for MSELoss; or "tokens" with labels, for cross entropy, where
            a label of -100 does not count. Pairs where the loop takes a criterion, else inputs.
        right: which updates are right.

    Raises:
        ValueError: there is no such object to take, or no such data.
    """
    data = data or ("pairs" if "criterion" in takes else "inputs")
    checks.one_of("data", data, DATA)
    model, batches, parts = DATA[data](setting)
    # Weights move so little that pairs and tokens have the same gradients in every epoch.
    lr = {"inputs": 1.0, "pairs": 2.0**-20, "tokens": 2.0**-60}[data]
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    objects = {
        "model": lambda: model,
        "criterion": nn.CrossEntropyLoss if data == "tokens" else nn.MSELoss,
        "optimizer": lambda: optimizer,
        "loader": lambda: loader_of(setting, data, batches),
        "accumulation_steps": lambda: setting.accumulation_steps,
        "epochs": lambda: setting.epochs,
        "scheduler": lambda: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (n + 1)),
        "max_norm": lambda: MAX_NORM,
        "scaler": lambda: torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10**6),
        "ema": lambda: AveragedModel(model),
    }
    for name in takes:
        checks.one_of("each of takes", name, objects)
    taken = {name: objects[name]() for name in takes}

    updates = right(setting.counts, setting.accumulation_steps, setting.epochs)
    owners = tuple(i for i, count in enumerate(setting.counts) for _ in range(count))
    micro_batches, max_norm = len(setting.sizes), taken.get("max_norm")
    gradients = []
    for update in updates:
        weights = {(number - 1) % micro_batches: weight for number, weight in update.items()}
        counted = torch.tensor([weights.get(owner, 0.0) for owner in owners], dtype=parts.dtype)
        gradient = counted @ parts
        if max_norm is not None:
            gradient *= min(1.0, max_norm / gradient.norm().item())
        gradients.append(gradient)
    used = {number for update in updates for number in update}
    wanted = {e * micro_batches + i + 1 for e in range(setting.epochs) for i in set(owners)}
    return Run(
        said=str(setting),
        model=model,
        arguments=tuple(taken.values()),
        gradients=tuple(gradients),
        calls=1 if "epochs" in takes else setting.epochs,
        parts=parts,
        owners=owners,
        updates=tuple(updates),
        micro_batches=micro_batches,
        epochs=setting.epochs,
        max_norm=max_norm,
        learning_rates=tuple(
            lr / (n + 1 if "scheduler" in taken else 1) for n in range(len(updates))
        ),
        counters=_counters(taken, len(updates)),
        all_used=used >= wanted,
        unit="label" if data == "tokens" else "sample",
    )


def _counters(taken: dict, updates: int) -> tuple[Counter, ...]:
    """What should happen once an update, of those objects that count it themselves."""
    readers = {
        "scheduler": ("the scheduler moved", lambda s: s.last_epoch),
        "scaler": ("the scaler was updated", lambda s: s.state_dict()["_growth_tracker"]),
        "ema": ("the average took in the weights", lambda e: int(e.n_averaged)),
    }
    return tuple(
        Counter(said, lambda read=read, thing=taken[name]: read(thing), updates)
        for name, (said, read) in readers.items()
        if name in taken
    )
