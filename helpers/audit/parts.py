"""An update's gradient laid over the model's, and the objective's part of each micro-batch."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from helpers.audit.objective import Objective, Part
from helpers.audit.running import Run, Seen
from helpers.audit.scales import ROUNDING
from helpers.audit.uses import Item, Taken, Use


@dataclass(frozen=True)
class Sight:
    """An update's gradient over all of the model, and which parameters it is about."""

    before: Tensor  # after the last backward
    gradient: Tensor  # as the optimizer saw it
    owned: Tensor  # a mask


def sight_of(update: Taken, names: Sequence[str], sizes: Sequence[int]) -> Sight:
    """The gradient that an update used, put together from its steps."""
    first = update.steps[0].gradient.vector
    before, gradient = (
        torch.zeros(sum(sizes), dtype=first.dtype, device=first.device) for _ in "ab"
    )
    owned = torch.zeros(sum(sizes), dtype=torch.bool, device=first.device)
    places = dict(zip(names, _slices(sizes), strict=True))
    for step in update.steps:
        at = 0
        for name in step.parameters:
            part = places[name]
            until = at + part.stop - part.start
            before[part] = step.before.vector[at:until]
            gradient[part] = step.gradient.vector[at:until]
            owned[part] = True
            at = until
    return Sight(before, gradient, owned)


def _slices(sizes: Sequence[int]) -> list[slice]:
    ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
    return [slice(a, b) for a, b in itertools.pairwise(ends)]


def factor_of(sight: Sight, rounding: float) -> float | None:
    """What the gradient is multiplied by after the last backward, None if not by one number."""
    before, after = sight.before, sight.gradient
    length = (before @ before).item()
    if torch.equal(before, after) or not length > 0:
        return 1.0
    factor = (after @ before).item() / length
    far = (after - factor * before).norm().item()
    # Clipping rounds each element once, so narrow gradients are off by as much.
    return factor if far <= rounding * abs(factor) * length**0.5 else None


class Parts:
    """The objective's part of each micro-batch, worked out once for each state it is asked at."""

    def __init__(self, run: Run, objective: Objective):
        self._run, self._objective = run, objective
        self._found: dict[tuple, Part] = {}
        self.sizes = objective.sizes

    def own(self, use: Use) -> Part:
        """At the weights that the use's own forward saw."""
        return self.at(use.item, use.forwards or (min(self._run.forwards),))

    def from_start(self, use: Use | None, item: Item, first: Use) -> Part:
        """At the weights that ``first`` saw, by the use's own forward where it saw the same."""
        seen = self._run.forwards
        start = first.forwards or (min(seen),)
        if use and use.forwards and seen[use.forwards[0]].weights == seen[start[0]].weights:
            return self.own(use)
        return self.at(item, start)

    def rounding(self, use: Use) -> float:
        """How far off rounding may be in the types that the use's forward computed in."""
        types = self._types(use) | {self._seen(use).autocast or torch.float64}
        return max(ROUNDING.get(t, ROUNDING[torch.float32]) for t in types)

    def narrowest(self, use: Use) -> torch.dtype:
        """Of the types of the weights, and with them of ``.grad``."""
        return max(self._types(use), key=lambda t: torch.finfo(t).eps)

    def _types(self, use: Use) -> set[torch.dtype]:
        return {w.dtype for w in self._seen(use).state.weights if w.is_floating_point()}

    def _seen(self, use: Use) -> Seen:
        return self._run.forwards[(use.forwards or (min(self._run.forwards),))[0]]

    def at(self, item: Item, forwards: tuple[int, ...]) -> Part:
        """At the weights that the first of these forwards saw."""
        key = (id(item), forwards)
        if key not in self._found:
            seen = [self._run.forwards[f] for f in forwards]
            self._found[key] = self._objective.part(item.batch, seen)
        return self._found[key]
