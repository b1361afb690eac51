"""Measuring without allocating: fake tensors know shape, type and device, and hold nothing.

PyTorch's own ``FakeTensorMode`` answers each operation with the shape of its result, so the same
storages come and go as for real, and a model far larger than the machine can be measured.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
# These reduce their element-wise result in its own storage, which the scalar goes on holding.
REDUCED_IN_PLACE = (
    aten.mse_loss.default,
    aten.smooth_l1_loss.default,
    aten.binary_cross_entropy.default,
    aten.soft_margin_loss.default,
)


@contextmanager
def fake() -> Iterator[FakeTensorMode]:
    """Tensors made inside take no memory and hold no values; the random state is kept.

    Kernels are those of the tensors' device: on a CPU, attention and dropout save other tensors
    than on CUDA, so a measurement is true of the device it is made for. PyTorch can't fake a
    device that this machine lacks, nor the fused kernel of an LSTM on a CPU, which keeps more.
    """
    cuda = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with (
        torch.random.fork_rng(devices=cuda),
        FakeTensorMode(allow_non_fake_inputs=True) as mode,
        _StoragesAsHeld(),
    ):
        yield mode


class _StoragesAsHeld(TorchDispatchMode):
    """Makes a fake result's storage as large as the real kernel leaves it."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func in REDUCED_IN_PLACE and out.dim() == 0:
            elements = torch.broadcast_shapes(args[0].shape, args[1].shape).numel()
            out.untyped_storage().resize_(elements * out.element_size())
        return out


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
