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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from numbers import Real
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

# The number of the backward that runs on this thread. Not public, but a question and not a hook;
# torch.autograd.graph.register_multi_grad_hook asks it too, to tell one backward from the next.
_running_backward = torch._C._current_graph_task_id
NO_BACKWARD = -1


@dataclass(frozen=True)
class Reading:
    """A gradient, or any other list of tensors, as one flat vector, as far as it is kept."""

    norm: float
    # Tensor number i adds its elements times cos(i), cos(i + 1), ...; of one with more than PROBED
    # elements, evenly spaced ones. It has a sign, and adds up as the vectors do.
    fingerprint: float
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

    backwards: tuple[int, ...]  # 0 is from before the recording
    held: Reading
    used: bool  # whether an optimizer had stepped with all of it


Event = (
    Draw | Forward | Recomputation | Backward | Edit | Clear | Step | Schedule | BufferChange | Log
)

Rows = dict[int, int | None]  # for each tensor the row in which it stands, None for zeros


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
        self._gradients = _Ledger(self._parameters, keep_vectors_up_to)
        self._buffer_names = tuple(buffers)
        # Moving a module replaces its buffers, so they are looked up anew each time.
        self._buffer_owners = [(model.get_submodule(n.rpartition(".")[0]), n) for n in buffers]
        self._buffers = _Ledger(tuple(buffers.values()), keep_vectors_up_to)
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
        return _table(self.events)

    def __str__(self) -> str:
        return self.table()

    def _reading(self) -> tuple[tuple[Event, ...], Pending]:
        if self._recording:
            self._look_around()
        if self._read is None or self._read[0] != len(self._raw):
            self._read = (len(self._raw), *_interpret(self))
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
            self._arriving[i].copy_(_plain(gradient))

    def _gradient_added(self, i: int, parameter: Tensor) -> None:
        gradient = parameter.grad
        if gradient is not None and self._held is not None:
            self._held[i].copy_(_plain(gradient))
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
            weights = [_plain(self._parameters[i]).clone() for i in sorted(owned)]
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
            views[i].copy_(_plain(self._parameters[i]) - before)
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


class _Ledger:
    """Rows with a place for each tensor, filled at one moment, measured many rows at a time.

    The rows of a model too large to wait take each tensor's norm and fingerprint at once.
    """

    def __init__(self, tensors: tuple[Tensor, ...], keep_up_to: int):
        self.tensors = tensors
        self.sizes = [t.numel() for t in tensors]
        dtypes = (t.dtype for t in tensors)
        self.dtype = functools.reduce(torch.promote_types, dtypes, torch.float32)
        self.keep = sum(self.sizes) <= keep_up_to
        self.rows: list[list[Any]] = []
        self.first = self.used = 0  # number of the block's first row, rows taken in it
        self.measured: list[Tensor] = []  # blocks of shape (rows, tensors, 2)
        self.kept: list[Tensor] = []

    def take(self, count: int) -> range:
        """The numbers of ``count`` rows to be filled before the next are taken."""
        if not self.rows:
            self._lay_out()
        if self.used + count > len(self.rows):
            self._measure_block()
        start = self.first + self.used
        self.used += count
        return range(start, start + count)

    def views(self, row: int) -> list[Any]:
        """The places in a row, one for each tensor."""
        return self.rows[row - self.first]

    def write(self, tensors: Iterable[Tensor | None]) -> int:
        """Fill a new row, None as zeros; returns its number."""
        (row,) = self.take(1)
        for view, tensor in zip(self.rows[row - self.first], tensors, strict=True):
            if tensor is None or tensor.numel() == 0:
                view.zero_()
            else:
                view.copy_(_plain(tensor))
        return row

    def _lay_out(self) -> None:
        # Late, so that the rows lie where the model lies once the loop has moved it.
        device, dtype, shapes = self.tensors[0].device, self.dtype, [t.shape for t in self.tensors]
        self.patterns = [_pattern(size, i, dtype, device) for i, size in enumerate(self.sizes)]
        fitting = min(BLOCK_ROWS, BLOCK_ELEMENTS // max(1, sum(self.sizes)))
        self.block = None
        with torch.inference_mode(False):
            if fitting >= 4:
                self.block = torch.zeros(fitting, sum(self.sizes), dtype=dtype, device=device)
                for row in self.block:
                    parts = zip(row.split(self.sizes), shapes, strict=True)
                    self.rows.append([part.view(shape) for part, shape in parts])
            else:
                strides = map(_stride, self.sizes)
                probes = list(zip(self.patterns, strides, strict=True))
                self.rows = [[_Probe(*probe) for probe in probes] for _ in range(BLOCK_ROWS)]

    @torch.no_grad()
    def _measure_block(self) -> None:
        if self.block is None:
            readings = [probe.reading for row in self.rows[: self.used] for probe in row]
            table = torch.stack(readings).view(self.used, -1, 2)
        else:
            parts = zip(
                self.block[: self.used].split(self.sizes, dim=1), self.patterns, strict=True
            )
            table = torch.stack([_measure(part, pattern) for part, pattern in parts], dim=1)
            if self.keep:
                self.kept.append(self.block[: self.used].clone())
        self.measured.append(table)
        self.first, self.used = self.first + self.used, 0

    def reader(self) -> tuple[Callable[[Rows], Reading], Callable[[Rows], list]]:
        """What to ask about one row (None: zeros) for each tensor: all in one, and one by one."""
        if self.used:
            self._measure_block()
        numbers = [row for table in self.measured for row in table.tolist()]
        vectors = [row.split(self.sizes) for block in self.kept for row in block]

        def each(rows: Rows) -> list[tuple[float, float]]:
            return [(0.0, 0.0) if r is None else numbers[r][i] for i, r in rows.items()]

        def together(rows: Rows) -> Reading:
            norms, fingerprints = zip(*each(rows), strict=True)
            vector = None
            if self.keep:
                parts = (
                    torch.zeros(self.sizes[i], dtype=self.dtype, device=self.tensors[0].device)
                    if row is None
                    else vectors[row][i]
                    for i, row in rows.items()
                )
                vector = torch.cat(list(parts))
            return Reading(math.hypot(*norms), sum(fingerprints), vector)

        return together, each


class _Probe:
    """Stands in for a row's view of one large tensor, and takes its measure instead of a copy."""

    def __init__(self, pattern: Tensor, stride: int):
        self.pattern, self.stride = pattern, stride
        self.zero_()

    def copy_(self, source: Tensor) -> None:
        pattern = self.pattern.to(source.device)
        numbers = source if source.is_floating_point() else source.to(pattern.dtype)
        norm = torch.linalg.vector_norm(numbers, dtype=pattern.dtype)
        # take() reads a transposed gradient in place, where flattening would copy it whole.
        probed = numbers.take(torch.arange(len(pattern), device=source.device) * self.stride)
        fingerprint = (probed.to(pattern.dtype) * pattern).sum()
        self.reading = torch.stack((norm, fingerprint)).to(self.pattern.device)

    def zero_(self) -> None:
        self.reading = self.pattern.new_zeros(2)


def _pattern(size: int, shift: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """What the probed elements of tensor number ``shift`` are multiplied by: cosines, from 1 on."""
    probed = len(range(0, size, _stride(size)))
    return (torch.arange(probed, dtype=torch.float64, device="cpu") + shift).cos().to(device, dtype)


def _measure(flat: Tensor, pattern: Tensor) -> Tensor:
    """Norm and fingerprint of the last dimension of ``flat``, shape (..., 2)."""
    norm = torch.linalg.vector_norm(flat, dim=-1, dtype=pattern.dtype)
    probed = flat[..., :: _stride(flat.shape[-1])].to(pattern.dtype)
    return torch.stack((norm, (probed * pattern).sum(-1)), dim=-1)


def _stride(size: int) -> int:
    return max(1, math.ceil(size / PROBED))


def _plain(tensor: Tensor) -> Tensor:
    """The tensor without its graph, dense."""
    tensor = tensor.detach() if tensor.requires_grad else tensor
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


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


def _interpret(trace: Trace) -> tuple[tuple[Event, ...], Pending]:
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


def _table(events: Iterable[Event]) -> str:
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
