"""Why an update cannot be that of a large batch, whatever the loop does."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from helpers.audit.objective import Objective
from helpers.audit.parts import Parts, Sight
from helpers.audit.records import Finding
from helpers.audit.running import Run, random_states_kept
from helpers.audit.scales import ROUNDING
from helpers.audit.uses import Story, Taken
from helpers.recorder.outputs import tensors_in


def mixtures(run: Run, story: Story, objective: Objective) -> list[Finding]:
    """Random layers, batch statistics, and losses over the whole micro-batch.

    BatchNorm is known by its name, all else by what it does: the losses of one micro-batch differ
    when random numbers do, or when its other half is taken away.
    """
    together = [t for t in story.updates if len(t.fresh) > 1]
    if not together:
        return []
    updates = tuple(t.number for t in together)
    use = next((u for t in together for u in t.fresh if u.forwards and not u.item.void), None)
    if use is None:
        return []
    seen = run.forwards[use.forwards[0]]
    objective.put(seen)
    found = []
    if not _same(_losses(objective, use.item.batch, 0), _losses(objective, use.item.batch, 1)):
        found.append(Finding("random-layers", updates))
        for module in objective.model.modules():
            if not isinstance(module, _BatchNorm):
                module.training = False  # as if without dropout
        if not _same(_losses(objective, use.item.batch, 0), _losses(objective, use.item.batch, 1)):
            return found
    if any(map(_takes_statistics, objective.model.modules())):
        return [*found, Finding("batch-statistics", updates)]
    for item in [use.item, *(u.item for t in together for u in t.fresh)]:
        half = _half(item.batch)
        if half is not None:
            kind = _mixed(objective, item.batch, half)
            return [*found, Finding(kind, updates)] if kind else found
    return found


def _takes_statistics(module: nn.Module) -> bool:
    is_norm = isinstance(module, _BatchNorm)
    return is_norm and (module.training or module.running_mean is None)


def _losses(objective: Objective, batch: Any, seed: int) -> Tensor:
    with random_states_kept(), torch.enable_grad():
        torch.manual_seed(seed)
        losses, _ = objective.elements(batch)
    return losses.detach()


def _mixed(objective: Objective, batch: Any, half: Any) -> str | None:
    try:
        part = _losses(objective, half, 0)
        outputs = _first_tensor(objective.outputs)
    except Exception:  # a loss may ask for whole micro-batches
        return None
    whole = _losses(objective, batch, 0)
    whole_outputs = _first_tensor(objective.outputs)
    if len(part) > len(whole) or not len(part) or _same(whole[: len(part)], part):
        return None
    if outputs is None or whole_outputs is None or outputs.dim() == 0:
        return "not-a-mean-of-elements"
    same = _same(whole_outputs[: len(outputs)], outputs)
    return "not-a-mean-of-elements" if same else "batch-statistics"


def _same(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return False
    a, b = a.detach(), b.detach()
    rounding = 10 * ROUNDING.get(a.dtype, ROUNDING[torch.float32])
    return bool(torch.allclose(a, b, rtol=rounding, atol=rounding * 1e-2, equal_nan=True))


def _first_tensor(outputs: Iterable[Any]) -> Tensor | None:
    return next((tensor for _, tensor in tensors_in(list(outputs))), None)


def _half(batch: Any) -> Any:
    """The first half of the samples of a micro-batch, None where it does not come apart."""
    tensors = [tensor for _, tensor in tensors_in(batch)]
    lengths = [len(tensor) for tensor in tensors if tensor.dim()]
    if not lengths or lengths[0] < 2:
        return None
    return _first(batch, lengths[0], (lengths[0] + 1) // 2)


def _first(thing: Any, length: int, count: int) -> Any:
    if isinstance(thing, Tensor):
        return thing[:count] if thing.dim() and len(thing) == length else thing
    if isinstance(thing, dict):
        return {key: _first(value, length, count) for key, value in thing.items()}
    if isinstance(thing, (list, tuple)) and not hasattr(thing, "_fields"):
        return type(thing)(_first(part, length, count) for part in thing)
    return thing


def lost_on_the_way(
    story: Story, parts: Parts, taken: Taken, sight: Sight
) -> tuple[str, dict[str, float]] | None:
    """Why ``.grad`` isn't the sum of an update's contributions; None where it is but for rounding.

    An addition rounds by at most half an epsilon of what is there, so n of them lose no more than
    n epsilons of all lengths. What lacks beyond that was taken away.
    """
    numbers = [b for b in dict.fromkeys(use.backward for use in taken.fresh) if b]
    if not numbers or taken.reused or taken.edits:
        return None
    seen = [story.backwards[b] for b in numbers]
    added = [b.added.vector.double() * sight.owned for b in seen]
    whole, lengths = sum(added), sum(vector.norm().item() for vector in added)
    missing = whole - sight.before.double()
    lost = missing.norm().item()
    eps = torch.finfo(parts.narrowest(taken.fresh[0])).eps
    if not math.isfinite(lost) or lost <= 2 * eps * lengths:
        return None
    numbers_lost = {"length lost": lost, "of": whole.norm().item()}
    if len(numbers) > 1 and lost <= len(numbers) * eps * lengths:
        return "low-precision-accumulator", numbers_lost
    there = missing[sight.before != 0].norm().item()
    return "cleared-inside-window" if there <= 2 * eps * lengths else "unexplained", numbers_lost
