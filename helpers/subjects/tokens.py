"""Sequences of unequal length: padding, counting targets, and what each of them counts."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from helpers import checks
from helpers.device import same_on_every_device
from helpers.models import VOCABULARY, tiny_language_model

IGNORED = -100  # the label that cross_entropy leaves out, PyTorch's own default
MOST_TARGETS = 12  # of a sequence of the panel
RULES = ("means", "sequences", "tokens")


def sequences(lengths: Sequence[int], seed: int = 0) -> list[Tensor]:
    """One sequence of tokens for each length, drawn on the CPU.

    A short one counts up from a random token, one of more than eight counts up in threes, so what
    there is to learn depends on the length. One token in four is noise.
    """
    if not lengths or any(isinstance(n, bool) or not isinstance(n, int) for n in lengths):
        raise TypeError(f"lengths must be one or more whole numbers, got {lengths!r}")
    if not 1 <= min(lengths) <= max(lengths) <= 64:
        raise ValueError(f"each of lengths must be from 1 to 64, got {list(lengths)}")
    draw = torch.Generator().manual_seed(seed)
    made = []
    for length in lengths:
        start = torch.randint(VOCABULARY, (1,), generator=draw)
        counted = (start + (1 if length <= 8 else 3) * torch.arange(length)) % VOCABULARY
        noise = torch.randint(VOCABULARY, (length,), generator=draw)
        keep = torch.rand(length, generator=draw) < 0.75
        made.append(torch.where(keep, counted, noise))
    return made


def pad(batch: Sequence[Tensor], device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Sequences as one batch: tokens and labels, both (n, longest), padded at the right.

    The label at a place is the token after it; the last token of a sequence has none, nor has
    padding: there it is ``IGNORED``.
    """
    if not batch:
        raise ValueError("batch must hold at least one sequence, got none")
    longest = max(map(len, batch))
    tokens = torch.zeros(len(batch), longest, dtype=torch.int64)
    labels = torch.full_like(tokens, IGNORED)
    for row, sequence in enumerate(batch):
        tokens[row, : len(sequence)] = sequence
        labels[row, : len(sequence) - 1] = sequence[1:]
    return tokens.to(device), labels.to(device)


def count_targets(labels: Tensor) -> int:
    """How many labels a loss is taken over."""
    return int((labels != IGNORED).sum())


def token_loss(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """Cross entropy over all targets of a batch; a mean over none is NaN, as PyTorch has it."""
    return F.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction=reduction
    )


def target_gradients(model: nn.Module, sequence: Tensor) -> Tensor:
    """The gradient of each target's own loss, one row a target: (length - 1, parameters).

    The model is causal, so the rows of a shorter sequence are the first rows of a longer one.
    """
    device = next(model.parameters()).device
    tokens, labels = pad([sequence], device)
    losses = token_loss(model(tokens), labels, "none")[: len(sequence) - 1]
    parameters = [p for p in model.parameters() if p.requires_grad]
    rows = [torch.autograd.grad(loss, parameters, retain_graph=True) for loss in losses]
    return torch.stack([torch.cat([g.flatten() for g in row]) for row in rows])


@dataclass(frozen=True)
class TokenWindow:
    """What comes of a window of sequences cut into micro-batches."""

    targets: tuple[int, ...]  # of each micro-batch
    weights: tuple[float, ...]  # what each target of a micro-batch counts
    error: float  # length of the gradient's error over the full-batch gradient's length
    loss_is_nan: bool  # a mean over no target is; cross_entropy's gradient of it is 0 all the same

    @property
    def shares(self) -> list[float]:
        """For each target in order its weight in fair shares: 1 is fair."""
        total = sum(self.targets)
        pairs = zip(self.targets, self.weights, strict=True)
        return [weight * total for count, weight in pairs for _ in range(count)]

    @property
    def owners(self) -> list[int]:
        """For each target in order the number of its micro-batch, from 0."""
        return [number for number, count in enumerate(self.targets) for _ in range(count)]


@same_on_every_device()
def token_window(targets: Sequence[int], sizes: Sequence[int], rule: str) -> TokenWindow:
    """The gradient of the small language model over sequences in micro-batches.

    Args:
        targets: how many each sequence has, 0 to 12; 0 is all ignored.
        sizes: how many sequences each micro-batch holds.
        rule: "means" (each micro-batch's mean loss over their number), "sequences" (weighted by
            their sequences) or "tokens" (weighted by their targets).

    Raises:
        TypeError, ValueError: a number or name is not allowed; it says what is.
    """
    for count in targets:
        checks.whole_number("each of targets", count, 0, MOST_TARGETS)
    checks.micro_batch_sizes(sizes, len(targets))
    checks.one_of("rule", rule, RULES)
    counts = [sum(part) for part in _split(targets, sizes)]
    total = sum(counts)
    weights = []
    for count, size in zip(counts, sizes, strict=True):
        of_the_mean = {
            "means": 1 / len(sizes),
            "sequences": size / len(targets),
            "tokens": count / max(total, 1),
        }[rule]
        weights.append(of_the_mean / count if count else 0.0)
    window = TokenWindow(
        tuple(counts), tuple(weights), 0.0, not total or (rule != "tokens" and 0 in counts)
    )
    if not total:
        return window
    each = _each_targets_gradient(len(targets))
    present = torch.cat([each[i, :count] for i, count in enumerate(targets)])
    full = present.mean(0)
    gradient = torch.tensor(window.shares) / total @ present
    return replace(window, error=((gradient - full).norm() / full.norm()).item())


@cache
def _each_targets_gradient(count: int) -> Tensor:
    """The gradient of each target of ``count`` long sequences: (count, 12, parameters)."""
    model = tiny_language_model()
    longest = sequences([MOST_TARGETS + 1] * count)
    return torch.stack([target_gradients(model, sequence) for sequence in longest])


def _split(items: Sequence[int], sizes: Sequence[int]) -> list[Sequence[int]]:
    ends = itertools.accumulate(sizes)
    return [items[end - size : end] for end, size in zip(ends, sizes, strict=True)]
