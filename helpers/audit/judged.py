"""An update beside the right one, and what is made of its difference."""

from dataclasses import dataclass, field

from torch import Tensor

from helpers.audit.parts import Sight
from helpers.audit.scales import Contribution, Setting, Verdict
from helpers.audit.uses import Key, Taken


@dataclass(eq=False)
class Judged:
    """An update beside the right one."""

    taken: Taken
    expected: tuple[Key, ...]
    sight: Sight
    right: Tensor | None  # None where the window has no elements
    verdicts: list[Verdict] = field(default_factory=list)  # that fit it
    verdict: Verdict | None = None
    kinds: list[str] = field(default_factory=list)
    evidence: dict[str, dict[str, float]] = field(default_factory=dict)
    clipped_to: float | None = None
    measured: tuple[list[Contribution], Setting] | None = None
    unfitted: list[Contribution] = field(default_factory=list)  # where nothing fits by itself
    factor: float | None = 1.0  # from the last backward to the step; None where it has no one

    def add(self, kind: str, **evidence: float) -> None:
        if kind not in self.kinds:
            self.kinds.append(kind)
        self.evidence.setdefault(kind, {}).update(evidence)
