"""Which storages are alive, what each is for, and the most that were alive at once."""

import copy
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

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
        allocator_peak: what CUDA's allocator had at most in use for the same, rounded to its
            blocks; None on other devices and for fake tensors. What it had in use for others when
            the measuring began, such as cuBLAS's workspace, is subtracted; a workspace made only
            inside is not.
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
        self.device = device
        self.model = [] if model is None else [*model.parameters(), *model.buffers()]
        self._optimizer = optimizer
        self._blocks: dict[int, Block] = {}  # by the address of the storage
        self._references: dict[int, weakref.ref] = {}
        self._rising = False
        self._at_peak: list[_Share] = []
        for tensor in (*self._owned(), *inputs):
            self.see(tensor)
        self.name_owners()

    @property
    def at_peak(self) -> dict[str, int]:
        """The peak's bytes for each of ``CATEGORIES``."""
        self._note_peak()
        self.name_owners()
        return _sorted(self._at_peak)

    def by_category(self) -> dict[str, int]:
        """The live bytes for each of ``CATEGORIES``, of which a storage counts under the first.

        A gradient or a state that was let go of, but is held elsewhere, counts as what it was.
        """
        self.name_owners()
        return _sorted(map(_Share, list(self._blocks.values())))

    def saved(self) -> tuple[SavedTensor, ...]:
        """What autograd keeps for backward now, in the order it was made; nothing of the model."""
        blocks = [block for block in list(self._blocks.values()) if block.views]
        return tuple(SavedTensor(*b.views[0], b.size) for b in blocks if b.owner != CATEGORIES[0])

    def __str__(self) -> str:
        return f"peak {in_words(self.peak)}: {parts_in_words(self.at_peak)}"

    def _owned(self) -> Iterator[Tensor]:
        yield from self.model
        yield from (tensor.grad for tensor in self.model if tensor.grad is not None)
        yield from () if self._optimizer is None else tensors_in(self._optimizer.state)

    def name_owners(self, *_: object) -> None:
        """Find out which storages belong to model, gradients and optimizer, where it is safe.

        It is not while a storage is dying: the tensor that let it go may be half gone itself.
        """
        self._name(CATEGORIES[0], self.model)
        for tensor in self.model:
            self.name_gradient(tensor)
        if self._optimizer is not None:
            self._name(CATEGORIES[2], tensors_in(self._optimizer.state))

    def name_gradient(self, parameter: Tensor) -> None:
        if parameter.grad is not None:
            self._name(CATEGORIES[1], (parameter.grad,))

    def _name(self, owner: str, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            block = self._blocks.get(_storage(tensor)._cdata)
            if block is not None and block.owner is None:
                block.owner = owner

    def see(self, tensor: Tensor) -> "Block | None":
        """Note the tensor's storage, if it is new or was resized; None if on another device."""
        storage = _storage(tensor)
        key, size = storage._cdata, storage.nbytes()
        block = self._blocks.get(key)
        if block is None:
            if _device(tensor) != self.device:
                return None
            block = self._blocks[key] = Block()
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

    def close(self) -> None:
        self._note_peak()
        self.name_owners()
        self._references.clear()  # what dies from now on is not told
        for key, block in self._blocks.items():
            self._blocks[key] = copy.copy(block)
        self.model, self._optimizer = [], None


class Block:
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

    def __init__(self, block: Block):
        self.block, self.size, self.kept = block, block.size, block.recomputed or block.views != ()


def _sorted(shares: Iterable[_Share]) -> dict[str, int]:
    sizes = dict.fromkeys(CATEGORIES, 0)
    for share in shares:
        sizes[share.block.owner or CATEGORIES[3 if share.kept else 4]] += share.size
    return sizes


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
