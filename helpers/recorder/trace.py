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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from helpers.recorder.events import Event, Pending, Step
from helpers.recorder.ledger import Ledger, plain
from helpers.recorder.reading import interpret, table_of

# The number of the backward that runs on this thread. Not public, but a question and not a hook;
# torch.autograd.graph.register_multi_grad_hook asks it too, to tell one backward from the next.
_running_backward = torch._C._current_graph_task_id
NO_BACKWARD = -1


def record(model: nn.Module, keep_vectors_up_to: int = 10_000) -> AbstractContextManager["Trace"]:
    """A context in which all that a loop does to ``model`` is written into the trace it yields.

    Args:
        model: has at least one parameter that requires a gradient.
        keep_vectors_up_to: whole gradients are kept where the model has at most this many
            trainable elements, about 16 bytes an element for each micro-batch. Of larger models
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
        raise ValueError(f"keep_vectors_up_to must be at least 0, got {keep_vectors_up_to}")
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError(
            f"model must have a parameter that requires a gradient, got {type(model).__name__} "
            "with none"
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
        buffers = dict(model.named_buffers())
        self._model = model
        self._names, self._parameters = tuple(trainable), tuple(trainable.values())
        self._index = {id(p): i for i, p in enumerate(self._parameters)}
        self._gradients = Ledger(self._parameters, keep_vectors_up_to)
        self._buffer_names = tuple(buffers)
        # Moving a module replaces its buffers, so they are looked up anew each time.
        self._buffer_owners = [(model.get_submodule(n.rpartition(".")[0]), n) for n in buffers]
        self._buffers = Ledger(tuple(buffers.values()), keep_vectors_up_to)
        self._raw: list[Any] = []  # what the hooks saw; numbers are worked out when asked for
        self._read: tuple[int, tuple[Event, ...], Pending] | None = None
        self._hooks: list[Any] = []
        self._output_hooks: list[Any] = []
        self._rates: dict[Optimizer, tuple[float, ...]] = {}
        self._stepping: dict[Optimizer, tuple[list[int], list[Tensor]]] = {}
        self._passes: dict[int, tuple[Iterable, int]] = {}
        self._forwards = 0
        self._seen: list[tuple[int, int] | None] = [None] * len(trainable)
        self._recording = False
        self._await_backward()

    # For the reader.

    def draws(self, items: Iterable) -> "_Draws":
        """``items`` (a DataLoader, any iterable), each item drawn recorded; keeps len()."""
        return _Draws(self, items)

    def log(self, **values: float | Tensor) -> None:
        """Put what the loop reports, as in ``trace.log(loss=loss)``, beside what it does.

        Raises:
            ValueError: a value is neither a number nor a tensor that holds one.
        """
        for name, value in values.items():
            if not (value.numel() == 1 if isinstance(value, Tensor) else isinstance(value, Real)):
                raise ValueError(f"{name} must be a number or a tensor of one, got {value!r}")
        if self._recording:
            self._look_around()
            self._raw.append(("log", {name: _copy(value) for name, value in values.items()}))

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
            self._look_around()
        if self._read is None or self._read[0] != len(self._raw):
            self._read = (len(self._raw), *interpret(self))
        return self._read[1:]

    # Start and stop.

    def _start(self) -> None:
        add = self._hooks.append
        add(self._model.register_forward_pre_hook(_Hook(self._forward_begins), with_kwargs=True))
        add(self._model.register_forward_hook(_Hook(self._forward_ends)))
        for i, parameter in enumerate(self._parameters):
            add(parameter.register_hook(functools.partial(self._gradient_arrives, i)))
            added = functools.partial(self._gradient_added, i)
            add(parameter.register_post_accumulate_grad_hook(added))
        add(register_optimizer_step_pre_hook(self._step_begins))
        add(register_optimizer_step_post_hook(self._step_ends))
        self._recording = True
        self._look(whatever=True)
        self._look_at_buffers(in_forward=False)

    def _stop(self) -> None:
        for hook in (*self._hooks, *self._output_hooks):
            hook.remove()
        if self._recording:
            self._look_around(whatever=True)
            self._look_at_buffers(in_forward=False)
        self._recording = False
        self._rates, self._stepping, self._passes = {}, {}, {}

    # What the hooks call.

    def _forward_begins(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        if module is not self._model:  # a shallow copy shares its hooks
            return
        if _running_backward() != NO_BACKWARD:
            self._raw.append(("recomputation",))
            return
        self._look_around()
        self._look_at_buffers(in_forward=False)
        self._forwards += 1
        tensors = (a for a in (*args, *kwargs.values()) if isinstance(a, Tensor) and a.dim())
        samples = next(map(len, tensors), None)
        self._forward = ["forward", samples, torch.is_grad_enabled(), module.training, None]
        self._raw.append(self._forward)

    def _forward_ends(self, module: nn.Module, args: tuple, output: Any) -> None:
        if module is not self._model or _running_backward() != NO_BACKWARD:
            return
        self._look_at_buffers(in_forward=True)
        for name, tensor in _tensors_in(output):
            if name in ("", "loss") and not tensor.dim():
                self._forward[-1] = _copy(tensor)
            if tensor.requires_grad:
                passing = functools.partial(self._backward_passes, self._forwards)
                self._output_hooks.append(tensor.register_hook(passing))
        if len(self._output_hooks) > 1000:  # hooks of outputs that are gone went with them
            self._output_hooks = [h for h in self._output_hooks if h.hooks_dict_ref() is not None]

    def _backward_passes(self, forward: int, _: Tensor) -> None:
        running = _running_backward()
        if running != self._running:
            self._settle()
            self._running = running
        if forward not in self._passed:
            self._passed.append(forward)

    def _gradient_arrives(self, i: int, gradient: Tensor) -> None:
        # A reentrant checkpoint runs backwards of its own inside the one that passed the output.
        running = _running_backward()
        if self._fired[i] or (running != self._running and not self._passed):
            self._settle()
            self._running = running
        if self._held is None:
            nothing = self._look()
            self._rows = added, held = self._gradients.take(2)
            self._held = self._gradients.views(held)
            self._arriving = None if nothing else self._gradients.views(added)
        if self._arriving is not None:
            self._arriving[i].copy_(plain(gradient))

    def _gradient_added(self, i: int, parameter: Tensor) -> None:
        gradient = parameter.grad
        if gradient is not None and self._held is not None:
            self._held[i].copy_(plain(gradient))
            self._seen[i] = (id(gradient), gradient._version)
            self._fired[i] = True

    def _settle(self) -> None:
        """Close the last backward, if one is open: PyTorch has no hook for its end."""
        if self._held is not None and any(self._fired):
            added, held = self._rows
            added = held if self._arriving is None else added  # into an empty .grad: the same
            self._raw.append(
                ("backward", tuple(sorted(self._passed)), tuple(self._fired), added, held)
            )
        if self._held is not None or self._passed:
            self._await_backward()

    def _await_backward(self) -> None:
        self._running, self._passed = NO_BACKWARD, []
        self._fired = [False] * len(self._parameters)
        self._rows = self._arriving = self._held = None

    def _step_begins(self, optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
        groups = optimizer.param_groups
        owned = [self._index[id(p)] for g in groups for p in g["params"] if id(p) in self._index]
        if owned:
            self._look_around(whatever=True)
            self._rates.setdefault(optimizer, _learning_rates(optimizer))
            weights = [plain(self._parameters[i]).clone() for i in sorted(owned)]
            self._stepping[optimizer] = (sorted(owned), weights)

    def _step_ends(self, optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
        owned, weights = self._stepping.pop(optimizer, (None, None))
        if owned is None:
            return
        # A closure has run backwards of its own; a fused optimizer may have unscaled .grad.
        self._look_around(whatever=True)
        (row,) = self._gradients.take(1)
        views = self._gradients.views(row)
        for i, before in zip(owned, weights, strict=True):
            views[i].copy_(plain(self._parameters[i]) - before)
        number = list(self._rates).index(optimizer) + 1
        self._raw.append(("step", number, owned, self._rates[optimizer], row))

    # Looking for what has no hook.

    def _look_around(self, whatever: bool = False) -> None:
        self._settle()
        self._look(whatever)
        for number, (optimizer, old) in enumerate(self._rates.items(), start=1):
            new = _learning_rates(optimizer)
            if new != old:
                self._rates[optimizer] = new
                self._raw.append(("schedule", number, old, new))

    def _look(self, whatever: bool = False) -> bool:
        """Note ``.grad`` if it is not what was last seen, and say whether it is None throughout.

        Identity and version of the tensors tell, except for what goes past the version counter,
        such as ``.grad.data`` and a GradScaler: ``whatever`` has the values compared too.
        """
        gradients = [p.grad for p in self._parameters]
        seen = [None if g is None else (id(g), g._version) for g in gradients]
        nothing = not any(seen)
        if seen != self._seen or (whatever and not nothing):
            self._seen = seen
            row = None if nothing else self._gradients.write(gradients)
            self._raw.append(("look", row, tuple(g is None for g in gradients)))
        return nothing

    def _look_at_buffers(self, in_forward: bool) -> None:
        if self._buffer_owners:
            now = [getattr(m, n.rpartition(".")[2]) for m, n in self._buffer_owners]
            pairs = zip(now, self._buffers.tensors, strict=True)
            now = [b if b is not None and b.shape == before.shape else None for b, before in pairs]
            self._raw.append(("buffers", self._buffers.write(now), in_forward))


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
                self._trace._look_around()
                self._trace._raw.append(("draw", epoch, position))
            yield item

    def __len__(self) -> int:
        return len(self._items)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._items, name)


class _Hook:
    """A module's hook that falls silent in copies: a deep copy or a saved model is no longer it."""

    def __init__(self, call: Callable[..., None]):
        self._call = call

    def __call__(self, *args: Any) -> None:
        self._call(*args)

    def __reduce__(self) -> tuple:
        return (_Hook, (_do_nothing,))


def _do_nothing(*args: Any) -> None:
    """What a copied hook does."""


def _copy(value: float | Tensor) -> float | Tensor:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _tensors_in(output: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors a model handed back, one level deep, each with its key ("" outside a dict)."""
    if isinstance(output, Tensor):
        yield "", output
    elif isinstance(output, Mapping):
        yield from ((str(k), v) for k, v in output.items() if isinstance(v, Tensor))
    elif isinstance(output, (tuple, list)):
        yield from (("", v) for v in output if isinstance(v, Tensor))


def _learning_rates(optimizer: Optimizer) -> tuple[float, ...]:
    """One for each parameter group, 0 where it has none (Adafactor, which finds its own)."""
    return tuple(float(group.get("lr") or 0.0) for group in optimizer.param_groups)
