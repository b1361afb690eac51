"""What the hooks noted, turned into events and a text table."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from helpers.recorder.events import (
    Backward,
    BufferChange,
    Clear,
    Draw,
    Edit,
    Event,
    Forward,
    Log,
    Pending,
    Reading,
    Recomputation,
    Schedule,
    Step,
)
from helpers.recorder.ledger import Rows

if TYPE_CHECKING:
    from helpers.recorder.trace import Trace


def interpret(trace: "Trace") -> tuple[tuple[Event, ...], Pending]:
    """What the hooks noted, turned into events, and what is left in ``.grad``."""
    reading, each = trace._gradients.reader()
    buffers, each_buffer = trace._buffers.reader()
    everything = range(len(trace._names))
    roughness = [_roughness(p.dtype) for p in trace._parameters]
    events: list[Event] = []
    numbers = dict.fromkeys(("draw", "forward", "backward", "step"), 0)
    held: Rows = dict.fromkeys(everything)  # where .grad of each parameter was last written down
    unclipped: Rows = dict(held)  # the same after the last backward
    buffer_rows: Rows = {}
    absent = [True] * len(everything)  # whose .grad is None
    contents: list[tuple[int, ...]] = [()] * len(everything)  # backwards in each .grad
    used = [False] * len(everything)
    losses: dict[tuple[str, int], tuple[float, ...]] = {}

    def of(which: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted(set().union(*(contents[i] for i in which))))

    def named(which: Iterable[int]) -> tuple[str, ...]:
        return tuple(trace._names[i] for i in which)

    def clear(which: list[int], to_none: bool, empty: Sequence[bool]) -> None:
        # A gradient that was zero before shows no change, but went with the others.
        emptied = [i for i in everything if i in which or (empty[i] and contents[i])]
        thrown, all_used = reading({i: held[i] for i in which}), all(used[i] for i in which)
        events.append(Clear(of(emptied), thrown, to_none, all_used, named(which)))
        for i in emptied:
            contents[i], used[i], held[i] = (), False, None

    for kind, *seen in trace._raw:
        if kind in numbers:
            numbers[kind] += 1
            number = numbers[kind]
        if kind == "draw":
            events.append(Draw(number, *seen))
        elif kind == "forward":
            samples, with_grad, training, loss = seen
            losses[kind, number] = () if loss is None else (float(loss),)
            events.append(Forward(number, samples, with_grad, training, *losses[kind, number]))
        elif kind == "recomputation":
            events.append(Recomputation())
        elif kind == "backward":
            forwards, fired, added_row, row = seen
            filled = [i for i in everything if fired[i]]
            added: Rows = {i: added_row if fired[i] else None for i in everything}
            now: Rows = {i: row if fired[i] else held[i] for i in everything}
            # Fingerprints add up as gradients do; where not, .grad changed unseen in between.
            was = zip(each(held), each(added), each(now), strict=True)
            gaps = [(b[1] + a[1] - n[1], n[1] - a[1], b[0] + a[0] + n[0]) for b, a, n in was]
            odd = [i for i in filled if abs(gaps[i][0]) > roughness[i] * gaps[i][2] < math.inf]
            if odd and all(abs(gaps[i][1]) <= roughness[i] * gaps[i][2] for i in odd):
                clear(odd, False, [False] * len(everything))
            elif odd:
                left = sum(gap[1] for gap in gaps)
                events.append(Edit(reading(held), Reading(math.nan, left)))
            for i in filled:
                contents[i], used[i], absent[i] = (*contents[i], number), False, False
            held, unclipped = now, dict(now)
            losses[kind, number] = sum((losses["forward", f] for f in forwards), ())
            missing = named(i for i in everything if not fired[i])
            events.append(Backward(number, forwards, reading(added), reading(held), missing))
        elif kind == "look":
            row, now_absent = seen
            now = dict.fromkeys(everything, row)
            before, after = each(held), each(now)
            empty = [now_absent[i] or after[i][0] == 0 for i in everything]
            gone = [
                i for i in everything if empty[i] and (before[i][0] or now_absent[i] > absent[i])
            ]
            changed = [i for i in everything if i not in gone and not _same(before[i], after[i])]
            first = not events
            if gone:
                clear(gone, all(now_absent[i] for i in gone), empty)
            if changed and not first:
                events.append(Edit(reading(held), reading(now)))
            for i in changed:
                contents[i] = contents[i] or (0,)
            held, absent = now, list(now_absent)
            unclipped = dict(now) if gone or first else unclipped
        elif kind == "step":
            optimizer, owned, rates, row = seen
            backwards = of(owned)
            step = Step(
                number,
                optimizer,
                backwards,
                losses=sum((losses["backward", b] for b in backwards if b), ()),
                before=reading({i: unclipped[i] for i in owned}),
                gradient=reading({i: held[i] for i in owned}),
                learning_rates=rates,
                change=reading(dict.fromkeys(owned, row)),
                missing=named(i for i in owned if absent[i]),
            )
            events.append(step)
            for i in owned:
                used[i] = True
        elif kind == "schedule":
            events.append(Schedule(*seen))
        elif kind == "buffers":
            row, in_forward = seen
            now = dict.fromkeys(range(len(trace._buffer_names)), row)
            states = zip(each_buffer(buffer_rows or now), each_buffer(now), strict=True)
            which = [i for i, (before, after) in enumerate(states) if not _same(before, after)]
            if which:
                names = tuple(trace._buffer_names[i] for i in which)
                before, after = ({i: rows[i] for i in which} for rows in (buffer_rows, now))
                events.append(BufferChange(names, in_forward, buffers(before), buffers(after)))
            buffer_rows = now
        elif kind == "log":
            values = {name: float(value) for name, value in seen[0].items()}
            events.append(Log(values, updates=numbers["step"]))
    all_used = all(used[i] for i in everything if contents[i])
    return tuple(events), Pending(of(everything), reading(held), all_used)


def _same(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether two (norm, fingerprint) are one vector's, but for the order of summation."""
    nearby = 1e-6 * abs(a[0]) if math.isfinite(a[0]) else 0.0
    pairs = zip(a, b, strict=True)
    return all(x == y or abs(x - y) <= nearby or (x != x and y != y) for x, y in pairs)


def _roughness(dtype: torch.dtype) -> float:
    """How far, relative to their norms, a sum of gradients may be off by rounding alone."""
    return max(1e-4, 2 * torch.finfo(dtype).eps)


def table_of(events: Iterable[Event]) -> str:
    lines = [("event", "of", ""), *map(_line, events)]
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    padded = (f"{a.ljust(widths[0])}  {b.ljust(widths[1])}  {c}".rstrip() for a, b, c in lines)
    return "\n".join(padded)


def _line(event: Event) -> tuple[str, str, str]:
    """An event in a table: which, of what, and its numbers."""
    match event:
        case Draw():
            return f"draw {event.number}", f"pass {event.epoch}", f"item {event.position}"
        case Forward():
            samples = "" if event.samples is None else f"samples: {event.samples}"
            loss = "" if event.loss is None else f"loss {event.loss:.4g}"
            return f"forward {event.number}", samples, loss if event.with_grad else "no gradient"
        case Recomputation():
            return "recomputation", "", ""
        case Backward():
            source = f"forward {_spans(event.forwards)}" if event.forwards else ""
            what = f"adds {event.added.norm:.4g}, then holds {event.held.norm:.4g}"
            return f"backward {event.number}", source, what
        case Edit():
            return "edit", "", f"gradient {event.before.norm:.4g} to {event.after.norm:.4g}"
        case Clear():
            what = f"gradient {event.held.norm:.4g} to {'None' if event.to_none else 'zero'}"
            return "clear", _of(event.backwards), what + ("" if event.used else ", unused")
        case Step():
            rates = ", ".join(f"{rate:.4g}" for rate in event.learning_rates)
            what = f"gradient {event.gradient.norm:.4g}, lr {rates}, moves {event.change.norm:.4g}"
            return f"step {event.number}", _of(event.backwards), what
        case Schedule():
            old, new = (", ".join(f"{r:.4g}" for r in rates) for rates in (event.old, event.new))
            return "schedule", f"optimizer {event.optimizer}", f"lr {old} to {new}"
        case BufferChange():
            where = "in forward" if event.in_forward else "outside"
            return "buffers", where, ", ".join(event.buffers)
        case Log():
            return "log", "", ", ".join(f"{name} {x:.4g}" for name, x in event.values.items())


def _of(backwards: tuple[int, ...]) -> str:
    return f"backward {_spans(backwards)}" if backwards else "nothing"


def _spans(numbers: tuple[int, ...]) -> str:
    """(1, 2, 3, 5) as "1-3, 5"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)
