"""The models of the course, small enough to follow; each is the same on every device."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from helpers import checks
from helpers.device import same_on_every_device

VOCABULARY = 12  # tokens of the small language model


def one_neuron(device: torch.device | str = "cpu") -> nn.Linear:
    """A line y = weight * x + bias with weight 1 and bias 0; no random number is drawn."""
    model = nn.utils.skip_init(nn.Linear, 1, 1, device=device)
    nn.init.ones_(model.weight)
    nn.init.zeros_(model.bias)
    return model


def micro_batch_model(weights: int = 1) -> nn.Linear:
    """Weights of 0, no bias: for inputs c the output is the sum of c * weight, its gradient c."""
    checks.whole_number("weights", weights, 1)
    model = nn.utils.skip_init(nn.Linear, weights, 1, bias=False)
    nn.init.zeros_(model.weight)
    return model


def small_convnet(device: torch.device | str = "cpu", seed: int = 0) -> nn.Sequential:
    """A convolutional net for 8x8 digits without BatchNorm: 1,898 parameters, 10 logits.

    The weights are drawn on the CPU from ``seed``, so they are the same on every device, and the
    caller's random state stays as it was.
    """
    with same_on_every_device(seed):
        model = nn.Sequential(
            nn.Conv2d(1, 8, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64, 10),
        )
    return model.to(device)


def net_with(norm: nn.Module, device: torch.device | str = "cpu") -> nn.Sequential:
    """4 features to 8, ``norm`` of 8 features, tanh, 1 output; the same weights at every call."""
    with same_on_every_device(seed=0):
        net = nn.Sequential(nn.Linear(4, 8), norm, nn.Tanh(), nn.Linear(8, 1))
    return net.to(device)


def encoder(dropout: float, device: torch.device | str = "cpu") -> nn.Sequential:
    """4 features to an embedding of 3, with dropout before the last layer; always the same."""
    with same_on_every_device(seed=0):
        layers = nn.Linear(4, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3)
    return nn.Sequential(*layers).to(device)


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


class TransformerLayer(nn.Module):
    """A transformer layer as its memory was first written down.

    Takes and returns (batch, sequence, hidden). LayerNorm, attention with a softmax and a dropout
    of its own, LayerNorm, a GELU between 4 times the width, and a dropout before each residual sum.
    No mask: the paper counts none.

    Source: V. Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models,
    arXiv 2205.05198.
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
    """A :class:`TransformerLayer` with weights in half precision, as the paper's formula assumes.

    Raises:
        TypeError, ValueError: a size is no whole number, ``heads`` doesn't divide ``hidden``, or
            ``dropout`` is not in 0..1 (1 excluded).
    """
    checks.attention_heads(hidden, heads)
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")
    return TransformerLayer(hidden, heads, dropout, device=device, dtype=dtype)
