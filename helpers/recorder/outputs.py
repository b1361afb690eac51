"""The tensors in whatever a model hands back."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

DEEPEST = 8  # containers in containers; an output that refers to more than itself ends here


def tensors_in(output: Any) -> Iterator[tuple[str, Tensor]]:
    """Each tensor once, with the key or attribute that it has: "" outside of dicts and objects.

    Looks into dicts, lists, tuples, sets, and into the attributes of objects, dataclasses with or
    without slots among them. Iterators are left alone, they could be read only once; so are
    modules. The name of a tensor in a container in a container has a dot.
    """
    if isinstance(output, Tensor):
        return iter((("", output),))
    return _walk(output, "", 0, set())


def _walk(thing: Any, name: str, depth: int, met: set[int]) -> Iterator[tuple[str, Tensor]]:
    if id(thing) in met:
        return
    if isinstance(thing, Tensor):
        met.add(id(thing))
        yield name, thing
    elif depth < DEEPEST:
        met.add(id(thing))
        for key, part in _parts(thing):
            inner = f"{name}.{key}" if depth and key else name or key
            yield from _walk(part, inner, depth + 1, met)


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """What a container holds, each with its key, or an object with its attribute."""
    if isinstance(thing, Mapping):
        yield from ((str(key), part) for key, part in thing.items())
    elif isinstance(thing, tuple) and hasattr(thing, "_fields"):
        yield from zip(thing._fields, thing, strict=True)
    elif isinstance(thing, (tuple, list, set, frozenset)):
        yield from (("", part) for part in thing)
    elif not isinstance(thing, (type, nn.Module)):
        yield from getattr(thing, "__dict__", {}).items()
        for kind in type(thing).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                if slot not in ("__dict__", "__weakref__") and hasattr(thing, slot):
                    yield slot, getattr(thing, slot)
