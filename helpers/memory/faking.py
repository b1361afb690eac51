"""Measuring without allocating: fake tensors know shape, type and device, and hold nothing.

PyTorch's own ``FakeTensorMode`` answers each operation with the shape of its result, so the same
storages come and go as for real, and a model far larger than the machine can be measured.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode

from helpers.memory.measuring import Memory, measure


@contextmanager
def fake() -> Iterator[FakeTensorMode]:
    """Tensors made inside take no memory and hold no values; the random state is kept.

    Kernels are those of the tensors' device: on a CPU, attention and dropout save other tensors
    than on CUDA, so a measurement is true of the device it is made for. PyTorch can't fake a
    device that this machine lacks, nor the fused kernel of an LSTM on a CPU, which keeps more.
    """
    cuda = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=cuda), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        yield mode


def measure_fake(
    build: Callable[[], tuple[nn.Module, torch.optim.Optimizer | None]],
    step: Callable[[nn.Module, torch.optim.Optimizer | None], object],
    device: torch.device | str | None = None,
) -> Memory:
    """What ``step(model, optimizer)`` would need for what ``build()`` returns; none is allocated.

    Both run under :func:`fake`: ``build`` makes model and optimizer as always, ``step`` makes its
    batch and computes. Neither can ask a tensor for its values.
    """
    with fake():
        model, optimizer = build()
        if optimizer is not None:
            same_kernels(optimizer)
        with measure(model, optimizer, device=device) as memory:
            step(model, optimizer)
    return memory


def fake_copy(module: nn.Module, device: torch.device, mode: FakeTensorMode) -> nn.Module:
    """A copy of the module with fake parameters and buffers on ``device``; call under the mode."""
    memo: dict[int, object] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        if nn.parameter.is_lazy(tensor):
            raise ValueError("model has parameters without a shape: run it on one batch first")
        memo[id(tensor)] = _fake_of(tensor, device)
    with FakeCopyMode(mode):
        return copy.deepcopy(module, memo)


def same_kernels(optimizer: torch.optim.Optimizer) -> None:
    """Make an optimizer of fake parameters step as it would step real ones.

    On CUDA most optimizers handle all parameters in one call (foreach), whose temporaries are as
    large as the model. They would not for tensors of a subclass, as fake ones are.
    """
    for group in optimizer.param_groups:
        on_cuda = all(p.device.type == "cuda" for p in group["params"])
        undecided = group.get("foreach", False) is None and not group.get("fused")
        if on_cuda and undecided and not group.get("differentiable"):
            group["foreach"] = True


def _fake_of(tensor: Tensor, device: torch.device) -> Tensor:
    made = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=device)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made
