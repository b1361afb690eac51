"""The loops of lesson 11's museum: public bug reports, each boiled down to one short loop.

Windows are ``K = 3`` micro-batches long. A loop gets a model and the micro-batches of an epoch, and
each is as its report tells, in our own words; nothing is copied from the threads.
"""

import copy
from collections.abc import Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD
from torch.optim.lr_scheduler import LinearLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

K = 3
IGNORED = -100.0
Batches = Sequence[Tensor]


def windows(batches: Batches) -> Iterator[list[Tensor]]:
    """The micro-batches in threes; the last window holds what is left."""
    items = iter(batches)
    while window := list(islice(items, K)):
        yield window


# Scale: what the losses are divided by.


def nanogpt_168(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for window in windows(batches):
        for x in window:
            loss = model(x).mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def rf_detr_1503(model: nn.Module, batches: Batches) -> None:
    def backward(loss: Tensor) -> None:  # a library's
        (loss / K).backward()

    optimizer = SGD(model.parameters(), lr=0.1)
    for window in windows(batches):
        for x in window:
            loss = model(x).mean() / K
            backward(loss)
        optimizer.step()
        optimizer.zero_grad()


def deepmtp_34(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for window in windows(batches):
        for x in window:
            loss = model(x).mean() / len(window)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def transformers_24725(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for window in windows(batches):
        for x in window:
            loss = model(x)[x != IGNORED].mean() / len(window)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def transformers_46204(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for window in windows(batches):
        labels = sum(len(x) + 1 for x in window)  # counts a place that is no target
        for x in window:
            loss = model(x).sum() / labels
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def sparseml_135(model: nn.Module, batches: Batches, world_size: int = 2) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for window in windows(batches):
        for x in window:
            loss = model(x).mean() * world_size / len(window)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


# Windows: where an update begins and ends.


def torchseq_8(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(batches):
        loss = model(x).mean() / K
        loss.backward()
        if (i + 1) % K == 0:
            optimizer.step()
            optimizer.zero_grad()


def transformers_22082(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        for i, x in enumerate(batches):
            loss = model(x).mean() / K
            loss.backward()
            if (i + 1) % K == 0:
                optimizer.step()
                optimizer.zero_grad()


def lightning_19987(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(batches):
        loss = model(x).mean() / K
        loss.backward()
        if (i + 1) % K == 0 or i + 1 == len(batches):
            optimizer.step()
            optimizer.zero_grad()


def llms_from_scratch_299(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(batches):
        loss = model(x).mean() / K
        loss.backward()
        if i % K == 0:
            optimizer.step()
            optimizer.zero_grad()


def qwen3_tts_326(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for x in batches:
        loss = model(x).mean() / K
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def mmf_521(model: nn.Module, batches: Batches) -> None:
    optimizer, length = SGD(model.parameters(), lr=0.1), 0  # a stream does not know its length
    for i, x in enumerate(batches):
        loss = model(x).mean() / K
        loss.backward()
        if (i + 1) % K == 0 or i + 1 == length:
            optimizer.step()
            optimizer.zero_grad()


# Clear: what is in .grad when a window begins, and what is lost from it.


def accelerate_616(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(batches):
        loss = model(x).mean() / K
        optimizer.zero_grad()
        loss.backward()
        if (i + 1) % K == 0:
            optimizer.step()


def never_clears(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(batches):
        loss = model(x).mean() / K
        loss.backward()
        if (i + 1) % K == 0:
            optimizer.step()


def validates(model: nn.Module, batches: Batches) -> None:
    def validate() -> None:
        model.zero_grad()
        with torch.no_grad():
            model(batches[0])

    optimizer = SGD(model.parameters(), lr=0.1)
    for i, x in enumerate(batches):
        loss = model(x).mean() / K
        loss.backward()
        if (i + 1) % 4 == 0:
            validate()
        if (i + 1) % K == 0:
            optimizer.step()
            optimizer.zero_grad()


# Once a window: what else belongs to an update.


def transformers_986(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for window in windows(batches):
        for x in window:
            loss = model(x).mean() / len(window)
            loss.backward()
            clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def accelerate_641(model: nn.Module, batches: Batches, scale: float = 8.0) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for window in windows(batches):
        for x in window:
            loss = model(x).mean() / len(window) * scale
            loss.backward()
            for parameter in model.parameters():
                parameter.grad /= scale
        optimizer.step()
        optimizer.zero_grad()


def lightning_1476(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    warm_up = LinearLR(optimizer, start_factor=1 / 8, total_iters=8)
    for i, x in enumerate(batches):
        loss = model(x).mean() / K
        loss.backward()
        if (i + 1) % K == 0:
            optimizer.step()
            optimizer.zero_grad()
        warm_up.step()


def axolotl_1170(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    decay = LinearLR(optimizer, 1.0, 0.0, total_iters=len(batches))
    for window in windows(batches):
        for x in window:
            loss = model(x).mean() / len(window)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        decay.step()


def f5_tts_631(model: nn.Module, batches: Batches) -> nn.Module:
    optimizer = SGD(model.parameters(), lr=0.1)
    ema = AveragedModel(copy.deepcopy(model), multi_avg_fn=get_ema_multi_avg_fn(0.9))
    ema.update_parameters(model)  # the first call copies
    for i, x in enumerate(batches):
        loss = model(x).mean() / K
        loss.backward()
        if (i + 1) % K == 0:
            optimizer.step()
            optimizer.zero_grad()
        ema.update_parameters(model)
    return ema.module


def espnet_5090(model: nn.Module, batches: Batches) -> list[float]:
    optimizer, log = SGD(model.parameters(), lr=0.1), []
    for window in windows(batches):
        for x in window:
            loss = model(x).mean() / len(window)
            loss.backward()
        log.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return log


def torchtune_1875(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for window in windows(batches):
        loss = sum(model(x).mean() for x in window) / len(window)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
