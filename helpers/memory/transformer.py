"""A transformer layer as its memory was first written down, and the formula for it."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from helpers.samples import whole_number

RECOMPUTED = ("nothing", "attention", "layer")


def activation_formula(
    sequence: int, batch: int, hidden: int, heads: int, recompute: str = "nothing"
) -> int:
    """Bytes that one transformer layer keeps for backward in half precision.

    s·b·h·(34 + 5·a·s/h) for a sequence of s tokens, a (micro-)batch of b, hidden size h and a
    heads. Recomputing the attention's softmax and dropout leaves 34·s·b·h, the whole layer 2·s·b·h.

    Source: V. Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models,
    arXiv 2205.05198, equation 1 and table 2. It leaves out what is small beside s·b·h.
    """
    _check(hidden, heads)
    whole_number("sequence", sequence, 1)
    whole_number("batch", batch, 1)
    if recompute not in RECOMPUTED:
        raise ValueError(f"recompute must be one of {', '.join(RECOMPUTED)}, got {recompute!r}")
    tokens = sequence * batch * hidden
    if recompute == "layer":
        return 2 * tokens
    return 34 * tokens + (5 * heads * sequence**2 * batch if recompute == "nothing" else 0)


class TransformerLayer(nn.Module):
    """The layer of that paper: (batch, sequence, hidden) in and out.

    LayerNorm, attention with a softmax and a dropout of its own, LayerNorm, a GELU between 4 times
    the width, and a dropout before each residual sum. No mask: the paper counts none.
    """

    def __init__(self, hidden: int, heads: int, dropout: float = 0.1, **kind: Any):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norms = nn.ModuleList(nn.LayerNorm(hidden, **kind) for _ in range(2))
        self.attend = nn.Linear(hidden, 3 * hidden, **kind)
        self.mix = nn.Linear(hidden, hidden, **kind)
        self.grow = nn.Linear(hidden, 4 * hidden, **kind)
        self.shrink = nn.Linear(4 * hidden, hidden, **kind)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.mix(self.attention(self.norms[0](x))))
        return x + self.drop(self.shrink(F.gelu(self.grow(self.norms[1](x)))))

    def attention(self, x: Tensor) -> Tensor:
        split = self.attend(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = split  # each (batch, heads, sequence, hidden / heads)
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        mixed = self.drop(scores.softmax(-1)) @ value
        return mixed.transpose(1, 2).flatten(2)

    def drop(self, x: Tensor) -> Tensor:
        # F.dropout keeps a mask of one byte a number on CUDA, but on a CPU one as wide as x.
        return torch.native_dropout(x, self.dropout, self.training)[0]


def transformer_layer(
    hidden: int,
    heads: int,
    dropout: float = 0.1,
    dtype: torch.dtype = torch.bfloat16,
    device: torch.device | str | None = None,
) -> TransformerLayer:
    """A :class:`TransformerLayer` with weights in half precision, as the formula assumes.

    Raises:
        TypeError, ValueError: a size is no whole number, ``heads`` doesn't divide ``hidden``, or
            ``dropout`` is not in 0..1 (1 excluded).
    """
    _check(hidden, heads)
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")
    return TransformerLayer(hidden, heads, dropout, device=device, dtype=dtype)


def _check(hidden: int, heads: int) -> None:
    whole_number("hidden", hidden, 1)
    whole_number("heads", heads, 1)
    if hidden % heads:
        raise ValueError(f"heads={heads} must divide hidden={hidden}")
