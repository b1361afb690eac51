"""The micro-batches handed to a loop, seen as it draws them, and known again in the model."""

import copy
import zlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from helpers.recorder import Trace
from helpers.recorder.ledger import plain
from helpers.recorder.outputs import tensors_in

Drawn = tuple[frozenset[int], Any]  # an item's fingerprints, and the item where they are new


def watched(
    batches: Iterable, trace: Trace, drawn: list[Drawn], known: Collection[frozenset[int]]
) -> Iterable:
    """The same micro-batches, of the same type where that can be, each item drawn written down.

    Items whose fingerprints are not ``known`` are copied, before the loop can change them.
    """
    items = copy.deepcopy(list(batches)) if isinstance(batches, (list, tuple)) else batches
    draws = trace.draws(items)

    def iterate(_: Any) -> Iterator:
        for item in draws:
            contents = fingerprints(item)
            drawn.append((contents, None if contents in known else copy.deepcopy(item)))
            yield item

    if isinstance(batches, (list, tuple)):
        kind = list if isinstance(batches, list) else tuple
        return type(kind.__name__, (kind,), {"__iter__": iterate})(items)
    try:
        twin = copy.copy(batches)
        kind = type(batches)
        twin.__class__ = type(kind.__name__, (kind,), {"__iter__": iterate, "__slots__": ()})
        return twin
    except TypeError:  # written in C, or with slots
        return _Watched(batches, iterate)


class _Watched:
    """Hands over what it wraps, and is otherwise as that is."""

    def __init__(self, batches: Iterable, iterate: Any):
        self._batches, self._iterate = batches, iterate

    def __iter__(self) -> Iterator:
        return self._iterate(self)

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: Any) -> Any:
        return self._batches[index]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._batches, name)


def fingerprints(things: Any) -> frozenset[int]:
    """A number for each tensor and plain number in ``things``, the same for equal ones."""
    numbers = {_of_tensor(tensor) for _, tensor in tensors_in(things)}
    return frozenset(numbers | {hash(("number", float(n))) for n in _plain_numbers(things)})


def _plain_numbers(thing: Any, depth: int = 0) -> Iterator[float]:
    if isinstance(thing, (int, float)) and not isinstance(thing, bool):
        yield thing
    elif isinstance(thing, (list, tuple)) and depth < 3:
        for part in thing:
            yield from _plain_numbers(part, depth + 1)
    elif isinstance(thing, dict) and depth < 3:
        yield from _plain_numbers(list(thing.values()), depth + 1)


def _of_tensor(tensor: Tensor) -> int:
    values = plain(tensor).cpu().contiguous()
    raw = values.reshape(-1).view(torch.uint8).numpy().data if values.numel() else b""
    return hash((zlib.crc32(raw), zlib.adler32(raw), values.numel(), str(values.dtype)))
