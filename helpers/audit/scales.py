"""What each micro-batch was multiplied by on its way into an update, and which fault that is."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from helpers.audit.objective import Part

RIGHT, SUM = "right", "sum"

# How far apart, relative to their lengths, two gradients may be that are equal but for rounding.
ROUNDING = {
    torch.float64: 1e-8,
    torch.complex128: 1e-8,
    torch.float32: 3e-4,
    torch.complex64: 3e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 4e-2,
}


@dataclass(frozen=True)
class Member:
    """A micro-batch's part, and what the window holds that it belongs to."""

    part: Part
    elements: float  # or the sum of their weights
    micro_batches: int


@dataclass(frozen=True)
class Contribution:
    """What one backward added to ``.grad``, and the micro-batches that it came from."""

    added: Tensor
    members: tuple[Member, ...]


@dataclass(frozen=True)
class Setting:
    """What a divisor may be made of."""

    k: int
    window: Sequence[Part]  # that should be in the update, void ones among them
    used: Sequence[Part]  # that are in it
    as_planned: bool  # whether these are the same


@dataclass(frozen=True)
class Verdict:
    """A fault, or several at once, that give what was seen: (RIGHT,) where there is none."""

    kinds: tuple[str, ...]
    factor: float  # what becomes of the gradients between backward and step, but for clipping
    evidence: dict[str, float]


@dataclass(frozen=True)
class Hypothesis:
    """What each micro-batch's sum of losses would be multiplied by, if these were the faults."""

    kinds: tuple[str, ...]
    share: Callable[[Member], float]


def verdicts_of(
    contributions: Sequence[Contribution],
    setting: Setting,
    factors: Sequence[float],
    shrunk: float,
    rounding: float,
    sum_meant: bool,
) -> list[Verdict]:
    """All hypotheses that give each contribution, times one of the factors; the likeliest first.

    Where one is that nothing is wrong, it is the only one.

    Args:
        contributions: those that are finite, of micro-batches that have something to give.
        setting: what the window holds.
        factors: what may have become of the gradients after the last backward: first the likeliest.
        shrunk: what did become of them, clipping and unscaling in one.
        rounding: how far off rounding may be, relative to the largest contribution.
        sum_meant: whether the update is meant to be the sum of the losses, not their mean.
    """
    hypotheses = list(_hypotheses(setting, sum_meant))
    found = [
        Verdict(hypothesis.kinds, factor, _numbers(hypothesis, contributions))
        for factor in factors
        for hypothesis in hypotheses
        if _fits(hypothesis, contributions, factor, rounding)
    ]
    rights = [verdict for verdict in found if verdict.kinds == (RIGHT,)]
    if found:
        return rights[:1] or found
    other = (
        _scaled_and_clipped(contributions, hypotheses, shrunk, rounding)
        or _scale_changed(contributions, hypotheses[0], shrunk, rounding)
        or _any_divisor(contributions, setting, factors, rounding)
    )
    return [other] if other else []


def _hypotheses(setting: Setting, sum_meant: bool) -> Iterator[Hypothesis]:
    k = setting.k
    full = [p for p in setting.used if not p.void]
    window = [p for p in setting.window if not p.void] or full
    m, counts = len(full), {len(full)} if setting.as_planned else {len(window), k}
    void = max(sum(p.void for p in setting.used), sum(p.void for p in setting.window))
    weight, planned = sum(p.weight for p in full), sum(p.weight for p in window)
    equal = _all_equal([p.weight for p in (*full, *window)])
    uneven = () if equal else ("mean-of-means",)

    def by_sum(divisor: float) -> Callable[[Member], float]:
        return lambda member: 1 / divisor

    def by_mean(divisor: float) -> Callable[[Member], float]:
        return lambda member: 1 / (member.part.weight * divisor)

    def by_own_sum(times: float) -> Callable[[Member], float]:
        return lambda member: 1 / (member.elements * times)

    def by_own_mean(times: float) -> Callable[[Member], float]:
        return lambda member: 1 / (member.part.weight * member.micro_batches * times)

    if sum_meant:
        yield Hypothesis((RIGHT,), by_sum(1))
        yield Hypothesis(("wrong-divisor",), by_sum(weight))
        return
    yield Hypothesis((RIGHT,), by_sum(weight))
    if not setting.as_planned:
        # Its micro-batches are the wrong ones: each has the divisor of a window it should be in.
        yield Hypothesis((RIGHT,), by_sum(planned))
        yield Hypothesis((RIGHT,), by_own_sum(1))
        if equal:
            yield Hypothesis((RIGHT,), by_mean(k))
            yield Hypothesis((RIGHT,), by_mean(len(window)))
    if void:
        yield Hypothesis(("nan-micro-batch",), by_sum(weight * (m + void) / m))
        yield Hypothesis(("nan-micro-batch", *uneven), by_mean(m + void))
    if m < k and setting.as_planned:
        yield Hypothesis(("short-window-divided-by-k",), by_sum(weight * k / m))
        yield Hypothesis(("short-window-divided-by-k", *uneven), by_mean(k))
    if uneven:
        for divisor in sorted(counts - {1}):
            yield Hypothesis(uneven, by_mean(divisor))
        yield Hypothesis(uneven, by_own_mean(1))
    if k > 1:
        yield Hypothesis(("loss-not-divided",), by_mean(1))
        for again in sorted({*counts, k} - {1}):
            yield Hypothesis(("divided-twice",), by_sum(planned * again))
            yield Hypothesis(("divided-twice",), by_own_sum(again))
            for divisor in {*counts, k}:
                yield Hypothesis(("divided-twice", *uneven), by_mean(divisor * again))
            yield Hypothesis(("divided-twice", *uneven), by_own_mean(again))
    yield Hypothesis((SUM,), by_sum(1))
    if k > 1:
        yield Hypothesis(("wrong-divisor",), by_sum(k))


def _fits(
    hypothesis: Hypothesis, contributions: Sequence[Contribution], factor: float, rounding: float
) -> bool:
    predicted = [_predicted(hypothesis, c) for c in contributions]
    allowed = rounding * max((p.norm().item() for p in predicted), default=0.0)
    return all(
        (c.added * factor - p).norm().item() <= allowed
        for c, p in zip(contributions, predicted, strict=True)
    )


def _predicted(hypothesis: Hypothesis, contribution: Contribution) -> Tensor:
    return sum(m.part.gradient * hypothesis.share(m) for m in contribution.members)


def _numbers(hypothesis: Hypothesis, contributions: Sequence[Contribution]) -> dict[str, float]:
    """What the micro-batches' sums of losses are divided by, beside the number of elements."""
    members = [member for contribution in contributions for member in contribution.members]
    return {
        "elements": sum(member.part.weight for member in members),
        "first micro-batch divided by": 1 / hypothesis.share(members[0]),
        "last micro-batch divided by": 1 / hypothesis.share(members[-1]),
    }


def _scaled_and_clipped(
    contributions: Sequence[Contribution],
    hypotheses: Sequence[Hypothesis],
    shrunk: float,
    rounding: float,
) -> Verdict | None:
    """The first hypothesis that fits but for a loss scale, taken out later and then clipped.

    None where the contributions are right as they are: then it was no loss scale that was taken
    out; or where the gradient was turned round, which clipping does not do.
    """
    seen = torch.cat([c.added for c in contributions])
    if shrunk <= 0 or _fits(hypotheses[0], contributions, 1.0, rounding):
        return None
    for hypothesis in hypotheses:
        predicted = torch.cat([_predicted(hypothesis, c) for c in contributions])
        scale = _ratio(seen, predicted, rounding)
        if scale is None or not _is_power_of_two(scale) or scale < 1.5:
            continue
        if scale * shrunk <= 1 + rounding and _fits(hypothesis, contributions, 1 / scale, rounding):
            return Verdict(hypothesis.kinds, 1 / scale, _numbers(hypothesis, contributions))
    return None


def _scale_changed(
    contributions: Sequence[Contribution], right: Hypothesis, shrunk: float, rounding: float
) -> Verdict | None:
    """Whether each contribution is right but for a scale of its own; the last is taken out."""
    scales = []
    for contribution in contributions:
        predicted = _predicted(right, contribution)
        scale = _ratio(contribution.added, predicted, rounding)
        if scale is None or not _is_power_of_two(scale):
            return None
        scales.append(scale)
    if len({round(math.log2(scale)) for scale in scales}) < 2:
        return None
    if shrunk == 1 or not 0 < shrunk * scales[-1] <= 1 + rounding:
        return None
    evidence = {"first scale": scales[0], "last scale": scales[-1]}
    return Verdict(("scaler-inside-window",), 1 / scales[-1], evidence)


def _any_divisor(
    contributions: Sequence[Contribution],
    setting: Setting,
    factors: Sequence[float],
    rounding: float,
) -> Verdict | None:
    """Whether one divisor, whichever it be, gives all contributions."""
    if sum(int((c.added != 0).sum()) for c in contributions) < 2:
        return None  # one number is always a multiple of another
    whole = Hypothesis(("wrong-divisor",), lambda member: 1.0)
    seen = torch.cat([c.added for c in contributions])
    sums = torch.cat([_predicted(whole, c) for c in contributions])
    scale = _ratio(seen, sums, rounding)
    factor = factors[0]
    if scale is None or not scale * factor > 0:
        return None
    weight = sum(p.weight for p in setting.used if not p.void)
    evidence = {"elements": weight, "divided by": 1 / (scale * factor)}
    return Verdict(("wrong-divisor",), factor, evidence)


def times_right(
    contributions: Sequence[Contribution], setting: Setting, rounding: float, sum_meant: bool
) -> float | None:
    """How many times the right ones the contributions are, None where they are no multiple."""
    right = next(_hypotheses(setting, sum_meant))
    predicted = torch.cat([_predicted(right, c) for c in contributions])
    return _ratio(torch.cat([c.added for c in contributions]), predicted, rounding)


def has_divisor(
    divisor: float, contributions: Sequence[Contribution], factor: float, rounding: float
) -> bool:
    """Whether all contributions are the sums of losses over this divisor."""
    hypothesis = Hypothesis(("wrong-divisor",), lambda member: 1 / divisor)
    return _fits(hypothesis, contributions, factor, rounding)


def _ratio(vector: Tensor, other: Tensor, rounding: float) -> float | None:
    """How many times ``other`` one vector is, None if it is no multiple."""
    length = (other @ other).item()
    if not length > 0:
        return None
    scale = (vector @ other).item() / length
    far = (vector - scale * other).norm().item() > rounding * abs(scale) * math.sqrt(length)
    return None if far else scale


def _is_power_of_two(number: float) -> bool:
    if number <= 0:
        return False
    exponent = math.log2(number)
    return abs(exponent - round(exponent)) < 1e-3


def _all_equal(numbers: Sequence[float]) -> bool:
    return len({round(n, 9) for n in numbers}) <= 1
