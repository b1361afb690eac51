"""A training loop run line by line: what ``.grad`` and the weight are after each line."""

import functools
import inspect
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from helpers import checks
from helpers.models import micro_batch_model

Loop = Callable[[nn.Module, torch.optim.Optimizer, Sequence[Tensor], int], object]


@dataclass(frozen=True)
class Moment:
    """The loop stopped after a line."""

    line: int  # of the source, from 0; -1 before the first
    held: tuple[tuple[int, float], ...]  # (micro-batch, its part of .grad); 0: set by hand
    weight: float
    lr: float
    backwards: int  # so far
    updates: int  # so far

    @property
    def gradient(self) -> float:
        """What ``.grad`` holds."""
        return sum(part for _, part in self.held)


def source_lines(loop: Loop) -> list[str]:
    """The loop as it was written, one string a line, without common indentation."""
    return textwrap.dedent(inspect.getsource(loop).expandtabs(4)).rstrip().splitlines()


def step_through(
    loop: Loop, micro_gradients: Sequence[float], accumulation_steps: int, lr: float = 1.0
) -> list[Moment]:
    """Every moment of ``loop(model, optimizer, batches, accumulation_steps)``, in order.

    Args:
        loop: a plain training loop. Its model gives c * weight for an input c, so that a loss
            ``model(batch).mean()`` has the gradient c; its optimizer is SGD.
        micro_gradients: the c of each micro-batch.
        accumulation_steps: handed on to the loop.
        lr: the optimizer's learning rate at the start.

    Raises:
        ValueError: no micro-batch is given, or the loop runs over 5,000 lines.
    """
    checks.whole_number("accumulation_steps", accumulation_steps, 1)
    if not micro_gradients:
        raise ValueError("micro_gradients must hold at least one number, got none")
    model = micro_batch_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    batches = [torch.tensor([[float(c)]]) for c in micro_gradients]
    watch = _Watch(loop, model, optimizer)
    before = sys.gettrace()
    sys.settrace(watch.called)
    try:
        loop(model, optimizer, batches, accumulation_steps)
    finally:
        sys.settrace(before)
    return watch.moments


class _Watch:
    """Notes a moment whenever a line of the loop is done.

    A ``.grad`` of zero may be a cleared one, or parts that add up to zero. So its parts are not
    deduced from its value: backward passes and calls of ``zero_grad`` are noted when they happen.
    """

    most = 5000

    def __init__(self, loop: Loop, model: nn.Module, optimizer: torch.optim.Optimizer):
        self.code, self.weight, self.optimizer = loop.__code__, model.weight, optimizer
        self.line, self.backwards, self.updates = -1, 0, 0
        self.held: tuple[tuple[int, float], ...] = ()
        self.known = 0.0  # what .grad held when it was last looked at
        self.moments: list[Moment] = []
        self.weight.register_hook(self._arriving)
        self.weight.register_post_accumulate_grad_hook(self._arrived)
        optimizer.register_step_post_hook(self._updated)
        for owner in (model, optimizer):
            owner.zero_grad = self._clearing(owner.zero_grad)
        self._note()

    def called(self, frame: FrameType, event: str, argument: Any):
        """For sys.settrace: follow the loop's own lines and nothing that it calls."""
        return self._passed if frame.f_code is self.code else None

    def _passed(self, frame: FrameType, event: str, argument: Any):
        if event in ("line", "return"):
            if self.line >= 0:
                self._note()
            self.line = frame.f_lineno - self.code.co_firstlineno
        return self._passed

    def _clearing(self, zero_grad: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(zero_grad)
        def clear(*args, **kwargs):
            zero_grad(*args, **kwargs)
            self.held, self.known = (), 0.0

        return clear

    def _arriving(self, gradient: Tensor) -> None:
        self._look()

    def _arrived(self, weight: Tensor) -> None:
        self.backwards += 1
        now = weight.grad.item()
        self.held, self.known = (*self.held, (self.backwards, now - self.known)), now

    def _updated(self, optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> None:
        self.updates += 1

    def _look(self) -> None:
        """Follow what else became of ``.grad``: gone, set to zero, scaled, or added to."""
        gradient = self.weight.grad
        now = 0.0 if gradient is None else gradient.item()
        if gradient is None or (now == 0 and self.known != 0):
            self.held = ()
        elif now != self.known and self.known == 0:  # no part grew to this
            self.held = (*self.held, (0, now))
        elif now != self.known:  # clipped or divided: every part by the same factor
            factor = now / self.known
            self.held = tuple((number, part * factor) for number, part in self.held)
        self.known = now

    def _note(self) -> None:
        self._look()
        if len(self.moments) == self.most:
            raise ValueError(f"loop must end within {self.most} lines")
        lr = self.optimizer.param_groups[0]["lr"]
        weight = self.weight.item()
        self.moments.append(Moment(self.line, self.held, weight, lr, self.backwards, self.updates))
