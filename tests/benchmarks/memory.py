"""How fast a model far too large for a lesson is measured, and how near its peak is to the bound.

The bound of an accumulated update is what it can't do without: parameters, gradients, optimizer
state, and what one micro-batch keeps for backward.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from helpers import memory
from helpers.memory.tally import in_words
from helpers.models import transformer_layer
from tests.benchmarks.table import Line

WIDTH, LAYERS, HEADS, VOCABULARY, SEQUENCE = 768, 12, 12, 50257, 1024
STEPS, SECONDS, RATIO = 8, 5, 1.05


class Gpt(nn.Module):
    """As large as GPT-2 small: 124 million parameters, the head shared with the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(SEQUENCE, WIDTH)
        self.body, self.norm = body(), nn.LayerNorm(WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm(self.body(self.token(tokens) + self.place.weight))
        return F.linear(x, self.token.weight).flatten(0, 1)


def body() -> nn.Sequential:
    layers = (transformer_layer(WIDTH, HEADS, dtype=torch.float32) for _ in range(LAYERS))
    return nn.Sequential(*layers)


@dataclass(frozen=True)
class Bytes:
    """Bytes beside the bound they are held against, in the columns of a :class:`Line`."""

    what: str
    peak: int
    bound: int
    aim: float | None = None

    def __str__(self) -> str:
        ratio = self.peak / self.bound
        aim = "" if self.aim is None else f"≤ {self.aim:g}"
        verdict = "" if self.aim is None else "met" if ratio <= self.aim else "not met"
        sizes = f"{in_words(self.peak):>10} {in_words(self.bound):>10}"
        return f"{self.what:62} {sizes} {ratio:>6.3f} {aim:>8}  {verdict}".rstrip()


def measure() -> Iterator[Line | Bytes]:
    seconds = [timed(one_update) for _ in range(5)]
    yield Line("one update of GPT-2 small, 1 x 1024 tokens, measured", seconds, aim=SECONDS)

    def tokens() -> Tensor:
        return torch.zeros(1, SEQUENCE, dtype=torch.int64)

    def vectors() -> Tensor:
        return torch.zeros(1, SEQUENCE, WIDTH)

    peak, bound = peak_and_bound(body, lambda out, _: out.square().mean(), vectors)
    yield Bytes("peak of 8 micro-batches over the bound: GPT-2's 12 layers", peak, bound, RATIO)
    peak, bound = peak_and_bound(Gpt, F.cross_entropy, tokens)
    yield Bytes("  with its loss over 50,257 tokens", peak, bound)


def peak_and_bound(
    build: Callable[[], nn.Module],
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    make: Callable[[], Tensor],
) -> tuple[int, int]:
    """The peak of an accumulated update with AdamW's state there, and the bound."""
    with memory.fake():
        model = build()
        optimizer = torch.optim.AdamW(model.parameters())
        target = torch.zeros(SEQUENCE, dtype=torch.int64)
        memory.accumulated_update(model, loss_fn, optimizer, [(make(), target)], [1.0])
        batches = ((make(), target) for _ in range(STEPS))
        with memory.measure(model, optimizer) as found:
            memory.accumulated_update(model, loss_fn, optimizer, batches, [1 / STEPS] * STEPS)
        with memory.measure(model, optimizer) as once:
            loss = loss_fn(model(make()), target)
        del loss
    parts = {**found.by_category(), "activations": once.by_category()["activations"], "other": 0}
    return found.peak, sum(parts.values())


def one_update() -> None:
    """One update from the making of the model on, as a reader meets it first."""
    FakeTensorMode.cache_clear()  # the answers to all operations so far
    with memory.fake():
        model, tokens = Gpt(), torch.zeros(1, SEQUENCE, dtype=torch.int64)
        optimizer = torch.optim.AdamW(model.parameters())
        with memory.measure(model, optimizer):
            batches = [(tokens, tokens.flatten())]
            memory.accumulated_update(model, F.cross_entropy, optimizer, batches, [1.0])


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
