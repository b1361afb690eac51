"""The length that an update's gradients are clipped to, beside the length that is meant."""

from collections.abc import Sequence

from helpers.audit.judged import Judged
from helpers.audit.scales import Verdict

CLOSE = 1e-3  # how far apart two norms of gradients clipped to one length may be
OTHER_LENGTH = "clipped-to-another-length"


def length_shown(updates: Sequence[Judged]) -> float | None:
    """The length that gradients are clipped to, as far as the updates show one."""
    pairs = [(j.factor, j.sight.gradient.norm().item()) for j in updates if j.factor is not None]
    if any(factor <= 0 for factor, _ in pairs):
        return None  # clipping turns no gradient round
    shrunk = [norm for factor, norm in pairs if factor < 1 - 1e-4]
    if not shrunk or max(shrunk) > min(shrunk) * (1 + CLOSE):
        return None
    rest = [norm for factor, norm in pairs if factor >= 1 - 1e-4]
    return max(shrunk) if all(norm <= max(shrunk) * (1 + CLOSE) for norm in rest) else None


def factors_of(judged: Judged, shown: float | None, k: int, max_norm: float | None) -> list[float]:
    """What may have become of the gradients after the last backward, but for clipping.

    Args:
        judged: an update.
        shown: the length that gradients are clipped to, as far as the updates show one.
        k: micro-batches in a full window.
        max_norm: the length that they are meant to be clipped to, if that is known.
    """
    factor = judged.factor
    if factor is None or abs(factor - 1) < 1e-6:
        return [1.0]
    norm = judged.sight.gradient.norm().item()
    if not 0 < factor < 1:
        return [factor]
    if max_norm is not None and abs(norm - max_norm) <= CLOSE * max_norm:
        return [1.0, factor]
    if shown is not None and abs(norm - shown) <= CLOSE * shown:
        # A gradient divided by k once more would hardly be as long as it is by chance.
        once_more = abs(factor * k - 1) < 1e-6
        return [factor] if once_more else [1.0, factor]
    return [factor]


def look_at_clipping(judged: Judged, verdict: Verdict, max_norm: float | None) -> None:
    """Tell a length that gradients are clipped to from the one that is meant."""
    if judged.factor is None:
        return
    rest = judged.factor / verdict.factor
    if rest < 1 - CLOSE:
        judged.clipped_to = judged.sight.gradient.norm().item()
    if max_norm is not None and not judged.taken.edits and not judged.taken.reused:
        length = judged.sight.before.norm().item()
        meant = min(1.0, max_norm / max(length * verdict.factor, 1e-300))
        if abs(rest - meant) > CLOSE * meant:
            scaled = min(1.0, max_norm / max(length, 1e-300))
            if verdict.factor < 1 and abs(rest - scaled) <= CLOSE * scaled:
                numbers = {"loss scale": 1 / verdict.factor, "length": judged.clipped_to or 0.0}
                judged.add("clipped-before-unscaling", **numbers)
            else:
                unclipped = length * verdict.factor
                numbers = {"length": rest * unclipped, "length meant": meant * unclipped}
                judged.add(OTHER_LENGTH, **numbers, max_norm=max_norm)
                return
    if judged.clipped_to is not None and judged.right is not None:
        judged.right = judged.right * rest


def clip_right(judged: Judged, max_norm: float) -> None:
    """Clip the right gradient to the length meant, where the loop's own is of another."""
    if OTHER_LENGTH in judged.kinds and judged.right is not None:
        length = (judged.right * judged.sight.owned).norm().item()
        judged.right = judged.right * min(1.0, max_norm / max(length, 1e-300))
