"""What recording norms costs a loop, beside the same loop unwatched, and beside empty hooks.

An empty hook wherever the recorder has one is the floor: no recorder that asks PyTorch's hooks
costs less. The loop is long enough for the recorder to measure what it has written down while it
runs. Time to read the trace afterwards is not counted: it is the reader's, not the loop's.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from helpers.models import small_convnet
from helpers.recorder import record
from helpers.samples import digits
from tests.benchmarks.table import Line, in_turn

PASSES, BATCHES, BATCH, STEPS = 3, 28, 64, 4
UPDATES, SIZE = PASSES * BATCHES, BATCH // STEPS
AIM = 1.05  # against the floor


def measure() -> Iterator[Line]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two threads that wait for each other measure the machine's load
    try:
        watched = nullcontext, _empty_hooks, lambda model: record(model, keep_vectors_up_to=0)
        times = in_turn(30, *map(_loop_inside, watched))
    finally:
        torch.set_num_threads(threads)
    bare, floor, recorded = ([seconds / UPDATES for seconds in each] for each in times)
    yield Line(f"one update of {STEPS} micro-batches, unwatched", bare)
    yield Line("  the same with empty hooks: the floor", floor, bare)
    yield Line("  the same recorded, norms only", recorded, bare)
    yield Line("  recorded, against the floor", recorded, floor, AIM)


def _loop_inside(watch: Callable[[nn.Module], AbstractContextManager]) -> Callable[[], None]:
    x, y = digits(BATCHES * BATCH)
    batches = list(zip(x.split(BATCH), y.split(BATCH), strict=True))
    loss_fn = nn.CrossEntropyLoss()

    def loop() -> None:
        model = small_convnet()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
        with watch(model):
            for inputs, targets in PASSES * batches:
                optimizer.zero_grad()
                for a, b in zip(inputs.split(SIZE), targets.split(SIZE), strict=True):
                    (loss_fn(model(a), b) / STEPS).backward()
                optimizer.step()

    return loop


@contextmanager
def _empty_hooks(model: nn.Module) -> Iterator[None]:
    def nothing(*args: object) -> None:
        pass

    def on_output(module: nn.Module, args: tuple, output: torch.Tensor) -> None:
        output.register_hook(nothing)

    nodes = [get_gradient_edge(p).node for p in model.parameters()]
    hooks = [node.register_prehook(nothing) for node in nodes]
    hooks += [p.register_post_accumulate_grad_hook(nothing) for p in model.parameters()]
    hooks.append(model.register_forward_pre_hook(nothing, with_kwargs=True))
    hooks.append(model.register_forward_hook(on_output))
    hooks.append(register_optimizer_step_pre_hook(nothing))
    hooks.append(register_optimizer_step_post_hook(nothing))
    with ExitStack() as stack:
        for hook in hooks:
            stack.callback(hook.remove)
        yield
