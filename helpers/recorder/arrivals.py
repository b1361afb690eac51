"""Gradients watched on their way into ``.grad``, and ``.grad`` looked at in between."""

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from helpers.recorder.ledger import copy_into, plain
from helpers.recorder.notes import Arrived, Looked, Notes

# Neither is public. The first is a question, the number of the backward that runs on this thread;
# torch.autograd.graph.register_multi_grad_hook asks it too, to tell one backward from the next.
# The second calls back when that backward ends, which public hooks don't tell; DDP and FSDP use it.
running_backward = torch._C._current_graph_task_id
_at_the_end = torch.autograd.Variable._execution_engine.queue_callback
NO_BACKWARD = -1

Seen = tuple[Any, int] | None  # a weak reference to a .grad and its version


class Arrivals:
    """Hooks on each parameter, before and after a gradient is added, and what they saw.

    What arrives is copied when the backward ends, all of it at once; at once where somebody else
    may change it before, or where so much should not be kept waiting.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], notes: Notes):
        self._parameters, self._notes = parameters, notes
        self._seen: list[Seen] = [None] * len(parameters)
        self._backwards = 0
        self._nodes: list[Any] = []  # hooks on a node die with it, so it has to be kept
        self._before: list[Any] = []
        self._after: list[Any] = []
        self._await_backward()

    def start(self) -> None:
        """Hang the hooks on, and note what ``.grad`` holds already."""
        with torch.inference_mode(False), torch.enable_grad():
            for i, parameter in enumerate(self._parameters):
                node = get_gradient_edge(parameter).node
                self._nodes.append(node)
                self._before.append(node.register_prehook(functools.partial(self._arrives, i)))
                added = functools.partial(self._added, i)
                hook = parameter.register_post_accumulate_grad_hook(added)
                _put_first(hook)
                self._after.append(hook)
        self.look(whatever=True, first=True)

    def stop(self) -> None:
        for hook in (*self._before, *self._after):
            hook.remove()
        self._nodes = []

    def passes(self, forward: int) -> None:
        """A backward goes through the output of this forward."""
        running = running_backward()
        if running != self._running:
            self._begin(running)
            self._call_back(running)
        if forward not in self._passed:
            self._passed.append(forward)

    def _arrives(self, i: int, gradients: tuple[Tensor | None, ...]) -> None:
        # A reentrant checkpoint runs backwards of its own inside the one that passed the output.
        running = running_backward()
        if self._fired[i] or (running != self._running and not self._passed):
            self._begin(running)
        if not self._part:
            self._begin_part(running)
        # Held on to where .grad adds it up; else it would have to be copied to become .grad.
        there = self._parameters[i].grad is not None and self._rows[0] is not None
        self._part[i] = (gradients[0] if there else None, None, 0)

    def _added(self, i: int, parameter: Tensor) -> None:
        if i not in self._part:
            self._not_seen_arriving(i)
        gradient, grad = self._part[i][0], parameter.grad
        self._fired[i] = True
        self._part[i] = (gradient, grad, _version(grad))
        if self._at_once or len(self._after[i].hooks_dict_ref()) > 1:
            self._copy((i,))

    def _not_seen_arriving(self, i: int) -> None:
        """A parameter that was moved or cast has another node, which has yet to get its hook."""
        running = running_backward()
        if running != self._running and not self._passed:
            self._begin(running)
        if not self._part:
            self._begin_part(running, but=i)
        if self._seen[i] is not None:
            self._unknown.append(i)
        self._part[i] = (None, None, 0)
        with torch.enable_grad():
            self._nodes[i] = get_gradient_edge(self._parameters[i]).node
        self._before[i].remove()
        self._before[i] = self._nodes[i].register_prehook(functools.partial(self._arrives, i))

    def _begin(self, running: int) -> None:
        self.settle()
        self._await_backward()
        self._running = running

    def _begin_part(self, running: int, but: int | None = None) -> None:
        nothing = self.look(but=but)
        gradients = self._notes.gradients
        (*added, held) = gradients.take(1 if nothing else 2)
        self._rows = (added[0] if added else None, held)
        self._at_once = not gradients.waits or _is_distributed()
        self._call_back(running)

    def _call_back(self, running: int) -> None:
        if running != self._calling_back:
            self._calling_back = running
            _at_the_end(self._ends)

    def _copy(self, which: Sequence[int]) -> None:
        """Write down what arrived for these parameters, and their ``.grad``."""
        added, held = self._rows
        ledger, part, unknown = self._notes.gradients, self._part, self._unknown
        places, tensors = ledger.places(held), [part[i][1] for i in which]
        waiting = [i for i in which if part[i][0] is not None]
        here = [places[i] for i in which]
        if waiting:
            places = ledger.places(added)
            here += [places[i] for i in waiting]
            tensors += [part[i][0] for i in waiting]
        copy_into(here, tensors)
        for i in which:
            gradient, grad, version = part[i]
            row = added if gradient is not None else None if i in unknown else held
            self._written[i] = (row, held)
            self._seen[i] = (weakref.ref(grad), version)

    def _ends(self) -> None:
        self._write()
        if running_backward() == self._running:
            self._await_backward()

    def settle(self) -> None:
        """Write down what has arrived, and close the last backward unless one still runs."""
        self._write()
        if self._running != NO_BACKWARD and running_backward() == NO_BACKWARD:
            self._await_backward()

    def _write(self) -> None:
        if not self._part:
            return
        waiting = [
            i
            for i, (_, grad, _) in self._part.items()
            if grad is not None and i not in self._written
        ]
        for i in filter(self._is_gone, waiting):
            # Only after a backward that failed: nobody knows what had been there.
            unknown = torch.full_like(plain(self._part[i][1]), torch.nan)
            self._part[i] = (None, unknown, -1)
            self._unknown.append(i)
        if waiting:
            self._copy(waiting)
        if self._written:
            if not self._number:
                self._backwards += 1
                self._number = self._backwards
            forwards = tuple(sorted(self._passed))
            self._notes.write(Arrived(self._number, forwards, self._written))
        self._part, self._written, self._unknown = {}, {}, []

    def _is_gone(self, i: int) -> bool:
        _, grad, version = self._part[i]
        return self._parameters[i].grad is not grad or _version(grad) != version

    def _await_backward(self) -> None:
        self._running = self._calling_back = NO_BACKWARD
        self._number = 0
        self._passed: list[int] = []
        self._fired = [False] * len(self._parameters)
        # Of each parameter the gradient to copy, .grad after it, and its version.
        self._part: dict[int, tuple[Tensor | None, Tensor | None, int]] = {}
        self._written: dict[int, tuple[int | None, int]] = {}
        self._unknown: list[int] = []
        self._rows: tuple[int | None, int] = (None, 0)
        self._at_once = False

    def look(self, whatever: bool = False, first: bool = False, but: int | None = None) -> bool:
        """Note ``.grad`` if it is not what was last seen, and say whether it is None throughout.

        Identity and version of the tensors tell, except for what goes past the version counter,
        such as ``.grad.data`` and a GradScaler: ``whatever`` has the values compared too.
        """
        grads = [p.grad for p in self._parameters]
        if but is not None:
            grads[but] = self._seen[but] and self._seen[but][0]()
        nothing, same = True, not first
        for grad, seen in zip(grads, self._seen, strict=True):
            if grad is not None:
                nothing = False
                same = same and seen is not None and seen[0]() is grad
                same = same and seen[1] == _version(grad)
            elif seen is not None:
                same = False
        if not same or (whatever and not nothing):
            owners = {id(s[0]()): i for i, s in enumerate(self._seen) if s and s[0]() is not None}
            replaced = {
                i: owners.get(id(grad))
                for i, (grad, seen) in enumerate(zip(grads, self._seen, strict=True))
                if grad is not None and (seen is None or seen[0]() is not grad)
            }
            row = None if nothing else self._notes.gradients.write(grads)
            absent = tuple(grad is None for grad in grads)
            self._notes.write(Looked(row, absent, replaced, first))
            self._seen = [None if g is None else (weakref.ref(g), _version(g)) for g in grads]
        return nothing


def _is_distributed() -> bool:
    """Whether DistributedDataParallel may be at work, whose hooks Python can't see."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _put_first(hook: Any) -> None:
    """Move a hook before those that the reader had set: an optimizer in one clears what it adds."""
    hooks = hook.hooks_dict_ref()  # PyTorch calls them in the order in which they were put in
    others = {number: call for number, call in hooks.items() if number != hook.id}
    if others:
        ours = hooks[hook.id]
        hooks.clear()
        hooks.update({hook.id: ours, **others})


def _version(tensor: Tensor) -> int:
    try:
        return tensor._version
    except RuntimeError:  # a tensor made in inference mode has none
        return 0
