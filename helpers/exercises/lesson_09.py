"""Lesson 09: what the ranks of a launch find of a reader's window, and which micro-batches go out.

``measured`` becomes part of the script that the ranks run, beside what the reader wrote.
"""

import torch
from torch.nn.parallel import DistributedDataParallel

from helpers.models import micro_batch_model
from helpers.subjects.ranks import counted


def measured(rank, device, accumulate):
    mine = (((6, 1), (2, 1)), ((4, 2), (8, 4)), ((10, 3), (6, 1)), ((8, 2), (4, 2)))[rank]
    model = DistributedDataParallel(micro_batch_model().to(device))
    sent = counted(model)
    accumulate(model, [(torch.full((1, 1), float(s), device=device), n) for s, n in mine])
    return [model.module.weight.grad.item(), len(sent)]


# how many ranks; the gradient of the mean over all targets, and how often gradients were sent
ON_RANKS = [((2,), [20 / 8, 1]), ((4,), [48 / 16, 1])]

# (micro-batches, k); which of them are sent
SENT = [
    ((4, 2), [False, True, False, True]),
    ((5, 2), [False, True, False, True, True]),
    ((3, 1), [True, True, True]),
    ((2, 4), [False, True]),
    ((7, 3), [False, False, True, False, False, True, True]),
]
