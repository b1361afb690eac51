"""A trace as a text table."""

from collections.abc import Iterable

from helpers.recorder.events import (
    Assign,
    Backward,
    BufferChange,
    Clear,
    Draw,
    Edit,
    Event,
    Forward,
    Log,
    Recomputation,
    Schedule,
    Step,
)


def table_of(events: Iterable[Event]) -> str:
    """The events as aligned text, one a line, under a heading."""
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
            source = f"forward {spans_of(event.forwards)}" if event.forwards else ""
            what = f"adds {event.added.norm:.4g}, then holds {event.held.norm:.4g}"
            return f"backward {event.number}", source, what
        case Edit():
            return "edit", "", f"gradient {event.before.norm:.4g} to {event.after.norm:.4g}"
        case Assign():
            return "assign", "", f"gradient {event.before.norm:.4g} to {event.after.norm:.4g}"
        case Clear():
            what = f"gradient {event.held.norm:.4g} to {'None' if event.to_none else 'zero'}"
            return "clear", _of(event), what + ("" if event.used else ", unused")
        case Step():
            rates = ", ".join(f"{rate:.4g}" for rate in event.learning_rates)
            what = f"gradient {event.gradient.norm:.4g}, lr {rates}, moves {event.change.norm:.4g}"
            return f"step {event.number}", _of(event), what
        case Schedule():
            old, new = (", ".join(f"{r:.4g}" for r in rates) for rates in (event.old, event.new))
            return "schedule", f"optimizer {event.optimizer}", f"lr {old} to {new}"
        case BufferChange():
            where = "in forward" if event.in_forward else "outside"
            return "buffers", where, ", ".join(event.buffers)
        case Log():
            return "log", "", ", ".join(f"{name} {x:.4g}" for name, x in event.values.items())


def _of(event: Clear | Step) -> str:
    """What its gradient was made of."""
    backwards = f"backward {spans_of(event.backwards)}" if event.backwards else ""
    parts = [backwards, "assigned" if event.assigned else ""]
    return " + ".join(filter(None, parts)) or "nothing"


def spans_of(numbers: tuple[int, ...]) -> str:
    """(1, 2, 3, 5) as "1-3, 5"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)
