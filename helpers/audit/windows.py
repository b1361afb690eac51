"""Which micro-batches should be in which update, and what a loop did instead."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from helpers.audit.uses import Key, Story

FLUSH, CARRY, DROP = "flush", "carry on", "drop"
LAST_WINDOWS = (FLUSH, CARRY, DROP)

EMPTIED = "cleared-inside-window"

Window = tuple[Key, ...]


@dataclass
class Windows:
    """What the windows of a loop are, and should be."""

    expected: dict[int, Window]  # for each update
    kinds: dict[str, list[int]] = field(default_factory=dict)  # fault to its updates
    evidence: dict[str, dict[str, float]] = field(default_factory=dict)
    choices: list[str] = field(default_factory=list)
    of_key: dict[Key, Window] = field(default_factory=dict)  # where each micro-batch belongs

    def add(self, kind: str, updates: Iterable[int] = (), **evidence: float) -> None:
        self.kinds.setdefault(kind, []).extend(updates)
        self.evidence.setdefault(kind, {}).update(evidence)


def windows_of(story: Story, void: set[Key], k: int, last_window: str | None) -> Windows:
    """The windows of a loop held against those of ``k`` micro-batches.

    Args:
        story: what the loop did.
        void: micro-batches without anything to give, which a loop may count or not.
        k: micro-batches in a full window.
        last_window: what a short last window of an epoch is meant to do; None: end with a step or
            be carried on, as the loop does.
    """
    groups = [
        (t.number, tuple(u.key for u in t.meant if u.key not in void))
        for t in sorted([*story.updates, *story.skipped], key=lambda t: t.at)
    ]
    taken = [group for _, group in groups if group]
    for places in ([*story.items], [key for key in story.items if key not in void]):
        found = _as_planned(story, places, void, taken, k, last_window)
        if found:
            windows, choices, kinds = found
            result = Windows({}, choices=choices)
            for kind, evidence in kinds.items():
                concerned = [n for n, g in groups if g and n]
                result.add(kind, concerned if kind == "window-carried-on" else (), **evidence)
            break
    else:
        windows = _chunks(_epochs(story.items), k)
        result = Windows({})
        _name(result, story, void, groups, windows, k)
    for update in story.updates:
        emptied = [use.key for use in update.meant if use.key not in void]
        if emptied and not update.fresh:
            result.add(EMPTIED, [update.number], **{"micro-batches lost": len(emptied)})
    result.of_key = of_key = {key: window for window in windows for key in window}
    for number, group in groups:
        if number:
            result.expected[number] = of_key.get(group[-1], ()) if group else ()
    return result


def _as_planned(
    story: Story,
    places: list[Key],
    void: set[Key],
    taken: list[Window],
    k: int,
    last_window: str | None,
) -> tuple[list[Window], list[str], dict[str, dict]] | None:
    """Windows, choices and faults where the loop follows one of the plans throughout."""
    flushed = _chunks(_epochs(places), k)
    carried = _chunks([places], k)
    full = [w for w in flushed if len(w) == k]
    pending = len(carried[-1]) if carried and len(carried[-1]) < k else 0
    several, short = len(story.lengths) > 1, len(full) < len(flushed)

    def same(windows: Sequence[Window]) -> bool:
        bare = [tuple(key for key in w if key not in void) for w in windows]
        return [w for w in bare if w] == taken

    if same(flushed) and (last_window != DROP or not short):
        if last_window == CARRY and short and several:
            return flushed, [], {"unexplained": {"short windows with a step": len(flushed)}}
        return flushed, [], {}
    if same(full) and (last_window == DROP or not (last_window == CARRY and not several)):
        left = [w for w in flushed if len(w) < k]
        if last_window == DROP:
            return flushed, [f"a short last window is dropped ({len(left)} of them)"], {}
        if same(carried[:-1]) and last_window == CARRY:
            return carried, [_carried(pending)], {}
        return flushed, [], {"window-dropped": _dropped(left, story)}
    if same(carried) or (pending and same(carried[:-1])):
        rest = 0 if same(carried) else pending
        if last_window == FLUSH:
            return flushed, [], {"window-carried-on": {"micro-batches left in .grad": rest}}
        return carried, [_carried(rest)], {}
    return None


def _carried(pending: int) -> str:
    left = f"; {pending} micro-batches wait in .grad at the end" if pending else ""
    return f"a short window is carried on into the next epoch{left}"


def _dropped(windows: Sequence[Window], story: Story) -> dict[str, float]:
    return {"windows": len(windows), "micro-batches": sum(map(len, windows))}


def _name(
    result: Windows,
    story: Story,
    void: set[Key],
    groups: list[tuple[int, Window]],
    windows: list[Window],
    k: int,
) -> None:
    """Name what the loop did where it follows no plan."""
    full = [(n, g) for n, g in groups if g]
    if not full:
        return
    alone = all(len(g) == 1 for _, g in full) and "cleared" not in story.lost.values()
    if k > 1 and alone and len(full) > 1:
        result.add("stepped-every-micro-batch", [n for n, _ in full if n], window=k)
        return
    expected = {tuple(key for key in w if key not in void) for w in windows}
    odd = [(n, g) for n, g in full if g not in expected]
    shift = _shifted(story, [g[-1] for _, g in full], k)
    if shift:
        ends = {"first step after": full[0][1][-1][1], "accumulation steps": k}
        result.add("boundary-off-by-one", [n for n, _ in odd if n], **ends)
        return
    explained = {use.key for t in story.updates if not t.fresh for use in t.meant}
    for number, group in odd:
        window = next(w for w in windows if group[-1] in w)
        others = [key for key in group if key not in window]
        missing = [key for key in window if key not in group and key not in void]
        tail = next((w for w in windows if others and others[-1] in w), ())
        # A tail may have lost its first micro-batches before it leaked.
        leaks = bool(others) and len(tail) < k and tuple(others) == tail[-len(others) :]
        if leaks and tail[0][0] < window[0][0]:
            result.add("window-leaked", [number], **{"micro-batches": len(group)})
            explained |= {*tail}
            others = []
        cleared = [key for key in missing if story.lost.get(key) == "cleared"]
        if cleared and cleared == missing and not others:
            result.add(EMPTIED, [number], **{"micro-batches lost": len(cleared)})
            explained |= {*cleared}
        elif missing or others:
            result.add("unexplained", [number], **{"micro-batches": len(group)})
    for window in windows:
        gone = [key for key in window if key in story.lost and key not in explained]
        gone = [key for key in gone if key not in void and story.lost[key] != "skipped"]
        at_the_end = window is windows[-1] and "window-leaked" in result.kinds
        if gone and gone == [key for key in window if key not in void] and not at_the_end:
            result.add("window-dropped", **{"micro-batches": len(gone)})


def _shifted(story: Story, ends: list[Key], k: int) -> bool:
    """Whether all steps come one micro-batch early or late, in each epoch or in the whole run."""
    numbers = {key: n for n, key in enumerate(story.items, 1)}
    if {e for e in ends if e[1] < story.lengths[e[0] - 1]} == _full_ends(story, k):
        return False
    by_epoch = [[p for e, p in ends if e == n] for n in range(1, len(story.lengths) + 1)]
    whole = [[numbers[key] for key in ends]]
    return any(
        all(_is_shifted(e, n, k) for e, n in zip(each, lengths, strict=True))
        for each, lengths in ((by_epoch, story.lengths), (whole, [sum(story.lengths)]))
    )


def _full_ends(story: Story, k: int) -> set[Key]:
    """Where windows of k end, but for those at the end of an epoch."""
    return {(e, p) for e, n in enumerate(story.lengths, 1) for p in range(k, n, k)}


def _is_shifted(ends: list[int], length: int, k: int) -> bool:
    def steps(first: int, every: int) -> set[int]:
        return {*range(first, length + 1, every)}

    patterns = [steps(1, k), steps(k + 1, k), steps(k + 1, k + 1)]
    if k > 2:
        patterns += [steps(k - 1, k), steps(k - 1, k - 1)]
    seen = {*ends}
    return k > 1 and any(seen - {length} == pattern - {length} for pattern in patterns)


def _epochs(places: Iterable[Key]) -> list[list[Key]]:
    epochs: dict[int, list[Key]] = {}
    for key in places:
        epochs.setdefault(key[0], []).append(key)
    return list(epochs.values())


def _chunks(parts: Iterable[Sequence[Key]], k: int) -> list[Window]:
    return [tuple(part[i : i + k]) for part in parts for i in range(0, len(part), k)]
