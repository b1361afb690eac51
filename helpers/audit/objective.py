"""The objective that the loop should follow: its gradient over any micro-batch at any weights."""

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from helpers.audit.batches import fingerprints
from helpers.audit.running import Seen
from helpers.recorder.ledger import plain

Loss = Callable[[nn.Module, Any], Tensor | tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Part:
    """A micro-batch's part in the objective: sums over its elements, at some weights."""

    gradient: Tensor  # of the sum of weight times loss, flat, in model order
    total: float  # that sum
    weight: float  # sum of the weights: the number of elements where there are none
    losses: Tensor

    def on(self, owned: Tensor) -> "Part":
        """The same for the parameters of a mask only."""
        return Part(self.gradient * owned, self.total, self.weight, self.losses)

    @property
    def void(self) -> bool:
        """Whether it has nothing to give: no elements, or no finite loss."""
        return self.weight == 0 or not bool(self.gradient.isfinite().all())


class Objective:
    """``loss`` on a copy of the model that is put into whatever state a forward of the loop saw."""

    def __init__(self, model: nn.Module, loss: Loss):
        self.model, self._loss = copy.deepcopy(model), loss
        self._parameters = list(self.model.parameters())
        self._trainable = [p for p in self._parameters if p.requires_grad]
        self.sizes = [plain(p).numel() for p in self._trainable]
        self.dtype = torch.float64 if _any_double(self._trainable) else torch.float32
        self._seen: list[Seen] = []
        self.inputs: list[frozenset[int]] = []  # what the last call gave the model
        self.outputs: list[Any] = []
        self.model.register_forward_pre_hook(self._begins, with_kwargs=True)
        self.model.register_forward_hook(lambda module, args, output: self.outputs.append(output))

    def elements(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Each element's loss, and its weight.

        Raises:
            TypeError, ValueError: ``loss`` hands back anything else.
        """
        self.inputs, self.outputs = [], []
        result = self._loss(self.model, batch)
        losses, weights = (
            result if isinstance(result, tuple) and len(result) == 2 else (result, None)
        )
        _check_losses(losses, weights)
        if weights is None:
            return losses, torch.ones_like(losses, requires_grad=False)
        return losses, weights.detach().to(losses)

    def part(self, batch: Any, seen: Sequence[Seen]) -> Part:
        """The part of a micro-batch as the model was in these forwards, the first one's weights."""
        self.put(seen[0])
        self._seen = list(seen)
        with torch.enable_grad(), self._autocast(seen[0]):
            losses, weights = self.elements(batch)
            weighed = (losses * weights).sum()
            total = weights.double().sum().item()
            gradient = self._gradient(weighed) if losses.numel() else self._nothing()
        self._seen = []
        return Part(gradient, weighed.detach().double().item(), total, losses.detach())

    def put(self, seen: Seen) -> None:
        """Give the copy the weights, buffers and modes that a forward saw."""
        state = seen.state
        for parameter, weights, on in zip(
            self._parameters, state.weights, state.trainable, strict=True
        ):
            parameter.data = weights
            parameter.requires_grad_(on)
        buffers = iter(state.buffers)
        for name, _ in list(self.model.named_buffers()):
            path, _, last = name.rpartition(".")
            self.model.get_submodule(path)._buffers[last] = next(buffers).clone()
        for module, mode in zip(self.model.modules(), state.training, strict=True):
            module.training = mode

    def _begins(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        if len(self.inputs) < len(self._seen):
            for generator, state in self._seen[len(self.inputs)].random:
                generator.set_state(state)
        self.inputs.append(fingerprints((*args, *kwargs.values())))

    def _autocast(self, seen: Seen) -> Any:
        if seen.autocast is None:
            return nullcontext()
        return torch.autocast(self._parameters[0].device.type, dtype=seen.autocast)

    def _nothing(self) -> Tensor:
        return torch.zeros(sum(self.sizes), dtype=self.dtype, device=self._trainable[0].device)

    def _gradient(self, value: Tensor) -> Tensor:
        on = [p for p in self._trainable if p.requires_grad]
        found = dict(
            zip(map(id, on), torch.autograd.grad(value, on, allow_unused=True), strict=True)
        )
        flat = [
            self._zeros(p) if found.get(id(p)) is None else plain(found[id(p)]).flatten()
            for p in self._trainable
        ]
        return torch.cat([f.to(self.dtype) for f in flat])

    def _zeros(self, parameter: Tensor) -> Tensor:
        return plain(torch.zeros_like(parameter)).flatten()


def _any_double(tensors: Sequence[Tensor]) -> bool:
    return any(t.dtype in (torch.float64, torch.complex128) for t in tensors)


def _check_losses(losses: Any, weights: Any) -> None:
    if not isinstance(losses, Tensor):
        raise TypeError(
            "loss must return a tensor with one number for each element, or a pair "
            f"(losses, weights), got {type(losses).__name__}"
        )
    if losses.dim() != 1:
        got = "a scalar" if losses.dim() == 0 else f"shape {tuple(losses.shape)}"
        raise ValueError(
            "loss must return one number for each element, a 1-D tensor (reduction='none', then "
            f"flatten), got {got}"
        )
    if not losses.requires_grad and losses.numel():
        raise ValueError(
            "loss must return losses with a gradient: they depend on no trainable parameter of "
            "the model that it is given, or were detached"
        )
    if weights is not None and (not isinstance(weights, Tensor) or weights.shape != losses.shape):
        got = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ValueError(f"weights must have the shape of losses, {tuple(losses.shape)}, got {got}")
