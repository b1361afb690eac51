"""What the hooks noted, turned into events."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
    Pending,
    Reading,
    Recomputation,
    Schedule,
    Step,
)
from helpers.recorder.ledger import Rows, roughness, same_vector
from helpers.recorder.notes import (
    Arrived,
    BuffersSeen,
    Called,
    Drawn,
    Logged,
    Looked,
    Note,
    Notes,
    Recomputed,
    Scheduled,
    StepBegan,
    Stepped,
)


@dataclass(frozen=True)
class Grad:
    """What is known of one parameter's ``.grad``."""

    row: int | None = None  # where it was last written down
    unclipped: int | None = None  # the same after the last backward
    absent: bool = True
    backwards: tuple[int, ...] = ()  # that are in it
    assigned: bool = False
    used: bool = False

    @property
    def full(self) -> bool:
        return bool(self.backwards) or self.assigned


def interpret(notes: Notes) -> tuple[tuple[Event, ...], Pending]:
    """The events that were noted, and what is left in ``.grad``."""
    interpreter = _Interpreter(notes)
    for note in notes.written:
        interpreter.read(note)
    return tuple(interpreter.events), interpreter.pending()


class _Interpreter:
    def __init__(self, notes: Notes):
        self.notes = notes
        self.reading, self.each = notes.gradients.reader()
        self.buffer_reading, self.each_buffer = notes.buffers.reader()
        self.rounding = [roughness(t.dtype) for t in notes.gradients.tensors]
        self.grads = [Grad() for _ in notes.names]
        self.events: list[Event] = []
        self.draws = self.steps = 0
        self.forward_losses: list[tuple[float, ...]] = []
        self.backward_losses: dict[int, tuple[float, ...]] = {}
        self.backward_at = 0  # where the last backward stands among the events
        self.added: Rows = {}
        self.held: Rows = {}
        self.buffer_row: int | None = None
        self.cleared: dict[int, Grad] | None = None  # during a step: what it cleared, as it was

    def read(self, note: Note) -> None:
        match note:
            case Drawn():
                self.draws += 1
                self.events.append(Draw(self.draws, note.epoch, note.position))
            case Called():
                self.called(note)
            case Recomputed():
                self.events.append(Recomputation())
            case Arrived():
                self.arrived(note)
            case Looked():
                self.looked(note)
            case StepBegan():
                self.cleared, self.before_step = {}, len(self.events)
            case Stepped():
                self.stepped(note)
            case Scheduled():
                self.events.append(Schedule(note.optimizer, note.old, note.new))
            case BuffersSeen():
                self.buffers_seen(note)
            case Logged():
                values = {name: float(value) for name, value in note.values.items()}
                self.events.append(Log(values, self.steps))

    def called(self, note: Called) -> None:
        loss = None if note.loss is None else float(note.loss)
        self.forward_losses.append(() if loss is None else (loss,))
        number = len(self.forward_losses)
        self.events.append(Forward(number, note.samples, note.with_grad, note.training, loss))

    def arrived(self, note: Arrived) -> None:
        before = self.rows()
        self.explain_gaps(note, before)
        number, first = note.backward, note.backward not in self.backward_losses
        if first:
            losses = sum((self.forward_losses[f - 1] for f in note.forwards), ())
            self.backward_losses[number] = losses
            self.backward_at = len(self.events)
            self.added, self.held = dict.fromkeys(before), self.rows()
            self.unseen, self.fired = set(), set()
        for i, (added, held) in note.rows.items():
            backwards = (*self.grads[i].backwards, number)
            self.change(i, row=held, absent=False, backwards=backwards, used=False)
            self.added[i], self.held[i] = added, held
            if added is None:
                self.unseen.add(i)
        self.fired |= note.rows.keys()
        for i in range(len(self.grads)):
            self.change(i, unclipped=self.grads[i].row)
        added = self.reading(self.added)
        if self.unseen:
            added = Reading(math.nan, math.nan)
        missing = self.named(i for i in self.added if i not in self.fired)
        backward = Backward(number, note.forwards, added, self.reading(self.held), missing)
        self.events[self.backward_at : self.backward_at + (not first)] = [backward]

    def explain_gaps(self, note: Arrived, before: Rows) -> None:
        """Fingerprints add up as gradients do; where not, ``.grad`` changed unseen in between."""
        rows = {i: rows for i, rows in note.rows.items() if rows[0] is not None}
        was = self.each({i: before[i] for i in rows})
        added = self.each({i: added for i, (added, _) in rows.items()})
        now = self.each({i: held for i, (_, held) in rows.items()})
        cleared, left = {}, {}
        for i, b, a, n in zip(rows, was, added, now, strict=True):
            allowed = self.rounding[i] * (b[0] + a[0] + n[0])
            if abs(b[1] + a[1] - n[1]) > allowed and allowed < math.inf:
                left[i] = n[1] - a[1]
                cleared[i] = abs(left[i]) <= allowed
        if left and all(cleared.values()):
            self.clear(list(left), to_none=False)
        elif left:
            others = {i: row for i, row in before.items() if i not in left}
            fingerprint = sum(left.values()) + sum(f for _, f in self.each(others))
            self.events.append(Edit(self.reading(before), Reading(math.nan, fingerprint)))

    def looked(self, note: Looked) -> None:
        everything = range(len(self.grads))
        now: Rows = dict.fromkeys(everything, note.row)
        before, after = self.each(self.rows()), self.each(now)
        if note.first:
            for i in everything:
                backwards = (0,) if after[i][0] else ()
                self.change(i, now[i], now[i], note.absent[i], backwards)
            return
        empty = [note.absent[i] or after[i][0] == 0 for i in everything]
        gone = [i for i in everything if empty[i]]
        gone = [i for i in gone if before[i][0] or note.absent[i] > self.grads[i].absent]
        changed = [i for i in everything if i not in gone and not same_vector(before[i], after[i])]
        came = {
            i: self.grads[j] if j is not None else None
            for i, j in note.replaced.items()
            if i in changed
        }
        if gone:
            # A gradient that was zero before shows no change, but went with the others.
            also = [i for i in everything if i in gone or (empty[i] and self.grads[i].full)]
            self.clear(gone, all(note.absent[i] for i in gone), also)
        assigned = [i for i in changed if i in came or not self.grads[i].full]
        edited = [i for i in changed if i not in assigned]
        if edited:
            rows = self.rows()
            for i in edited:
                self.change(i, row=note.row)
            self.events.append(Edit(self.reading(rows), self.reading(self.rows())))
        if assigned:
            self.assign(assigned, note.row, came)
        for i in everything:
            unclipped = now[i] if gone else self.grads[i].unclipped
            self.change(i, row=now[i], absent=note.absent[i], unclipped=unclipped)

    def assign(self, which: list[int], row: int | None, came: dict[int, Grad | None]) -> None:
        rows = self.rows()
        for i in which:
            other = came.get(i)
            if other is None:
                self.change(i, row=row, assigned=True, used=False)
            else:
                self.change(i, row, row, False, other.backwards, other.assigned, other.used)
        after = self.reading(self.rows())
        self.events.append(Assign(self.reading(rows), after, self.named(which)))

    def clear(self, which: list[int], to_none: bool, also: Sequence[int] = ()) -> None:
        grads = self.grads
        emptied = sorted({*which, *also})
        thrown = self.reading({i: grads[i].row for i in which})
        used = all(grads[i].used for i in which)
        assigned = any(grads[i].assigned for i in emptied)
        parameters = self.named(which)
        self.events.append(Clear(self.of(emptied), thrown, to_none, used, parameters, assigned))
        for i in emptied:
            if self.cleared is not None:
                self.cleared[i] = grads[i]
            self.change(i, row=None, backwards=(), assigned=False, used=False)

    def stepped(self, note: Stepped) -> None:
        grads = {i: self.grads[i] for i in note.owned}
        # What a step itself throws away, or a hook right after it, it has used before.
        inside = {i: g for i, g in self.cleared.items() if i in grads and not grads[i].full}
        grads |= inside
        self.cleared = None
        self.steps += 1
        backwards = _union(g.backwards for g in grads.values())
        losses = (self.backward_losses[b] for b in backwards if b)
        step = Step(
            self.steps,
            note.optimizer,
            backwards,
            losses=sum(losses, ()),
            before=self.reading({i: g.unclipped for i, g in grads.items()}),
            gradient=self.reading({i: g.row for i, g in grads.items()}),
            learning_rates=note.learning_rates,
            change=self.reading(dict.fromkeys(grads, note.row)),
            missing=self.named(i for i, g in grads.items() if g.absent),
            assigned=any(g.assigned for g in grads.values()),
            parameters=self.named(grads),
        )
        during = range(self.before_step, len(self.events))
        last = max((i for i in during if isinstance(self.events[i], Backward)), default=-1)
        names = set(self.named(inside))
        after = []
        for i in reversed(during):
            event = self.events[i]
            if i > last and isinstance(event, Clear) and names >= set(event.parameters):
                after.insert(0, dataclasses.replace(self.events.pop(i), used=True))
        self.events += [step, *after]
        for i in note.owned:
            self.change(i, used=True)

    def buffers_seen(self, note: BuffersSeen) -> None:
        names = self.notes.buffer_names
        before: Rows = dict.fromkeys(range(len(names)), self.buffer_row)
        now: Rows = dict.fromkeys(before, note.row)
        first, self.buffer_row = self.buffer_row is None, note.row
        if first:
            return
        states = zip(self.each_buffer(before), self.each_buffer(now), strict=True)
        which = [i for i, (old, new) in enumerate(states) if not same_vector(old, new)]
        if which:
            old, new = (self.buffer_reading({i: rows[i] for i in which}) for rows in (before, now))
            changed = tuple(names[i] for i in which)
            self.events.append(BufferChange(changed, note.in_forward, old, new))

    def pending(self) -> Pending:
        full = [grad for grad in self.grads if grad.full]
        return Pending(
            _union(grad.backwards for grad in full),
            self.reading(self.rows()),
            used=all(grad.used for grad in full),
            assigned=any(grad.assigned for grad in full),
        )

    def change(self, i: int, *values: object, **named: object) -> None:
        """Replace what is known of parameter ``i``'s ``.grad``: all, in order, or what is named."""
        self.grads[i] = Grad(*values) if values else dataclasses.replace(self.grads[i], **named)

    def rows(self) -> Rows:
        return {i: grad.row for i, grad in enumerate(self.grads)}

    def of(self, which: Iterable[int]) -> tuple[int, ...]:
        return _union(self.grads[i].backwards for i in which)

    def named(self, which: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.notes.names[i] for i in which)


def _union(numbers: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sorted(set().union(*numbers)))
