"""Live and peak bytes of any piece of eager PyTorch code, by what the bytes are for.

Every tensor lives in a storage. A dispatch mode sees each operation, in forward, backward and
optimizer step alike, and notes every storage the first time one touches it; a weak reference
tells when PyTorch lets it go. Views and in-place operations make no storage, so they count
nothing. The numbers are those an allocator is asked for: no rounding to blocks, no cache, no
context, and no workspace that a kernel allocates and frees within one operation.
"""

import copy
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

CATEGORIES = ("parameters", "gradients", "optimizer state", "activations", "other")


@dataclass(frozen=True)
class SavedTensor:
    """A tensor that autograd keeps for backward; views of one storage count as one."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    bytes: int  # of its whole storage


class Memory:
    """What :func:`measure` finds: up to date while it measures, and left as it was at the end.

    Attributes:
        live: bytes alive now.
        peak: the most bytes alive at once. An operation's output exists beside its inputs.
        allocator_peak: what CUDA's allocator itself had at most in use on the device, all of the
            process, rounded to its blocks; None on other devices and for fake tensors.
    """

    def __init__(
        self,
        model: nn.Module | None,
        optimizer: torch.optim.Optimizer | None,
        inputs: Iterable[Tensor],
        device: torch.device,
    ):
        self.live = self.peak = 0
        self.allocator_peak: int | None = None
        self._device = device
        self._model = [] if model is None else [*model.parameters(), *model.buffers()]
        self._optimizer = optimizer
        self._blocks: dict[int, _Block] = {}  # by the address of the storage
        self._references: dict[int, weakref.ref] = {}
        self._rising = False
        self._at_peak: list[_Share] = []
        for tensor in (*self._owned(), *inputs):
            self._see(tensor)
        self._name_owners()

    @property
    def at_peak(self) -> dict[str, int]:
        """The peak's bytes for each of ``CATEGORIES``."""
        self._note_peak()
        self._name_owners()
        return _sorted(self._at_peak)

    def by_category(self) -> dict[str, int]:
        """The live bytes for each of ``CATEGORIES``, of which a storage counts under the first.

        A gradient or a state that was let go of, but is held elsewhere, counts as what it was.
        """
        self._name_owners()
        return _sorted(map(_Share, list(self._blocks.values())))

    def saved(self) -> tuple[SavedTensor, ...]:
        """What autograd keeps for backward now, in the order it was made; nothing of the model."""
        blocks = [block for block in list(self._blocks.values()) if block.views]
        return tuple(SavedTensor(*b.views[0], b.size) for b in blocks if b.owner != CATEGORIES[0])

    def __str__(self) -> str:
        return f"peak {in_words(self.peak)}: {parts_in_words(self.at_peak)}"

    def _owned(self) -> Iterator[Tensor]:
        yield from self._model
        yield from (tensor.grad for tensor in self._model if tensor.grad is not None)
        yield from () if self._optimizer is None else tensors_in(self._optimizer.state)

    def _name_owners(self, *_: object) -> None:
        """Find out which storages belong to model, gradients and optimizer, where it is safe.

        It is not while a storage is dying: the tensor that let it go may be half gone itself.
        """
        self._name(CATEGORIES[0], self._model)
        for tensor in self._model:
            self._name_gradient(tensor)
        if self._optimizer is not None:
            self._name(CATEGORIES[2], tensors_in(self._optimizer.state))

    def _name_gradient(self, parameter: Tensor) -> None:
        if parameter.grad is not None:
            self._name(CATEGORIES[1], (parameter.grad,))

    def _name(self, owner: str, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            block = self._blocks.get(_storage(tensor)._cdata)
            if block is not None and block.owner is None:
                block.owner = owner

    def _see(self, tensor: Tensor) -> "_Block | None":
        """Note the tensor's storage, if it is new or was resized; None if on another device."""
        storage = _storage(tensor)
        key, size = storage._cdata, storage.nbytes()
        block = self._blocks.get(key)
        if block is None:
            if _device(tensor) != self._device:
                return None
            block = self._blocks[key] = _Block()
            self._references[key] = weakref.ref(storage, lambda _: self._forget(key))
        if block.size != size:
            self._note_peak()
            self.live += size - block.size
            block.size = size
        if self.live > self.peak:
            self.peak, self._rising = self.live, True
        return block

    def _forget(self, key: int) -> None:
        self._note_peak()
        self.live -= self._blocks.pop(key).size
        del self._references[key]

    def _note_peak(self) -> None:
        """Write down what there is, if it is the most so far, before some of it goes.

        Only now, for a fresh tensor may be saved for backward after the operation that made it.
        """
        if self._rising:
            blocks = list(self._blocks.values())  # may collect garbage, and so come here first
            if self._rising:
                self._rising = False
                self._at_peak = [_Share(block) for block in blocks]

    def _close(self) -> None:
        self._note_peak()
        self._name_owners()
        self._references.clear()  # what dies from now on is not told
        for key, block in self._blocks.items():
            self._blocks[key] = copy.copy(block)
        self._model, self._optimizer = [], None


class _Block:
    """A storage: its bytes, whose it is, and the views of it that are saved for backward."""

    __slots__ = ("owner", "recomputed", "size", "views")

    def __init__(self) -> None:
        self.size = 0
        self.owner: str | None = None
        self.recomputed = False
        self.views: tuple[tuple[tuple[int, ...], torch.dtype], ...] = ()


class _Share:
    """What a block counts for at one moment, even if it is resized or released later."""

    __slots__ = ("block", "kept", "size")

    def __init__(self, block: _Block):
        self.block, self.size, self.kept = block, block.size, block.recomputed or block.views != ()


def _sorted(shares: Iterable[_Share]) -> dict[str, int]:
    sizes = dict.fromkeys(CATEGORIES, 0)
    for share in shares:
        sizes[share.block.owner or CATEGORIES[3 if share.kept else 4]] += share.size
    return sizes


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
    allocator = memory._device.type == "cuda" and torch._guards.active_fake_mode() is None
    if allocator:
        torch.cuda.reset_peak_memory_stats(memory._device)
    hooks = _SavedTensors(memory)
    try:
        with _owners_named(memory, optimizer), hooks, _Operations(memory, hooks):
            yield memory
    finally:
        memory._close()
        if allocator:
            memory.allocator_peak = torch.cuda.max_memory_allocated(memory._device)


@contextmanager
def _owners_named(memory: Memory, optimizer: torch.optim.Optimizer | None) -> Iterator[None]:
    """A gradient is known once it is accumulated, a state after the step that made it."""
    trained = [tensor for tensor in memory._model if tensor.requires_grad and tensor.is_leaf]
    hooks = [p.register_post_accumulate_grad_hook(memory._name_gradient) for p in trained]
    if optimizer is not None:
        hooks.append(optimizer.register_step_pre_hook(memory._name_owners))
        hooks.append(optimizer.register_step_post_hook(memory._name_owners))
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
            self.memory._see(tensor)
        out = func(*args, **kwargs)
        made = [self.memory._see(tensor) for tensor in tensors_in(out)]
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
        self.block = memory._see(tensor) or _Block()
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


def in_words(size: int) -> str:
    """``1536`` is ``"1.5 KiB"``."""
    for unit, length in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= length:
            return f"{size / length:.4g} {unit}"
    return f"{size} bytes"


def parts_in_words(sizes: dict[str, int]) -> str:
    """The categories that hold something, each with its bytes."""
    return ", ".join(f"{name} {in_words(size)}" for name, size in sizes.items() if size)


def _storage(tensor: Tensor) -> torch.UntypedStorage:
    try:
        return tensor.untyped_storage()
    except NotImplementedError:
        raise ValueError(f"only dense tensors can be measured, got {tensor.layout}") from None


def _device(tensor: Tensor) -> torch.device:
    # Asking a fake tensor for its device dispatches an operation, which takes long.
    return getattr(tensor, "fake_device", None) or tensor.device


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in nested dicts, lists and tuples."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(part)


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
