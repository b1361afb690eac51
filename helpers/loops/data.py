"""What a loop is run on: micro-batches in which each sample has a weight of its own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from helpers import checks
from helpers.models import micro_batch_model

MOST_MICRO_BATCHES = 10  # 10 ** i and its square are still ordinary float32 numbers
IGNORED = -100  # the label that cross entropy leaves out

Size = int | tuple[int, ...]
Sizes = Sequence[Size]


@dataclass(frozen=True)
class Setting:
    """What one run is made of.

    Args:
        sizes: samples in each micro-batch of an epoch. Of tokens the labels: an int for one
            sequence, a tuple for one each; shorter sequences are padded.
        accumulation_steps: micro-batches in a full window.
        epochs: passes over the data. A loop that does not take ``epochs`` is called so many times.
        stream: whether the loader does not know its length.

    Raises:
        TypeError, ValueError: a number is no whole number, or too small, or too large.
    """

    sizes: Sizes
    accumulation_steps: int
    epochs: int = 1
    stream: bool = False

    def __post_init__(self):
        checks.whole_number("accumulation_steps", self.accumulation_steps, 1)
        checks.whole_number("epochs", self.epochs, 1)
        checks.whole_number("the number of sizes", len(self.sizes), 1, MOST_MICRO_BATCHES)
        for size in self.sizes:
            for one in size if isinstance(size, tuple) else (size,):
                checks.whole_number("each of sizes", one, 0)

    def __str__(self) -> str:
        said = [f"{_sizes_said(self.sizes)}, k = {self.accumulation_steps}"]
        said += [f"{self.epochs} epochs"] if self.epochs > 1 else []
        said += ["length unknown"] if self.stream else []
        return ", ".join(said)

    @property
    def counts(self) -> tuple[int, ...]:
        """How many samples, or labels, each micro-batch of an epoch has."""
        return tuple(sum(size) if isinstance(size, tuple) else size for size in self.sizes)


def _sizes_said(sizes: Sizes) -> str:
    if len(set(sizes)) == 1 and isinstance(sizes[0], int):
        return f"{len(sizes)} micro-batch{'es' * (len(sizes) > 1)} of {sizes[0]}"
    each = [str(n) if isinstance(n, int) else "(" + ", ".join(map(str, n)) + ")" for n in sizes]
    return f"micro-batches of {', '.join(each)}"


Made = tuple[nn.Module, list, Tensor]  # the model, an epoch's micro-batches, each sample's gradient


def _inputs(setting: Setting) -> Made:
    """A loss ``model(batch).mean()`` has the gradient 10 ** i in each of the samples' weights."""
    parts = torch.diag(_powers(setting))
    return micro_batch_model(len(parts)), list(parts.split(setting.counts)), parts


def _pairs(setting: Setting) -> Made:
    """Inputs of 1, and targets so far away that MSELoss has the gradient 10 ** i."""
    powers = _powers(setting)
    x, y = torch.eye(len(powers)), -powers.unsqueeze(1) / 2
    batches = list(zip(x.split(setting.counts), y.split(setting.counts), strict=True))
    return micro_batch_model(len(powers)), batches, torch.diag(powers)


def _tokens(setting: Setting) -> Made:
    """Every token is another one, and has a logit of its own against another class's 0.

    Cross entropy's gradient is -1/2 there as long as both are 0, times the 10 ** i of the model.
    """
    batches, scales, labelled = [], [], []
    for i, size in enumerate(setting.sizes):
        lengths = size if isinstance(size, tuple) else (size,)
        longest = max(1, *lengths)
        first = len(scales)
        places = len(lengths) * longest
        tokens = torch.arange(first, first + places).reshape(len(lengths), longest)
        has_label = torch.arange(longest) < torch.tensor(lengths).unsqueeze(1)
        labels = torch.where(has_label, 0, IGNORED)
        batches.append((tokens, labels))
        scales += [10.0**i] * places
        labelled += tokens[has_label].tolist()
    model = _TokenModel(torch.tensor(scales))
    return model, batches, -torch.diag(model.scales)[labelled] / 2


class _TokenModel(nn.Module):
    """Tokens (n, length) to logits (n, length, 2)."""

    def __init__(self, scales: Tensor):
        super().__init__()
        self.scales = scales
        self.logit = nn.Parameter(torch.zeros(len(scales)))

    def forward(self, tokens: Tensor) -> Tensor:
        logit = self.logit[tokens] * self.scales[tokens]
        return torch.stack((logit, torch.zeros_like(logit)), dim=-1)


DATA = {"inputs": _inputs, "pairs": _pairs, "tokens": _tokens}


def _powers(setting: Setting) -> Tensor:
    for count in setting.counts:
        checks.whole_number("each of sizes", count, 1)
    return torch.tensor([10.0**i for i, n in enumerate(setting.counts) for _ in range(n)])


class _Stream(IterableDataset):
    def __init__(self, batches: list):
        self.batches = batches

    def __iter__(self) -> Iterator:
        return iter(self.batches)


def loader_of(setting: Setting, data: str, batches: list) -> DataLoader:
    """A loader that gives these micro-batches, in this order, in each pass."""
    generator = torch.Generator()  # else each pass draws a number from the reader's
    if setting.stream:
        return DataLoader(_Stream(batches), batch_size=None, generator=generator)
    *others, last = setting.counts
    first = setting.counts[0]
    equal = set(others) <= {first} and last <= first
    if data == "tokens" or not equal:
        return DataLoader(batches, batch_size=None, generator=generator)
    columns = list(zip(*batches, strict=True)) if data == "pairs" else None
    samples = TensorDataset(*map(torch.cat, columns)) if columns else torch.cat(batches)
    return DataLoader(samples, batch_size=first, generator=generator)
