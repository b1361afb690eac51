"""Around the whole loop: what a run is made of, saving and resuming it, and two runs compared."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from helpers.gradients import compare
from helpers.models import tiny_language_model
from helpers.recorder import Backward, Clear, Edit, Forward, Schedule, Step, Trace

WARM_UP = 4  # updates
Parts = tuple[nn.Module, SGD, LRScheduler, torch.amp.GradScaler, AveragedModel]

ACTIONS = {
    Forward: "forward",
    Backward: "backward",
    Edit: "unscale, clip",  # both between two looks of the recorder
    Step: "step",
    Schedule: "schedule",
    Clear: "clear",
}


def parts(device: torch.device | str = "cpu") -> Parts:
    """The small language model, SGD with momentum and decay, a warm-up, a loss scale, an average.

    The same at every call; the average has decay 0.9.
    """
    model = tiny_language_model(device)
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    warm_up = LambdaLR(optimizer, lambda updates: min((updates + 1) / WARM_UP, 1))
    scaler = torch.amp.GradScaler(torch.device(device).type, init_scale=1024.0)
    return model, optimizer, warm_up, scaler, AveragedModel(model, multi_avg_fn=EMA)


EMA = get_ema_multi_avg_fn(0.9)


def saved(at: Mapping[str, int], everything: Sequence) -> dict:
    """A checkpoint: where the run is, and the state of each of its parts, all copied."""
    return copy.deepcopy({"at": dict(at), "states": [part.state_dict() for part in everything]})


def restored(snapshot: Mapping, everything: Sequence) -> dict[str, int]:
    """Where the run was; the parts are put into the states saved, the checkpoint is left alone."""
    for part, state in zip(everything, snapshot["states"], strict=True):
        part.load_state_dict(copy.deepcopy(state))
    return dict(snapshot["at"])


@dataclass(frozen=True)
class Finished:
    """What is left of a run."""

    trace: Trace
    logs: list[float]  # the mean loss of each window
    snapshots: list[dict]  # after each window
    weights: Tensor
    average: Tensor


def apart(run: Finished, expected: Finished) -> dict[str, float]:
    """The largest relative difference between two runs, in each thing that they should share.

    Raises:
        ValueError: the runs have made different numbers of updates or logs.
    """
    updates = list(zip(run.trace.updates, expected.trace.updates, strict=True))
    gradients = (relative(a.gradient.vector, b.gradient.vector) for a, b in updates)
    rates = (
        abs(a - b) / b
        for one, other in updates
        for a, b in zip(one.learning_rates, other.learning_rates, strict=True)
    )
    losses = (abs(a - b) / abs(b) for a, b in zip(run.logs, expected.logs, strict=True))
    return {
        "gradients": max(gradients),
        "learning rates": max(rates),
        "losses": max(losses),
        "weights": relative(run.weights, expected.weights),
        "average": relative(run.average, expected.average),
    }


def relative(vector: Tensor, expected: Tensor) -> float:
    """The length of the difference in lengths of the expected one."""
    return compare(vector, expected).relative_difference


def happened(trace: Trace, micro_batches: int) -> dict[str, list[int]]:
    """For each action the micro-batches, from 1, after whose forward it happened."""
    found: dict[str, list[int]] = {name: [] for name in ACTIONS.values()}
    number = 0
    for event in trace.events:
        number += isinstance(event, Forward)
        if number <= micro_batches and type(event) in ACTIONS:
            found[ACTIONS[type(event)]].append(number)
    return found
