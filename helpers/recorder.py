"""The flight recorder: what a training loop does to weights, ``.grad``, buffers and learning rate.

``with record(model) as trace:`` around any loop, by hand or a library's. It watches through
PyTorch's public hooks: on the module (forward), on each parameter (before and after a gradient is
added) and on all optimizers (before and after step). Clearing, clipping and learning rates have no
hook: they show as a difference from what was last seen, at the next event at the latest. The loop
computes the same, to the bit.

What it can't see: a scheduler's step that leaves the learning rate as it is, or that comes before
the optimizer's first step; a weight changed without an optimizer; a parameter frozen when the
recording begins; sharded parameters (FSDP); checkpointing inside the model, except in its buffers.
"""

import functools
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

BLOCK_ROWS = 64
BLOCK_ELEMENTS = 2**22  # at most this many numbers wait to be measured; larger models don't wait
PROBED = 4096  # elements of a parameter that enter its fingerprint

# Which backward runs on this thread, -1 for none. Not public, but a question and no hook; asked by
# torch.autograd.graph.register_multi_grad_hook for the same reason: to tell one from the next.
_running_backward = torch._C._current_graph_task_id


@dataclass(frozen=True)
class Reading:
    """A gradient, or any other list of tensors, as one flat vector, as far as it is kept."""

    norm: float
    fingerprint: float  # the sum of the elements times cos(0), cos(1), ...: linear, with a sign
    vector: Tensor | None = field(default=None, repr=False, compare=False)  # in model order


@dataclass(frozen=True)
class Draw:
    """An item drawn from an iterable handed to :meth:`Trace.draws`. All numbers count from 1."""

    number: int
    epoch: int  # which pass over the iterable
    position: int  # in that pass


@dataclass(frozen=True)
class Forward:
    """A call of the model."""

    number: int
    samples: int | None  # length of the first tensor among the arguments
    with_grad: bool
    training: bool
    loss: float | None = None  # where the model hands back a scalar, or a dict with a scalar "loss"


@dataclass(frozen=True)
class Recomputation:
    """The model called again inside a backward: gradient checkpointing, not a new forward."""


@dataclass(frozen=True)
class Backward:
    """A completed backward that added to ``.grad`` of the model."""

    number: int
    forwards: tuple[int, ...]  # whose outputs it went through
    added: Reading
    held: Reading  # all of .grad after it
    missing: tuple[str, ...]  # parameters that got no gradient from it


@dataclass(frozen=True)
class Edit:
    """``.grad`` changed outside a backward, but not to nothing: clipped, unscaled, reduced."""

    before: Reading
    after: Reading


@dataclass(frozen=True)
class Clear:
    """``.grad`` of some parameters set to zero or None, by whatever means."""

    backwards: tuple[int, ...]  # whose gradients it held; 0 is from before the recording
    held: Reading  # what was cleared
    to_none: bool
    used: bool  # whether an optimizer had stepped with all of it
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """An optimizer step that ran (one that a GradScaler skips does not): an update.

    Readings cover those parameters of the model that the optimizer owns, in model order.
    """

    number: int
    optimizer: int  # in the order of their first steps
    backwards: tuple[int, ...]  # whose gradients it used; 0 is from before the recording
    losses: tuple[float, ...]  # of their forwards, as far as known
    before: Reading  # .grad after the last backward: before clipping and unscaling
    gradient: Reading  # .grad as the optimizer saw it
    learning_rates: tuple[float, ...]  # one for each parameter group
    change: Reading  # weights after the step minus before
    missing: tuple[str, ...]  # parameters it skipped because they had no gradient


@dataclass(frozen=True)
class Schedule:
    """An optimizer's learning rates changed."""

    optimizer: int
    old: tuple[float, ...]
    new: tuple[float, ...]


@dataclass(frozen=True)
class BufferChange:
    """Buffers changed (BatchNorm statistics): in a forward, or outside, as by a recomputation."""

    buffers: tuple[str, ...]
    in_forward: bool
    before: Reading
    after: Reading


@dataclass(frozen=True)
class Log:
    """What the loop itself reported through :meth:`Trace.log`, after ``updates`` updates."""

    values: dict[str, float]
    updates: int


@dataclass(frozen=True)
class Pending:
    """What is in ``.grad`` at the end, and the backwards it came from."""

    backwards: tuple[int, ...]
    held: Reading


Event = (
    Draw | Forward | Recomputation | Backward | Edit | Clear | Step | Schedule | BufferChange | Log
)


def record(
    model: nn.Module, keep_vectors_up_to: int = 10_000
) -> AbstractContextManager["Trace"]:
    """A context in which all that a loop does to ``model`` is written into the trace it yields.

    Args:
        model: has at least one parameter that requires a gradient. DistributedDataParallel adds
            its all-reduce after a backward, so it shows as an edit; pass the module inside it.
        keep_vectors_up_to: whole gradients are kept where the model has at most this many
            trainable elements, about 16 bytes an element for each micro-batch; of larger models
            norm and fingerprint only, and one copy of the weights while an optimizer steps.

    Raises:
        TypeError: ``model`` is no module, or ``keep_vectors_up_to`` no whole number.
        ValueError: nothing in the model is trainable, or ``keep_vectors_up_to`` is negative.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if isinstance(keep_vectors_up_to, bool) or not isinstance(keep_vectors_up_to, int):
        raise TypeError(f"keep_vectors_up_to must be a whole number, got {keep_vectors_up_to!r}")
    if keep_vectors_up_to < 0:
        raise ValueError(f"keep_vectors_up_to must be 0 or more, got {keep_vectors_up_to}")
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError(
            f"model must have trainable parameters, got {type(model).__name__} with none that "
            "requires a gradient"
        )
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
        self._model = model
        self._names, self._parameters = tuple(trainable), tuple(trainable.values())
        self._index = {id(p): i for i, p in enumerate(self._parameters)}
        self._buffers = dict(model.named_buffers())
        self._gradients = _Ledger(self._parameters, keep_vectors_up_to)
        self._buffer_states = _Ledger(tuple(self._buffers.values()), keep_vectors_up_to)
        self._raw: list[tuple] = []
        self._events: tuple[int, list[Event], Pending] | None = None
        self._hooks: list[Any] = []
        self._output_hooks: list[Any] = []
        self._rates: dict[Optimizer, tuple[float, ...]] = {}
        self._stepping: dict[Optimizer, tuple] = {}
        self._counts = {"draw": 0, "forward": 0}
        self._seen: list[tuple[int, int] | None] = [None] * len(trainable)
        self._recording = False
        self._no_backward()

    # What a reader asks for.

    def draws(self, items: Iterable) -> "Draws":
        """``items``, such as a DataLoader, with each item drawn from it recorded; keeps len()."""
        return Draws(self, items)

    def log(self, **values: float | Tensor) -> None:
        """Write what the loop reports (``trace.log(loss=loss)``) beside what it does.

        Raises:
            ValueError: a value is neither a number nor a tensor with one element.
        """
        for name, value in values.items():
            if not isinstance(value, (int, float)) and getattr(value, "numel", int)() != 1:
                raise ValueError(f"{name} must be a number or a tensor with one, got {value!r}")
        if self._recording:
            self._look_around()
            noted = {n: v.detach().clone() if n and isinstance(v, Tensor) else v
                     for n, v in values.items()}
            self._raw.append(("log", noted))

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything seen, in the order in which it was seen."""
        return tuple(self._read()[1])

    @property
    def updates(self) -> tuple[Step, ...]:
        """One record for each optimizer step that ran."""
        return tuple(event for event in self._read()[1] if isinstance(event, Step))

    @property
    def pending(self) -> Pending:
        """What ``.grad`` holds at the end."""
        return self._read()[2]

    def table(self) -> str:
        """The events as aligned text, gradients and changes by their norms."""
        return _table(self.events)

    __str__ = table

    # What the hooks call.

    def _start(self) -> None:
        add = self._hooks.append
        add(self._model.register_forward_pre_hook(_Hook(self._forward_begins), with_kwargs=True))
        add(self._model.register_forward_hook(_Hook(self._forward_ends)))
        for i, parameter in enumerate(self._parameters):
            add(parameter.register_hook(functools.partial(self._arriving, i)))
            add(parameter.register_post_accumulate_grad_hook(functools.partial(self._added, i)))
        add(register_optimizer_step_pre_hook(self._step_begins))
        add(register_optimizer_step_post_hook(self._step_ends))
        self._recording = True
        self._look(whatever=True)
        self._look_at_buffers(False)

    def _stop(self) -> None:
        for hook in (*self._hooks, *self._output_hooks):
            hook.remove()
        if self._recording:
            self._look_around(whatever=True)
            self._look_at_buffers(False)
        self._recording = False
        self._rates, self._stepping, self._seen = {}, {}, []

    def _forward_begins(self, _: nn.Module, args: tuple, kwargs: dict) -> None:
        if _running_backward() != -1:
            self._raw.append(("recomputation",))
            return
        self._look_around()
        self._look_at_buffers(False)
        self._counts["forward"] += 1
        tensors = (a for a in (*args, *kwargs.values()) if isinstance(a, Tensor) and a.dim())
        samples = next(map(len, tensors), None)
        self._raw.append(["forward", samples, torch.is_grad_enabled(), self._model.training, None])

    def _forward_ends(self, _: nn.Module, args: tuple, output: Any) -> None:
        if _running_backward() != -1:
            return
        number = self._counts["forward"]
        self._look_at_buffers(True)
        for name, tensor in _tensors(output):
            if not tensor.dim() and name in ("", "loss"):
                self._loss(number, tensor)
            if tensor.requires_grad:
                hook = functools.partial(self._passing, number)
                self._output_hooks.append(tensor.register_hook(hook))
        if len(self._output_hooks) > 1000:  # those of tensors that are gone need no removal
            self._output_hooks = [h for h in self._output_hooks if h.hooks_dict_ref() is not None]
