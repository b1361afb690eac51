"""Lesson 11: a reader's loop audited, and data that give faulty loops away."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from helpers.answers import is_stub
from helpers.audit import audit
from helpers.subjects.museum import EXHIBITS, each, line, micro_batches
from helpers.subjects.museum_loops import K


def numbers(sizes: Sequence[int]) -> list:
    """Micro-batches of these sizes; their samples are all different, so no sum hides another."""
    powers = iter(range(sum(sizes)))
    return micro_batches(*[[2.0 ** next(powers) for _ in range(size)] for size in sizes])


def kinds_of(loop: Callable[[nn.Module, Sequence], Any]) -> Callable[..., tuple[str, ...]]:
    """A function of the sizes of micro-batches: the kinds that the audit finds in the loop there.

    It counts as unwritten while ``loop`` is.
    """

    @functools.wraps(loop)
    def kinds(*sizes: int) -> Any:
        if is_stub(loop):
            return ...
        meant = {"last_window": "flush", "reduction": "mean"}
        report = audit(loop, line(), numbers(sizes), each, K, **meant)
        return tuple(finding.kind for finding in report.findings)

    return kinds


# Equal, ragged, a short window, a short window of one, fewer than a window.
RIGHT = [(sizes, ()) for sizes in ((2,) * 6, (4, 4, 2), (1, 3, 2, 2, 5), (3,) * 4, (2, 1))]

SUSPECTS = ("nanogpt_168", "deepmtp_34", "torchseq_8", "lightning_19987", "llms_from_scratch_299")


def given_away_by(sizes: Callable[[], Sequence[int]]) -> Callable[[str], bool]:
    """A function of a loop's name: whether the audit finds its fault on micro-batches so large.

    It counts as unwritten while ``sizes`` is.
    """

    @functools.wraps(sizes)
    def given_away(name: str) -> Any:
        chosen = sizes()
        if chosen is None or chosen is ...:
            return chosen
        if not 1 <= sum(chosen) <= 40:
            raise ValueError(f"sizes must add up to 1 to 40 samples, got {list(chosen)}")
        report = audit(EXHIBITS[name].loop, line(), numbers(chosen), each, K, reduction="mean")
        return not report.ok and set(EXHIBITS[name].kinds) <= {f.kind for f in report.findings}

    return given_away


ALL_FOUND = [((name,), True) for name in SUSPECTS]
