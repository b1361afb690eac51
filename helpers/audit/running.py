"""The reader's loop run on a copy, under the recorder, and what each forward of it saw."""

import random
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from helpers.audit.batches import Drawn, fingerprints, watched
from helpers.recorder import Trace, record
from helpers.recorder.arrivals import NO_BACKWARD, running_backward
from helpers.recorder.outputs import tensors_in
from helpers.recorder.watch import Hook

Train = Callable[[nn.Module, Iterable], Any]


@dataclass(frozen=True)
class State:
    """A model as it was when a forward began; the same object as long as it stays so."""

    weights: tuple[Tensor, ...]
    buffers: tuple[Tensor, ...]
    training: tuple[bool, ...]  # of each module
    trainable: tuple[bool, ...]  # each parameter's requires_grad


@dataclass(frozen=True)
class Seen:
    """What a forward with gradients was given."""

    inputs: frozenset[int]  # fingerprints of its arguments
    state: State
    weights: int  # number of the weights: it changes where they do
    random: tuple[tuple[torch.Generator, Tensor], ...]
    autocast: torch.dtype | None
    alive: tuple[int, ...]  # earlier forwards whose graphs are still held


@dataclass
class Run:
    """A loop that has run."""

    trace: Trace
    model: nn.Module  # the copy, as the loop left it
    returned: Any = None
    forwards: dict[int, Seen] = field(default_factory=dict)
    drawn: list[Drawn] = field(default_factory=list)  # the items, in the order of the Draw events


def run(
    train: Train,
    model: nn.Module,
    original: nn.Module,
    batches: Iterable,
    known: Collection[frozenset[int]],
) -> Run:
    """What ``train(model, batches)`` does to ``model``, a copy of ``original``.

    Items of ``batches`` with the fingerprints in ``known`` are not kept.

    Raises:
        ValueError: an optimizer of ``original`` steps, or one that needs several gradients, or
            parameters are replaced.
    """
    names = {id(p): name for name, p in model.named_parameters()}
    elements = sum(p.numel() for p in model.parameters() if p.requires_grad)
    foreign = {id(p) for p in original.parameters()}

    def refuse(optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
        owned = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if isinstance(optimizer, torch.optim.LBFGS) and not owned.isdisjoint(names):
            raise ValueError(
                "train must take an optimizer with one gradient a step, but LBFGS takes "
                "several, at several points"
            )
        if not owned.isdisjoint(foreign):
            raise ValueError(
                "train must train the model that it is given, but its optimizer holds the "
                "parameters of the one handed to audit: make the optimizer inside train"
            )

    guard = register_optimizer_step_pre_hook(refuse)
    try:
        with record(model, keep_vectors_up_to=elements) as trace:
            result = Run(trace, model)
            witness = Witness(model, result)
            try:
                result.returned = train(model, watched(batches, trace, result.drawn, known))
            finally:
                witness.stop()
    finally:
        guard.remove()
    there = {id(p) for p in model.parameters()}
    gone = [name for i, name in names.items() if i not in there]
    if gone:
        raise ValueError(
            f"train must keep the model's parameters, but it put another in place of {gone[0]!r}"
        )
    return result


class Witness:
    """Hooks beside the recorder's: what goes into each forward, and whose graphs are held."""

    def __init__(self, model: nn.Module, result: Run):
        self._model, self._run = model, result
        self._forwards = 0
        self._state: State | None = None
        self._changes = 0
        self._graphs: dict[int, Any] = {}
        self._hooks = [
            model.register_forward_pre_hook(Hook(self._begins), with_kwargs=True),
            model.register_forward_hook(Hook(self._ends)),
        ]

    def stop(self) -> None:
        for hook in (*self._hooks, *self._graphs.values()):
            hook.remove()

    def _begins(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        if module is not self._model or running_backward() != NO_BACKWARD:
            return
        self._forwards += 1
        self._graphs = {n: h for n, h in self._graphs.items() if h.hooks_dict_ref() is not None}
        if torch.is_grad_enabled():
            self._run.forwards[self._forwards] = Seen(
                fingerprints((*args, *kwargs.values())),
                self._look(),
                self._changes,
                tuple((g, g.get_state()) for g in torch_generators()),
                _autocast(next(self._model.parameters()).device.type),
                tuple(self._graphs),
            )

    def _ends(self, module: nn.Module, args: tuple, output: Any) -> None:
        if module is not self._model or running_backward() != NO_BACKWARD:
            return
        for _, tensor in tensors_in(output):
            if tensor.grad_fn is not None:
                self._graphs[self._forwards] = tensor.register_hook(_leave_alone)
                return

    @torch.no_grad()
    def _look(self) -> State:
        """The model's state, kept as one object while nothing changes."""
        old, model = self._state, self._model
        weights, buffers = tuple(model.parameters()), tuple(model.buffers())
        modes = tuple(m.training for m in model.modules())
        trainable = tuple(p.requires_grad for p in weights)
        moved = old is None or not _equal(weights, old.weights)
        other = old is None or not _equal(buffers, old.buffers)
        if moved or other or (modes, trainable) != (old.training, old.trainable):
            self._changes += moved
            self._state = State(
                _copies(weights) if moved else old.weights,
                _copies(buffers) if other else old.buffers,
                modes,
                trainable,
            )
        return self._state


def _leave_alone(gradient: Tensor) -> None:
    """A hook that is there to tell how long the graph is kept."""


def _copies(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    return tuple(t.detach().clone() for t in tensors)


def _equal(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> bool:
    return len(a) == len(b) and all(
        x.shape == y.shape and x.dtype == y.dtype and x.device == y.device and _same(x, y)
        for x, y in zip(a, b, strict=True)
    )


def _same(x: Tensor, y: Tensor) -> bool:
    return torch.equal(x, y) or bool(((x == y) | ((x != x) & (y != y))).all())


def _autocast(device: str) -> torch.dtype | None:
    on = torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if on else None


def torch_generators() -> list[torch.Generator]:
    """PyTorch's own, of the CPU and of each device in use."""
    cuda = list(torch.cuda.default_generators) if torch.cuda.is_initialized() else []
    mps = [torch.mps._get_default_mps_generator()] if torch.backends.mps.is_available() else []
    return [torch.random.default_generator, *cuda, *mps]


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Afterwards all random generators are as before: PyTorch's, Python's and NumPy's."""
    states = [(generator, generator.get_state()) for generator in torch_generators()]
    python, array = random.getstate(), numpy.random.get_state()
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)
        random.setstate(python)
        numpy.random.set_state(array)


@contextmanager
def left_as_it_was(model: nn.Module) -> Iterator[None]:
    """Afterwards weights, buffers, ``.grad`` and modes of ``model`` are those it has now."""
    tensors = [*model.parameters(), *model.buffers()]
    values = [t.detach().clone() for t in tensors]
    gradients = [
        (p, p.grad, None if p.grad is None else p.grad.clone()) for p in model.parameters()
    ]
    modes = [(m, m.training) for m in model.modules()]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, values, strict=True):
                if not _same(tensor, value):
                    tensor.copy_(value)
            for parameter, gradient, value in gradients:
                parameter.grad = gradient
                if gradient is not None and not _same(gradient, value):
                    gradient.copy_(value)
        for module, mode in modes:
            module.training = mode
