"""Seconds of an accumulated update, for the one figure of the course that shows time."""

from statistics import median
from time import perf_counter

import torch
from torch import Tensor, nn

from helpers.gradients import train
from helpers.samples import small_convnet


def update_seconds(x: Tensor, y: Tensor, micro_batch: int, repeats: int = 5) -> float:
    """The median time of one update of the digits net over x and y in equal micro-batches."""
    net = small_convnet(x.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    seconds = []
    for _ in range(repeats + 1):
        start = perf_counter()
        train(net, optimizer, nn.CrossEntropyLoss(), [(x, y)], len(x) // micro_batch)
        if x.device.type == "cuda":
            torch.cuda.synchronize(x.device)
        seconds.append(perf_counter() - start)
    return median(seconds[1:])  # the first one warms up
