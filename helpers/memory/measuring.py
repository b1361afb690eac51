"""Live and peak bytes of any piece of eager PyTorch code, by what the bytes are for.

Every tensor lives in a storage. A dispatch mode sees each operation, in forward, backward and
optimizer step alike, and notes every storage the first time one touches it; a weak reference
tells when PyTorch lets it go. Views and in-place operations make no storage, so they count
nothing. The numbers are those an allocator is asked for: no rounding to blocks, no cache, no
context, and no workspace that a kernel allocates and frees within one operation.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.memory.tally import Block, Memory, tensors_in


@contextmanager
def measure(
    model: nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    inputs: Tensor | Iterable[Tensor] = (),
    device: torch.device | str | None = None,
) -> Iterator[Memory]:
    """Measure the bytes of the tensors on one device while the block runs.

    The model, its gradients, the optimizer's state and ``inputs`` count from the start, any other
    tensor from the first operation that touches it. Results are the same, to the bit, as without.
    What checkpointing recomputes in backward counts as activations. Only eager code with dense
    tensors is seen, not what a compiled graph or a kernel allocates for itself; gradients by
    torch.func are refused, by PyTorch. One measurement at a time. On CUDA the allocator's peak
    statistics start anew.

    Args:
        model: its parameters, buffers and ``.grad``; None if there is none.
        optimizer: its state.
        inputs: tensors that exist before, e.g. the batch.
        device: the one to measure; by default the model's, without a model the default device.

    Raises:
        TypeError: an argument is of another kind.
        ValueError: the model is on several devices and ``device`` names none of them.
    """
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    _check(model, optimizer, inputs)
    memory = Memory(model, optimizer, inputs, one_device(model, device))
    allocator = memory.device.type == "cuda" and torch._guards.active_fake_mode() is None
    elsewhere = 0
    if allocator:
        torch.cuda.reset_peak_memory_stats(memory.device)
        elsewhere = torch.cuda.memory_allocated(memory.device) - memory.live
    hooks = _SavedTensors(memory)
    try:
        with _owners_named(memory, optimizer), hooks, _Operations(memory, hooks):
            yield memory
    finally:
        memory.close()
        if allocator:
            memory.allocator_peak = torch.cuda.max_memory_allocated(memory.device) - elsewhere


@contextmanager
def _owners_named(memory: Memory, optimizer: torch.optim.Optimizer | None) -> Iterator[None]:
    """A gradient is known once it is accumulated, a state after the step that made it."""
    trained = [tensor for tensor in memory.model if tensor.requires_grad and tensor.is_leaf]
    hooks = [p.register_post_accumulate_grad_hook(memory.name_gradient) for p in trained]
    if optimizer is not None:
        hooks.append(optimizer.register_step_pre_hook(memory.name_owners))
        hooks.append(optimizer.register_step_post_hook(memory.name_owners))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _Operations(TorchDispatchMode):
    """Shows the memory every tensor that an operation takes or makes."""

    def __init__(self, memory: Memory, hooks: "_SavedTensors"):
        super().__init__()
        self.memory, self.hooks = memory, hooks

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace == "prim":  # fake tensors ask for their device; nothing is computed
            return func(*args, **kwargs)
        for tensor in tensors_in((*args, *kwargs.values())):
            self.memory.see(tensor)
        out = func(*args, **kwargs)
        made = [self.memory.see(tensor) for tensor in tensors_in(out)]
        if self.hooks.others_recompute():
            for block in filter(None, made):
                block.recomputed = True
        return out


class _SavedTensors(saved_tensors_hooks):
    """Tells the memory which tensors autograd saves and releases."""

    def __init__(self, memory: Memory):
        super().__init__(lambda tensor: _Packed(tensor, memory), _Packed.unpack)

    def others_recompute(self) -> bool:
        """Whether backward runs a forward again whose saved tensors go to other hooks.

        That is what checkpointing does: of hooks inside one another only the inner are called.
        """
        if torch._C._current_graph_task_id() == -1 or not torch.is_grad_enabled():
            return False
        top = torch._C._autograd._top_saved_tensors_default_hooks(False)
        return top is not None and top[0] is not self.pack_hook


class _Packed:
    """A tensor saved for backward, listed for as long as autograd holds it."""

    def __init__(self, tensor: Tensor, memory: Memory):
        self.tensor = tensor.detach()  # the tensor itself may own the graph that will own this
        self.version = tensor._version
        self.block = memory.see(tensor) or Block()
        self.view = (tuple(tensor.shape), tensor.dtype)
        self.block.views += (self.view,)

    def __del__(self) -> None:
        views = self.block.views
        place = views.index(self.view)
        self.block.views = views[:place] + views[place + 1 :]

    def unpack(self) -> Tensor:
        """The tensor; raises as PyTorch does, which leaves this check to whoever packs."""
        if self.tensor._version != self.version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: a tensor of shape {tuple(self.tensor.shape)} is at version "
                f"{self.tensor._version}; expected version {self.version} instead"
            )
        return self.tensor


def one_device(model: nn.Module | None, device: torch.device | str | None) -> torch.device:
    """``device``, or the one that holds the model, or PyTorch's default without a model."""
    if device is not None:
        device = torch.device(device)
        if (
            device.type not in ("cpu", "meta")
            and not torch.get_device_module(device).is_available()
        ):
            raise ValueError(f"device must be one that this machine has, got {str(device)!r}")
        return torch.empty(0, device=device).device  # "cuda" is "cuda:0"
    tensors = [] if model is None else [*model.parameters(), *model.buffers()]
    found = {tensor.device for tensor in tensors} or {torch.empty(0).device}
    if len(found) > 1:
        names = ", ".join(sorted(map(str, found)))
        raise ValueError(f"model must be on one device, or device name one: it is on {names}")
    return found.pop()


def _check(model: Any, optimizer: Any, inputs: Sequence[Any]) -> None:
    for name, value, kind in (
        ("model", model, nn.Module),
        ("optimizer", optimizer, torch.optim.Optimizer),
    ):
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__} or None, got {value!r}")
    for tensor in inputs:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"inputs must be tensors, got {type(tensor).__name__}")
