"""What the ranks of lesson 09 do besides its loops: share out samples, count, shard a model.

``helpers.subjects.launching`` copies these functions into the script that torchrun runs, beside
those of the lesson.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.samples import eight_samples


def my_samples(rank, device):
    x, y = eight_samples(device)
    return x[rank :: dist.get_world_size()], y[rank :: dist.get_world_size()]


def counted(model):
    sent = []

    def hook(state, bucket):
        sent.append(bucket.buffer().nbytes)
        return allreduce_hook(None, bucket)

    model.register_comm_hook(None, hook)
    return sent


def bucket_sizes(rank, device):
    found = []
    for cap in (1, 2, 4, 8, 16):
        net = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(16))).to(device)
        model = DistributedDataParallel(net, bucket_cap_mb=cap)
        sent = counted(model)
        for _ in range(2):
            del sent[:]
            model(torch.ones(1, 512, device=device)).sum().backward()
        found.append((cap, list(sent)))
    return found


def sharded(rank, device):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from helpers.memory import measure
    from helpers.subjects.ranks import count_collectives

    found, mesh = {}, init_device_mesh("cpu", (dist.get_world_size(),))
    for sent in ("each", "last"):
        net = nn.Sequential(*(nn.Linear(256, 256, bias=False) for _ in range(4)))
        for layer in (*net, net):
            fully_shard(layer, mesh=mesh)
        with count_collectives() as calls, measure() as memory:
            held = []
            for i in range(4):
                net.set_requires_gradient_sync(sent == "each" or i == 3)
                (net(torch.ones(1, 256)).mean() / 4).backward()  # forward, scale, backward
                dist.barrier()
                held.append(memory.live)
        found[sent] = calls["reduce_scatter_base"], calls["allgather_base"], min(held[:-1])
    return found


@contextmanager
def count_collectives() -> Iterator[Counter[str]]:
    """How often each collective operation is called inside, by torch's own name for it."""
    with _Collectives() as seen:
        yield seen.calls


class _Collectives(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d":
            self.calls[func._schema.name.removeprefix("c10d::").strip("_")] += 1
        return func(*args, **(kwargs or {}))
