"""One accumulated update tried without allocating anything, and whose fault it is if it fails."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)

from helpers.gradients import Batch, Loss, accumulate
from helpers.memory.faking import fake, fake_copy, same_kernels
from helpers.memory.measuring import measure, one_device
from helpers.memory.tally import Memory


class Parameters(list):
    """A model's parameters as optimizers take them; ``named`` has them with their names."""

    def __init__(self, model: nn.Module):
        super().__init__(model.parameters())
        self.named = list(model.named_parameters())


OptimizerFactory = Callable[[Parameters], torch.optim.Optimizer]


def accumulated_update(
    model: nn.Module,
    loss_fn: Loss,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[Batch],
    shares: Sequence[float],
) -> None:
    """One update: each micro-batch's mean loss times its share of the samples, then one step.

    ``batches`` may be a generator, so that one micro-batch at a time is alive.
    """
    optimizer.zero_grad()  # clear
    for batch, share in zip(batches, shares, strict=True):
        accumulate(model, loss_fn, [batch], [share])
    optimizer.step()  # step


@contextmanager
def trying(
    model: nn.Module,
    loss_fn: Loss,
    x: Tensor,
    y: Tensor,
    optimizer: OptimizerFactory,
    samples: int,
    device: torch.device | str | None,
) -> Iterator[Callable[[tuple[int, ...]], Memory]]:
    """A function from the sizes of micro-batches to the memory of their update, under fakes.

    The update tried first, which makes the optimizer's state, is of one micro-batch of ``samples``.

    Raises:
        ValueError: model, loss_fn or optimizer can't do without values, or fails; it is named.
    """
    device = one_device(model, device)
    device = torch.device("cpu") if device.type == "meta" else device
    with _left_alone(model), fake() as mode:
        tried = fake_copy(model, device, mode)
        loss = fake_copy(loss_fn, device, mode) if isinstance(loss_fn, nn.Module) else loss_fn
        made = _made_of(optimizer, tried)
        same_kernels(made)
        stepping = _Stepping(made)

        def samples_of(example: Tensor, samples: int) -> Tensor:
            return torch.empty((samples, *example.shape[1:]), dtype=example.dtype, device=device)

        @cache
        def memory_of(sizes: tuple[int, ...]) -> Memory:
            batches = ((samples_of(x, size), samples_of(y, size)) for size in sizes)
            with measure(tried, made, device=device) as memory:
                accumulated_update(
                    _blamed("model", tried),
                    _blamed("loss_fn", loss),
                    stepping,
                    batches,
                    [1.0] * len(sizes),
                )
            return memory

        memory_of((samples,))
        memory_of.cache_clear()
        yield memory_of


def _made_of(optimizer: OptimizerFactory, model: nn.Module) -> torch.optim.Optimizer:
    handed = Parameters(model)
    made = _blamed("optimizer", optimizer)(handed)
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(f"optimizer must make a torch.optim.Optimizer, got {type(made).__name__}")
    known = set(map(id, handed))
    if any(id(p) not in known for group in made.param_groups for p in group["params"]):
        raise ValueError(
            "optimizer must make an optimizer of the parameters that it is handed, got one of "
            "others: for groups by name take (name, parameter) from .named of what is handed"
        )
    return made


class _Stepping:
    """An optimizer whose failures are its own."""

    def __init__(self, optimizer: torch.optim.Optimizer):
        self.zero_grad = optimizer.zero_grad
        self.step = _blamed("optimizer", optimizer.step)


def _blamed(part: str, call: Callable) -> Callable:
    """``call``, whose errors name the part of the update that failed."""

    def run(*args):
        try:
            return call(*args)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise ValueError(
                f"{part} must not depend on values ({error}): measure() such code for real"
            ) from error
        except Exception as error:
            raise ValueError(
                f"{part} must run on tensors without values, got {type(error).__name__} "
                f"({str(error).rstrip('.')}): if it depends on values, measure() it for real"
            ) from error

    return run


@contextmanager
def _left_alone(model: nn.Module) -> Iterator[None]:
    """The reader's gradients are put back if a loss reaches past the copy, and that is refused."""
    before = [(p, p.grad) for p in model.parameters()]
    try:
        yield
    finally:
        reached = [p for p, gradient in before if p.grad is not gradient]
        for parameter, gradient in before:
            parameter.grad = gradient
    if reached:
        raise ValueError(
            "loss_fn must compute from the outputs it is handed, got one that uses the "
            "parameters of your model"
        )
