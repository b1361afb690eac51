"""Each update of a loop held against the right one, and its difference named."""

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from helpers.audit import inexact, inside
from helpers.audit.clipping import (
    CLOSE,
    clip_right,
    factors_of,
    length_shown,
    look_at_clipping,
)
from helpers.audit.judged import Judged
from helpers.audit.objective import Part
from helpers.audit.parts import Parts, factor_of, sight_of
from helpers.audit.running import Run
from helpers.audit.scales import (
    RIGHT,
    ROUNDING,
    SUM,
    Contribution,
    Member,
    Setting,
    Verdict,
    has_divisor,
    times_right,
    verdicts_of,
)
from helpers.audit.uses import Key, Story, Taken, Use
from helpers.audit.windows import Windows

MOVING = {"stale-gradients", "weights-moved-between-updates"}  # contributions of other weights


class Judge:
    """Holds the updates of one run against the objective."""

    def __init__(
        self,
        run: Run,
        story: Story,
        windows: Windows,
        void: set[Key],
        parts: Parts,
        names: list[str],
        k: int,
        reduction: str | None,
        max_norm: float | None,
    ):
        self.story, self.windows, self.parts, self.k = story, windows, parts, k
        self.reduction, self.max_norm, self.run, self.void = reduction, max_norm, run, void
        self.sum_meant = reduction == "sum"
        self.of_key = {use.key: use for use in story.uses}
        self.sums: dict[tuple[Key, ...], tuple[float, int]] = {}  # of each window
        self.judged = [self._seen(taken, names) for taken in story.updates]
        self.shown = length_shown(self.judged)

    def judge(self) -> list[Judged]:
        for judged in self.judged:
            self._judge(judged)
        self._choose()
        self._settle_rescaled()
        self._settle_divisors()
        self._settle_sums()
        if self.max_norm is not None:
            for judged in self.judged:
                clip_right(judged, self.max_norm)
        return self.judged

    def _seen(self, taken: Taken, names: list[str]) -> Judged:
        sight = sight_of(taken, names, self.parts.sizes)
        expected = self.windows.expected.get(taken.number, ())
        judged = Judged(taken, expected, sight, self._right(taken, expected))
        judged.factor = factor_of(sight, self._rounding(taken))
        return judged

    def _right(self, taken: Taken, expected: tuple[Key, ...]) -> Tensor | None:
        """The gradient of the window at the weights that its update started from."""
        full = [p for p in self._parts_at_start(taken, expected) if not p.void]
        if not full:
            return None
        total = sum(part.gradient for part in full)
        return total if self.sum_meant else total / sum(part.weight for part in full)

    def _parts_at_start(self, taken: Taken, keys: tuple[Key, ...]) -> list:
        if not taken.meant:
            return []
        first, items = taken.meant[0], self.story.items
        return [self.parts.from_start(self.of_key.get(key), items[key], first) for key in keys]

    def _rounding(self, taken: Taken) -> float:
        return max(map(self.parts.rounding, taken.fresh), default=ROUNDING[torch.float32])

    def _judge(self, judged: Judged) -> None:
        taken = judged.taken
        for kind, updates in self.windows.kinds.items():
            if taken.number in updates:
                judged.add(kind)
        if taken.reused:
            judged.add("never-cleared", **{"micro-batches used again": len(taken.reused)})
        strange = sum(use.strange for use in taken.fresh)
        if strange:
            judged.add("order-or-data-differ", **{"backwards of other data": strange})
            return
        moved = any(step.change.norm > 0 for step in taken.steps)
        parts = {use: self.parts.own(use) for use in taken.fresh}
        if not judged.sight.gradient.isfinite().all():
            judged.add("nan-micro-batch", **{"without a finite loss": _voids(parts.values())})
        elif all(part.void for part in parts.values()):
            emptied = any(use.key not in self.void for use in taken.meant)
            if moved and not taken.reused and not emptied:
                judged.add("empty-window-stepped", moved=max(s.change.norm for s in taken.steps))
        else:
            self._judge_scale(judged)

    def _judge_inside(self, judged: Judged, rounding: float) -> None:
        """Name what happens to gradients and weights while the window fills."""
        taken, sight = judged.taken, judged.sight
        old = inside.stale(self.story, taken)
        if old:
            judged.add("stale-gradients", **{"micro-batches": old})
        moves = inside.moved(self.run, self.story, taken)
        if moves:
            judged.add("weights-moved-between-updates", times=moves)
        lost = inexact.lost_on_the_way(self.story, self.parts, taken, sight)
        if lost:
            judged.add(lost[0], **lost[1])
        if taken.edits and not taken.reused and not self._is_right(judged, rounding):
            kind, numbers = inside.name_edits(self.story, taken, sight, rounding, self.max_norm)
            judged.add(kind, **numbers)

    def _is_right(self, judged: Judged, rounding: float) -> bool:
        right = judged.right
        if right is None:
            return False
        off = (judged.sight.gradient - right * judged.sight.owned).norm().item()
        return off <= rounding * right.norm().item()

    def _judge_scale(self, judged: Judged) -> None:
        taken, rounding = judged.taken, self._rounding(judged.taken)
        contributions = self._contributions(judged)
        if not contributions:
            return
        self._judge_inside(judged, rounding)
        if taken.edits and self._is_right(judged, rounding):
            return
        window = self._parts_at_start(taken, judged.expected)
        used = [self.parts.own(use) for use in taken.fresh]
        keys = ({use.key for use in taken.fresh}, {*judged.expected})
        as_planned = keys[0] - self.void == keys[1] - self.void
        setting = Setting(self.k, window, used, as_planned)
        judged.measured = contributions, setting
        shrunk = 1.0 if judged.factor is None else judged.factor
        judged.verdicts = verdicts_of(
            contributions, setting, self._factors(judged), shrunk, rounding, self.sum_meant
        )
        if not judged.verdicts:
            judged.unfitted = contributions

    def _choose(self) -> None:
        """Of the faults that fit an update take those that fit the most updates."""
        counts = Counter(
            kind for j in self.judged for kind in {k for v in j.verdicts for k in v.kinds}
        )
        for judged in self.judged:
            if judged.verdicts:
                verdict = max(judged.verdicts, key=lambda v: min(counts[kind] for kind in v.kinds))
                judged.verdict = verdict
                for kind in verdict.kinds:
                    if kind not in (RIGHT, SUM):
                        judged.add(kind, **verdict.evidence)
                look_at_clipping(judged, verdict, self.max_norm)

    def _contributions(self, judged: Judged) -> list[Contribution]:
        owned = judged.sight.owned
        uses: dict[int | None, list[Use]] = {}
        for use in judged.taken.fresh:
            uses.setdefault(use.backward, []).append(use)
        found = []
        for backward, together in uses.items():
            parts = [self.parts.own(use) for use in together]
            full = tuple(
                Member(part.on(owned), *self._belongs(use))
                for use, part in zip(together, parts, strict=True)
                if not part.void
            )
            if backward is None:
                added = judged.sight.gradient
            else:
                added = self.story.backwards[backward].added.vector
            if full and added is not None:
                found.append(Contribution(added * owned, full))
        return found

    def _belongs(self, use: Use) -> tuple[float, int]:
        """The elements and micro-batches of the window that a use belongs to."""
        keys = self.windows.of_key.get(use.key, (use.key,))
        if keys not in self.sums:
            uses = [self.of_key.get(key) for key in keys]
            parts = [self.parts.own(other) for other in uses if other]
            full = [part for part in parts if not part.void]
            self.sums[keys] = sum(part.weight for part in full), len(full)
        return self.sums[keys]

    def _factors(self, judged: Judged) -> list[float]:
        return factors_of(judged, self.shown, self.k, self.max_norm)

    def _settle_rescaled(self) -> None:
        """Where a loop rescales gradients before its steps, some may be clipped besides."""
        lengths = [j.sight.gradient.norm().item() for j in self.judged]
        rights = [j for j in self.judged if j.verdict and j.verdict.kinds == (RIGHT,)]
        if self.max_norm is None and not any(j.verdict.factor != 1 for j in rights):
            return
        longest = self.max_norm or max(lengths)
        for judged, length in zip(self.judged, lengths, strict=True):
            wrong = [kind for kind in judged.kinds if kind != "wrong-divisor"]
            clipped = length > 0 and abs(length / longest - 1) <= CLOSE and judged.factor
            if judged in rights or wrong or not clipped or not judged.measured:
                continue
            contributions, setting = judged.measured
            times = times_right(
                contributions, setting, self._rounding(judged.taken), self.sum_meant
            )
            if times is not None and 0 < judged.factor * times < 1:
                judged.kinds, judged.unfitted = [], []
                judged.verdict = Verdict((RIGHT,), 1 / times, {})
                look_at_clipping(judged, judged.verdict, self.max_norm)

    def _settle_divisors(self) -> None:
        """One number fits any divisor, so it has to be that of another update."""
        evidence = [j.evidence.get("wrong-divisor", {}) for j in self.judged]
        divisors = {e["divided by"] for e in evidence if "divided by" in e}
        for judged in self.judged:
            if not judged.unfitted:
                continue
            rounding, factor = self._rounding(judged.taken), self._factors(judged)[0]
            if any(has_divisor(d, judged.unfitted, factor, rounding) for d in divisors):
                judged.add("wrong-divisor")
            elif not {*judged.kinds} & MOVING:
                judged.add("unexplained", **self._times_right(judged))

    def _times_right(self, judged: Judged) -> dict[str, float]:
        contributions, setting = judged.measured
        rounding = self._rounding(judged.taken)
        times = times_right(contributions, setting, rounding, self.sum_meant)
        known = times is not None and judged.factor is not None
        return {"times the right one": times * judged.factor} if known else {}

    def _settle_sums(self) -> None:
        """A sum is a choice where every update is one; a fault where only some are."""
        verdicts = [j.verdict for j in self.judged if j.verdict]
        sums = [j for j in self.judged if j.verdict and SUM in j.verdict.kinds]
        allowed = self.reduction is None
        self.all_sums = allowed and bool(sums) and len(sums) == len(verdicts)
        for judged in sums:
            if not self.all_sums:
                judged.add("wrong-divisor", **judged.verdict.evidence)
            elif judged.right is not None:
                window = self._parts_at_start(judged.taken, judged.expected)
                judged.right = judged.right * sum(p.weight for p in window if not p.void)


def _voids(parts: Iterable[Part]) -> int:
    return sum(part.void for part in parts)
