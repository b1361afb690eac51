"""One line of the table, and how times are taken so that they can be compared."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

HEADING = f"{'what':62} {'median':>10} {'p95':>10} {'ratio':>6} {'aim':>8}"


@dataclass(frozen=True)
class Line:
    """Times of one thing, printed as a row: median, 95th percentile, ratio, aim, met or not."""

    what: str
    seconds: Sequence[float]
    against: Sequence[float] = ()  # what the ratio of medians is to; empty where there is none
    aim: float | None = None  # at most this ratio; seconds, where there is no ratio

    def __str__(self) -> str:
        median, p95 = statistics.median(self.seconds), percentile(self.seconds, 95)
        ratio = median / statistics.median(self.against) if self.against else None
        reached = median if ratio is None else ratio
        aim = verdict = ""
        if self.aim is not None:
            aim = f"≤ {_time(self.aim) if ratio is None else f'{self.aim:g}'}"
            verdict = "met" if reached <= self.aim else "not met"
        written = "" if ratio is None else f"{ratio:.3f}"
        return (
            f"{self.what:62} {_time(median):>10} {_time(p95):>10} {written:>6} {aim:>8}  {verdict}"
        ).rstrip()


def percentile(values: Sequence[float], percent: int) -> float:
    """The value under which ``percent`` of the values lie, between neighbours if need be."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def in_turn(rounds: int, *actions: Callable[[], object]) -> list[list[float]]:
    """The seconds each action takes, once a round, all of them in every round.

    What else the machine does slows neighbours in time alike, so ratios of times taken in turn
    hold on a busy machine, where times taken one after the other do not. A round before the
    first fills caches and is not counted.
    """
    taken: list[list[float]] = [[] for _ in actions]
    for counted in range(-1, rounds):
        for action, times in zip(actions, taken, strict=True):
            start = time.perf_counter()
            action()
            if counted >= 0:
                times.append(time.perf_counter() - start)
    return taken


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
