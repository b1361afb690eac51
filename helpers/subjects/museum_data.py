"""The last room of lesson 11's museum: loops whose data or random numbers are at fault."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from helpers.subjects.museum_loops import IGNORED, Batches, K, windows


def pytorch_116349(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for window in windows(batches):
        for x in window:
            loss = model(x)[x != IGNORED].mean() / len(window)
            if loss.isfinite():
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def nanochat_623(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    for window in windows(batches):
        targets = sum(int((x != IGNORED).sum()) for x in window)
        for x in window:
            loss = model(x)[x != IGNORED].sum() / max(targets, 1)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def transformers_5605(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for part in (batches[: 2 * K], batches[2:]):  # saved after two updates, resumed
        for i, x in enumerate(part):
            loss = model(x).mean() / K
            loss.backward()
            if (i + 1) % K == 0:
                optimizer.step()
                optimizer.zero_grad()


def deepspeed_2768(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for x in batches:
        loss = model(x).sum()
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def right_loop(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for window in windows(batches):
        samples = sum(len(x) for x in window)
        for x in window:
            loss = model(x).sum() / samples
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def in_batch(model: nn.Module, x: Tensor) -> Tensor:
    """For each sample how badly it is told from the others of its micro-batch."""
    embedded = model(x)
    return cross_entropy(embedded @ embedded.T, torch.arange(len(x)), reduction="none")


def sentence_transformers_2916(model: nn.Module, batches: Batches) -> None:
    optimizer = SGD(model.parameters(), lr=0.1)
    for window in windows(batches):
        for x in window:
            loss = in_batch(model, x).mean() / len(window)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
