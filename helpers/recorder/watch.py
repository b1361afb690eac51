"""Hooks on the module and on all optimizers, and what has no hook looked at in between."""

import functools
import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from helpers.recorder.arrivals import NO_BACKWARD, Arrivals, running_backward
from helpers.recorder.ledger import copy_into, plain
from helpers.recorder.notes import (
    BuffersSeen,
    Called,
    Notes,
    Recomputed,
    Scheduled,
    StepBegan,
    Stepped,
)
from helpers.recorder.outputs import tensors_in

OUTPUT_HOOKS = 1000  # so many may be there before those of outputs that are gone are let go


@dataclass
class Stepping:
    """An optimizer's step under way."""

    optimizer: Optimizer
    frame: FrameType  # in which it runs: one that failed runs no more
    rated: Optimizer  # whose learning rates count: its own or those of one that it wraps
    learning_rates: tuple[float, ...]
    weights: dict[int, Tensor]  # before it


class Watch:
    """What a recording hangs on a model and on all optimizers."""

    def __init__(self, model: nn.Module, notes: Notes):
        self._model, self._notes = model, notes
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._index = {id(p): i for i, p in enumerate(self._parameters)}
        self._arrivals = Arrivals(self._parameters, notes)
        # Moving a module replaces its buffers, so they are looked up anew each time.
        paths = (name.rpartition(".") for name in notes.buffer_names)
        self._buffers = [(model.get_submodule(path), name) for path, _, name in paths]
        self._hooks: list[Any] = []
        self._output_hooks: list[Any] = []
        self._output_limit = OUTPUT_HOOKS
        self._rates: dict[Optimizer, tuple[float, ...]] = {}
        self._steps: list[Stepping] = []  # the outermost first
        self._forwards = 0

    def start(self) -> None:
        add, model = self._hooks.append, self._model
        add(model.register_forward_pre_hook(Hook(self._forward_begins), with_kwargs=True))
        self._after_forward = model.register_forward_hook(Hook(self._forward_ends))
        add(self._after_forward)
        add(register_optimizer_step_pre_hook(self._step_begins))
        add(register_optimizer_step_post_hook(self._step_ends))
        self._arrivals.start()
        self._look_at_buffers(in_forward=False)

    def stop(self) -> None:
        for hook in (*self._hooks, *self._output_hooks):
            hook.remove()
        self._arrivals.stop()
        self.look_around(whatever=True)
        self._look_at_buffers(in_forward=False)
        self._rates, self._steps = {}, []

    def look_around(self, whatever: bool = False) -> None:
        """Note what has no hook of its own: ``.grad`` cleared or edited, learning rates."""
        self._arrivals.settle()
        self._arrivals.look(whatever)
        self._look_at_rates()

    def _look_at_rates(self) -> None:
        for number, (optimizer, old) in enumerate(self._rates.items(), start=1):
            new = _learning_rates(optimizer)
            if new != old:
                self._rates[optimizer] = new
                self._notes.write(Scheduled(number, old, new))

    def _look_at_buffers(self, in_forward: bool) -> None:
        if self._buffers:
            now = [getattr(module, name) for module, name in self._buffers]
            row = self._notes.buffers.write(now)
            self._notes.write(BuffersSeen(row, in_forward))

    def _forward_begins(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        if module is not self._model:  # a shallow copy shares its hooks
            return
        if running_backward() != NO_BACKWARD:
            self._notes.write(Recomputed())
            return
        self.look_around()
        self._look_at_buffers(in_forward=False)
        self._forwards += 1
        tensors = (a for a in (*args, *kwargs.values()) if isinstance(a, Tensor) and a.dim())
        samples = next(map(len, tensors), None)
        self._call = Called(samples, torch.is_grad_enabled(), module.training)
        self._notes.write(self._call)
        hooks, last = self._after_forward.hooks_dict_ref(), self._after_forward.id
        if next(reversed(hooks)) != last:  # one set since may hand back something else
            hooks.move_to_end(last)

    def _forward_ends(self, module: nn.Module, args: tuple, output: Any) -> None:
        if module is not self._model or running_backward() != NO_BACKWARD:
            return
        self._look_at_buffers(in_forward=True)
        for name, tensor in tensors_in(output):
            if name in ("", "loss") and not tensor.dim() and not tensor.is_complex():
                self._call.loss = tensor.detach().clone()
            if tensor.grad_fn is not None:  # a leaf outlives the forward that handed it back
                passing = functools.partial(self._backward_passes, self._forwards)
                self._output_hooks.append(tensor.register_hook(passing))
        if len(self._output_hooks) > self._output_limit:  # hooks went with the outputs
            self._output_hooks = [h for h in self._output_hooks if h.hooks_dict_ref() is not None]
            self._output_limit = max(OUTPUT_HOOKS, 2 * len(self._output_hooks))

    def _backward_passes(self, forward: int, _: Tensor) -> None:
        self._arrivals.passes(forward)

    def _step_begins(self, optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
        groups = optimizer.param_groups
        ids = [id(p) for group in groups for p in group["params"]]
        owned = sorted(self._index[i] for i in ids if i in self._index)
        if not owned:
            return
        self.look_around(whatever=True)
        frame = sys._getframe(1)
        while self._steps and not _is_inside(frame, self._steps[-1].frame):
            self._steps.pop()  # it failed
        if not self._steps:
            self._notes.write(StepBegan())
        # A step that a wrapper's step calls is part of it; some wrappers have no rates.
        outer = self._steps[0] if self._steps else Stepping(optimizer, frame, optimizer, (), {})
        if not outer.learning_rates or not _has_rates(outer.rated):
            outer.rated, outer.learning_rates = optimizer, _learning_rates(optimizer)
        self._keep_weights([i for i in owned if i not in outer.weights], outer.weights)
        inner = Stepping(optimizer, frame, optimizer, (), {})
        self._steps.append(inner if self._steps else outer)

    def _step_ends(self, optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
        under_way = [number for number, s in enumerate(self._steps) if s.optimizer is optimizer]
        if not under_way:
            return
        step = self._steps[under_way[-1]]
        del self._steps[under_way[-1] :]
        if self._steps:
            return
        # A closure has run backwards of its own; a fused optimizer may have unscaled .grad.
        self._arrivals.settle()
        self._arrivals.look(whatever=True)
        owned = tuple(sorted(step.weights))
        row = self._moved(owned, step.weights)
        self._rates.setdefault(step.rated, step.learning_rates)
        number = list(self._rates).index(step.rated) + 1
        self._notes.write(Stepped(number, owned, step.learning_rates, row))
        self._look_at_rates()

    def _keep_weights(self, which: list[int], weights: dict[int, Tensor]) -> None:
        """Copy the weights as they are before a step."""
        gradients = self._notes.gradients
        if gradients.waits and gradients.rows:
            weights |= {i: gradients.spare[i] for i in which}
            copy_into([weights[i] for i in which], [self._parameters[i] for i in which])
        else:
            weights |= {i: plain(self._parameters[i]).clone() for i in which}

    def _moved(self, owned: tuple[int, ...], weights: dict[int, Tensor]) -> int:
        """The row in which it stands how far a step moved the weights."""
        gradients = self._notes.gradients
        (row,) = gradients.take(1)
        places = [gradients.places(row)[i] for i in owned]
        if gradients.waits:
            copy_into(places, [self._parameters[i] for i in owned])
            torch._foreach_sub_(places, [weights[i] for i in owned])
        else:
            copy_into(places, [plain(self._parameters[i]) - weights[i] for i in owned])
        return row


class Hook:
    """A module's hook that falls silent in copies: a deep copy or a saved model is no longer it."""

    def __init__(self, call: Any):
        self._call = call

    def __call__(self, *args: Any) -> None:
        self._call(*args)

    def __reduce__(self) -> tuple:
        return (Hook, (_do_nothing,))


def _do_nothing(*args: Any) -> None:
    """What a copied hook does."""


def _is_inside(frame: FrameType | None, outer: FrameType) -> bool:
    while frame is not None and frame is not outer:
        frame = frame.f_back
    return frame is not None


def _has_rates(optimizer: Optimizer) -> bool:
    return any("lr" in group for group in optimizer.param_groups)


def _learning_rates(optimizer: Optimizer) -> tuple[float, ...]:
    """One for each parameter group, 0 where it has none (Adafactor, which finds its own)."""
    return tuple(float(group.get("lr") or 0.0) for group in optimizer.param_groups)
