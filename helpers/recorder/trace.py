"""The flight recorder: what a training loop does to weights, ``.grad``, buffers and learning rate.

``with record(model) as trace:`` around any loop, by hand or a library's. It watches through
PyTorch's hooks: on the module (forward), on each parameter (before and after a gradient is added)
and on all optimizers (before and after step). Clearing, clipping and learning rates have no hook:
they show as a difference from what was last seen, at the next event at the latest. The loop
computes the same, to the bit.

What it can't see: a scheduler's step that leaves the learning rate as it is, or that comes before
the optimizer's first step; a weight changed without an optimizer; a parameter frozen when the
recording begins; checkpointing inside the model, except in its buffers; outputs that the model
hands over one at a time, from a generator. A gradient that a hook on its accumulation node changes
(``Node.register_prehook``, set later than the recorder's own) shows as an edit, or not at all.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from numbers import Real
from typing import Any

from torch import Tensor, nn

from helpers.recorder.checks import check_limit, check_model
from helpers.recorder.events import Event, Pending, Step
from helpers.recorder.ledger import Ledger
from helpers.recorder.notes import Drawn, Logged, Notes
from helpers.recorder.reading import interpret
from helpers.recorder.table import table_of
from helpers.recorder.watch import Watch


def record(model: nn.Module, keep_vectors_up_to: int = 10_000) -> AbstractContextManager["Trace"]:
    """A context in which all that a loop does to ``model`` is written into the trace it yields.

    Args:
        model: has at least one parameter that requires a gradient.
        keep_vectors_up_to: whole gradients are kept where the model has at most this many
            trainable elements, about 16 bytes an element for each micro-batch. Of larger models
            norm and fingerprint only, and one copy of the weights while an optimizer steps.

    Raises:
        TypeError: ``model`` is no module, ``keep_vectors_up_to`` no whole number, or a parameter
            or buffer of a type that can't be read as numbers.
        ValueError: nothing in the model is trainable, ``keep_vectors_up_to`` is negative, or a
            parameter or buffer is sharded, on the meta device, or without a shape yet.
    """
    check_model(model)
    check_limit(keep_vectors_up_to)
    return _recording(model, keep_vectors_up_to)


@contextmanager
def _recording(model: nn.Module, keep_vectors_up_to: int) -> Iterator["Trace"]:
    trace = Trace(model, keep_vectors_up_to)
    try:
        trace._start()
        yield trace
    finally:
        trace._stop()


class Trace:
    """What was seen, in order; readable during the recording too, but not inside a backward."""

    def __init__(self, model: nn.Module, keep_vectors_up_to: int):
        trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
        buffers = dict(model.named_buffers())
        self._notes = Notes(
            names=tuple(trainable),
            buffer_names=tuple(buffers),
            gradients=Ledger(tuple(trainable.values()), keep_vectors_up_to),
            buffers=Ledger(tuple(buffers.values()), keep_vectors_up_to),
        )
        self._watch = Watch(model, self._notes)
        self._read: tuple[int, tuple[Event, ...], Pending] | None = None
        self._passes: dict[int, tuple[Iterable, int]] = {}
        self._recording = False

    def draws(self, items: Iterable) -> "_Draws":
        """``items`` (a DataLoader, any iterable), each item drawn recorded; keeps len()."""
        return _Draws(self, items)

    def log(self, **values: float | Tensor) -> None:
        """Put what the loop reports, as in ``trace.log(loss=loss)``, beside what it does.

        Raises:
            ValueError: a value is neither a real number nor a tensor that holds one.
        """
        for name, value in values.items():
            if not _is_number(value):
                raise ValueError(f"{name} must be a number or a tensor of one, got {value!r}")
        if self._recording:
            self._watch.look_around()
            self._notes.write(Logged({name: _copy(value) for name, value in values.items()}))

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything seen, in the order in which it was seen."""
        return self._reading()[0]

    @property
    def updates(self) -> tuple[Step, ...]:
        """One record for each optimizer step that ran."""
        return tuple(event for event in self.events if isinstance(event, Step))

    @property
    def pending(self) -> Pending:
        """What ``.grad`` holds in the end, and the backwards it came from."""
        return self._reading()[1]

    def table(self) -> str:
        """The events as aligned text; gradients and changes by their norms."""
        return table_of(self.events)

    def __str__(self) -> str:
        return self.table()

    def _reading(self) -> tuple[tuple[Event, ...], Pending]:
        if self._recording:
            self._watch.look_around()
        if self._read is None or self._read[0] != len(self._notes.written):
            self._read = (len(self._notes.written), *interpret(self._notes))
        return self._read[1:]

    def _start(self) -> None:
        self._watch.start()
        self._recording = True

    def _stop(self) -> None:
        self._watch.stop()
        self._recording = False
        self._passes = {}


class _Draws:
    """An iterable that tells a trace of each item it hands over, otherwise the one it wraps."""

    def __init__(self, trace: Trace, items: Iterable):
        self._trace, self._items = trace, items

    def __iter__(self) -> Iterator:
        # A loop may ask for draws(loader) anew in each epoch, so the trace counts the passes.
        _, epoch = self._trace._passes.get(id(self._items), (None, 0))
        epoch += 1
        self._trace._passes[id(self._items)] = (self._items, epoch)
        for position, item in enumerate(self._items, start=1):
            if self._trace._recording:
                self._trace._watch.look_around()
                self._trace._notes.write(Drawn(epoch, position))
            yield item

    def __len__(self) -> int:
        return len(self._items)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._items, name)


def _is_number(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.numel() == 1 and not value.is_complex()
    return isinstance(value, Real)


def _copy(value: float | Tensor) -> float | Tensor:
    return value.detach().clone() if isinstance(value, Tensor) else value
