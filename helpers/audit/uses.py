"""What became of each micro-batch in the loop: which backward took it, which update used it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from helpers.audit.batches import fingerprints
from helpers.audit.objective import Objective
from helpers.audit.running import Run, Seen
from helpers.recorder import Backward, Clear, Draw, Edit, Event, Forward, Step

Key = tuple[int, int]  # epoch and position in it, both from 1


@dataclass(frozen=True, eq=False)
class Item:
    """A micro-batch, and what ``loss`` gives the model for it."""

    batch: Any
    contents: frozenset[int]
    inputs: tuple[frozenset[int], ...]  # of each call of the model
    void: bool  # no elements, or no finite loss


@dataclass(frozen=True)
class Use:
    """A micro-batch that the loop ran the model on to get a gradient."""

    key: Key
    item: Item
    forwards: tuple[int, ...]
    backward: int | None  # None where the gradient came about unseen
    at: int  # where among the events its first forward stands
    back: int  # where its backward stands
    strange: bool = False  # whether the model was given other data than the micro-batch's


@dataclass
class Taken:
    """An update: one step, or the steps of several optimizers at once."""

    number: int
    steps: list[Step]
    at: int  # where among the events it stands
    fresh: list[Use] = field(default_factory=list)  # used here first
    emptied: list[Use] = field(default_factory=list)  # cleared since the update before, unused
    reused: tuple[int, ...] = ()  # backwards that an earlier update had used
    edits: list[Edit] = field(default_factory=list)  # inside the window
    skipped: bool = False  # not taken: its gradient was not finite, and a scaler left it out

    @property
    def meant(self) -> list[Use]:
        """What it used; if nothing at all, what was cleared before it could."""
        return self.fresh or ([] if self.reused else self.emptied)


@dataclass
class Story:
    """The whole run, as micro-batches and updates."""

    uses: list[Use]
    updates: list[Taken]
    skipped: list[Taken]
    lengths: list[int]  # micro-batches that each epoch has to offer
    items: dict[Key, Item]  # what stands at each place
    lost: dict[Key, str]  # micro-batches that no update used, and what became of them
    strangers: list[int]  # backwards of data that is in no micro-batch
    drawn: dict[Key, Item]  # what the loop drew from ``batches`` itself
    backwards: dict[int, Backward]


def known_items(objective: Objective, batches: Iterable) -> list[Item]:
    """The micro-batches of an epoch, each with what ``loss`` gives the model for it."""
    return [_item(objective, batch) for batch in batches]


def _item(objective: Objective, batch: Any) -> Item:
    with torch.enable_grad():
        losses, _ = objective.elements(batch)
    void = not losses.numel() or not bool(losses.isfinite().all())
    return Item(batch, fingerprints(batch), tuple(objective.inputs), void)


class _Teller:
    def __init__(self, run: Run, items: list[Item], objective: Objective, in_order: bool, k: int):
        self.k = k
        self.run, self.known, self.objective = run, list(items), objective
        self.reference, self.in_order = items, in_order
        self.events = run.trace.events
        self.draws: list[tuple[Key, Item]] = []  # not yet used
        self.drawn: dict[Key, Item] = {}
        self.last: Key = (1, 0)
        self.at: dict[int, int] = {}  # where each forward stands
        self.waiting: list[int] = []  # forwards since the last update, without a backward
        self.story = Story([], [], [], [], {}, {}, [], {}, {})
        self.first_use: dict[int, int] = {}  # backward to the update that used it first
        self.of_backward: dict[int, list[Use]] = {}
        self.inner_edits: list[Edit] = []  # since the last update
        self.emptied: list[Use] = []  # likewise

    def tell(self) -> Story:
        for place, event in enumerate(self.events):
            match event:
                case Draw():
                    item = self.item_of(*self.run.drawn[event.number - 1], event.position)
                    self.draws.append(((event.epoch, event.position), item))
                    self.drawn[event.epoch, event.position] = item
                case Forward(with_grad=True):
                    self.at[event.number] = place
                    self.waiting.append(event.number)
                case Backward():
                    self.backward(event, place)
                case Step():
                    self.step(event, place)
                case Clear(used=False):
                    self.cleared(event, place)
                case Edit():
                    self.edit(event, place)
        self.finish()
        return self.story

    def item_of(self, contents: frozenset[int], batch: Any, position: int) -> Item:
        """A drawn item among those that are known; a shuffling loader hands over new ones."""
        same = [item for item in self.known if item.contents == contents]
        at_place = self.reference[position - 1 : position]
        if same:
            return at_place[0] if at_place and at_place[0] in same else same[0]
        item = _item(self.objective, batch)
        self.known.append(item)
        return item

    def backward(self, event: Backward, place: int) -> None:
        self.story.backwards[event.number] = event
        forwards = [f for f in event.forwards if f in self.run.forwards]
        self.waiting = [f for f in self.waiting if f not in forwards]
        uses = self.uses_of(forwards, event.number, place)
        if uses is None:
            self.story.strangers.append(event.number)
            uses = self.guessed(forwards, event.number, place)
        self.of_backward[event.number] = uses
        self.story.uses += uses

    def uses_of(self, forwards: list[int], backward: int | None, place: int) -> list[Use] | None:
        """The micro-batches that these forwards ran on, None where they are not known."""
        if not forwards:
            if not self.draws:
                return None
            key, item = self.draws.pop()
            return [Use(key, item, (), backward, place, place)]
        uses, rest = [], list(forwards)
        while rest:
            fits = [i for i in self.known if _fits(i.inputs, [self.run.forwards[f] for f in rest])]
            if not fits:
                return None
            key, item = self.place_of(fits)
            taken, rest = rest[: len(item.inputs)], rest[len(item.inputs) :]
            uses.append(Use(key, item, tuple(taken), backward, self.at[taken[0]], place))
        return uses

    def guessed(self, forwards: list[int], backward: int, place: int) -> list[Use]:
        """The micro-batch that is due, where nothing tells which one it was."""
        due = [item for _, item in self.draws[:1]] or self.known
        key, item = self.place_of(due)
        at = min((self.at[f] for f in forwards), default=place)
        return [Use(key, item, tuple(forwards), backward, at, place, strange=True)]

    def place_of(self, fits: list[Item]) -> tuple[Key, Item]:
        """Which of the items that fit it is, and its place in the run."""
        for number, (key, item) in enumerate(self.draws):
            if any(item is f for f in fits):
                del self.draws[number]
                self.last = key
                return key, item
        epoch, position = self.last
        sequence = self.sequence()
        expected = sequence[position % len(sequence)]
        item = expected if any(expected is f for f in fits) else fits[0]
        at = next((n for n, i in enumerate(sequence, 1) if i is item), position + 1)
        self.last = (epoch if at > position else epoch + 1, at)
        return self.last, item

    def sequence(self) -> list[Item]:
        """The micro-batches of an epoch that the loop does not draw anew."""
        last = max((epoch for epoch, _ in self.drawn), default=0)
        return [item for (epoch, _), item in self.drawn.items() if epoch == last] or self.reference

    def step(self, event: Step, place: int) -> None:
        updates = self.story.updates
        if updates and _goes_with(event, updates[-1], self.events[updates[-1].at : place]):
            updates[-1].steps.append(event)
            taken = updates[-1]
        else:
            taken = Taken(len(updates) + 1, [event], place)
            updates.append(taken)
            taken.edits, self.inner_edits = self.inner_edits, []
            taken.emptied, self.emptied = self.emptied, []
        fresh = [b for b in event.backwards if self.first_use.get(b, taken.number) == taken.number]
        taken.reused = tuple(
            sorted({*taken.reused, *(b for b in event.backwards if b not in fresh)})
        )
        for backward in fresh:
            if backward not in self.first_use:
                self.first_use[backward] = taken.number
                taken.fresh += self.of_backward.get(backward, [])
        if event.assigned:
            uses = self.uses_of(self.waiting, None, place) or []
            taken.fresh += uses
            self.story.uses += uses
        self.waiting = []

    def cleared(self, event: Clear, place: int) -> None:
        lost = [b for b in event.backwards if b not in self.first_use]
        uses = [u for b in lost for u in self.of_backward.get(b, [])]
        finite = event.held.norm - event.held.norm == 0
        for use in uses:
            self.story.lost.setdefault(use.key, "cleared" if finite else "skipped")
        if finite:
            self.emptied += uses
        elif uses:
            self.story.skipped.append(Taken(0, [], place, uses, skipped=True))

    def edit(self, event: Edit, place: int) -> None:
        after = self.events[place + 1 :]
        until = next((e for e in after if isinstance(e, (Backward, Step))), None)
        if isinstance(until, Backward):
            self.inner_edits.append(event)

    def finish(self) -> None:
        story = self.story
        story.uses.sort(key=lambda use: use.at)
        story.lengths, story.items = self.places()
        story.drawn = self.drawn
        used = {u.key for t in story.updates for u in t.fresh}
        ran = {u.key for u in story.uses}
        for key in story.items:
            if key not in used and key not in story.lost:
                story.lost[key] = "pending" if key in ran else "unused"

    def places(self) -> tuple[list[int], dict[Key, Item]]:
        """How many micro-batches each epoch has, and the item at each place."""
        drawn = max((epoch for epoch, _ in self.drawn), default=0)
        lengths = [max(p for e, p in self.drawn if e == n) for n in range(1, drawn + 1)]
        items, sequence = dict(self.drawn), self.sequence()
        keys = [use.key for use in self.story.uses]
        epochs = max((epoch for epoch, _ in keys), default=0)
        for epoch in range(drawn + 1, epochs + 1):  # over a list of its own, or out of sight
            last = max((p for e, p in keys if e == epoch), default=0)
            lengths.append(last if epoch == epochs else len(sequence))
        if self.in_order or not drawn:
            unread = len(self.reference) - min(lengths, default=0)
            if len(set(lengths)) == 1 and 0 < unread < self.k:
                lengths = [len(self.reference)] * len(lengths)  # it leaves out a short window
            sequence, items = self.reference, {}
        for epoch, length in enumerate(lengths, 1):
            for position in range(1, min(length, len(sequence)) + 1):
                items.setdefault((epoch, position), sequence[position - 1])
        return lengths, items


def story_of(run: Run, items: list[Item], objective: Objective, in_order: bool, k: int) -> Story:
    """What the loop did with which micro-batch. ``in_order``: ``batches`` has one fixed order."""
    return _Teller(run, items, objective, in_order, k).tell()


def _fits(inputs: Sequence[frozenset[int]], seen: Sequence[Seen]) -> bool:
    if not inputs or len(inputs) > len(seen):
        return False
    pairs = zip(inputs, (s.inputs for s in seen), strict=False)
    return all(a and b and (a <= b or b <= a) for a, b in pairs)


def _goes_with(step: Step, update: Taken, since: Sequence[Event]) -> bool:
    """Whether a step is part of an update: of other parameters, with no backward in between."""
    owned = {name for s in update.steps for name in s.parameters}
    return owned.isdisjoint(step.parameters) and not any(isinstance(e, Backward) for e in since)
