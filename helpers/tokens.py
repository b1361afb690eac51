"""Sequences of unequal length: a small causal language model, padding, and counting targets."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.device import same_on_every_device

IGNORED = -100  # the label that cross_entropy leaves out, PyTorch's own default
VOCABULARY = 12


class TinyLanguageModel(nn.Module):
    """A causal transformer of one layer and one head: tokens (n, length) to logits (n, length, 12).

    About 3,000 parameters, no dropout; sequences of up to 64 tokens.
    """

    def __init__(self, width: int = 16):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, width), nn.Embedding(64, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attend, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.place.weight[: tokens.shape[1]]
        query, key, value = self.attend(self.norms[0](x)).chunk(3, dim=-1)
        x = x + self.mix(F.scaled_dot_product_attention(query, key, value, is_causal=True))
        return self.head(x + self.think(self.norms[1](x)))


def tiny_language_model(device: torch.device | str = "cpu", seed: int = 0) -> TinyLanguageModel:
    """The model with weights drawn on the CPU from ``seed``; the caller's random state is kept."""
    with same_on_every_device(seed):
        return TinyLanguageModel().to(device)


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
