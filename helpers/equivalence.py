"""One small net trained twice, on whole batches and accumulated, with causes of difference.

The accumulated run is as right as a loop can be: equal micro-batches, each loss divided by their
number. Each cause in :class:`Causes` takes away one thing that makes a window a large batch. All
these runs are on the CPU, where so small a net is quickest.

At the end stand two nets for measurements on any device.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.optim import SGD
from torch.utils.checkpoint import checkpoint

from helpers.device import same_on_every_device
from helpers.gradients import flat_gradient, flat_weights
from helpers.samples import whole_number

SAMPLES, FEATURES, HIDDEN, OUTPUTS = 16, 4, 8, 3
STEPS = (1, 2, 4, 8)
UPDATES = WARM_UP = 8
LR, MOMENTUM, WEIGHT_DECAY, MAX_NORM = 0.1, 0.9, 0.1, 0.25
EMA_DECAY, BN_MOMENTUM = 0.9, 0.1

ONCE, EACH = "once a window", "each micro-batch"
# For each cause what it may be, and what a run on whole batches has in that place. The first is
# the cause taken away.
CHOICES = {
    "normalisation": {
        "none": "none",
        "BatchNorm": "BatchNorm",
        "BatchNorm, momentum corrected": "BatchNorm",
        "BatchNorm, frozen": "BatchNorm, frozen",
        "GroupNorm": "GroupNorm",
    },
    "checkpointing": {"off": "off", "on": "off", "on, momentum corrected": "off"},
    "loss": {
        "each sample's own": "each sample's own",
        "in-batch negatives": "in-batch negatives",
        "negatives, cached embeddings": "in-batch negatives",
    },
    "dropout": {"off": "off", "other masks": "the same masks", "the same masks": "the same masks"},
    "clipping": {"off": "off", ONCE: ONCE, EACH: ONCE},
    "stepping": {ONCE: ONCE, EACH: ONCE},
    "schedule": {ONCE: ONCE, EACH: ONCE},
    "averaging": {ONCE: ONCE, EACH: ONCE},
    "loss_scale": {"held": "held", "grows in the window": "held"},
    "accumulator": {"float32": "float32", "bfloat16": "float32"},
}


@dataclass(frozen=True)
class Causes:
    """What the net has and what its loop does, a choice from ``CHOICES`` for each.

    Raises:
        ValueError: a cause is none of its choices.
    """

    normalisation: str = "none"
    checkpointing: str = "off"  # of the hidden layer
    loss: str = "each sample's own"
    dropout: str = "off"
    clipping: str = "off"
    stepping: str = ONCE  # the optimizer, and with it momentum and weight decay
    schedule: str = ONCE
    averaging: str = ONCE  # of the weights, EMA
    loss_scale: str = "held"
    accumulator: str = "float32"

    def __post_init__(self):
        for name, value in asdict(self).items():
            if value not in CHOICES[name]:
                allowed = ", ".join(map(repr, CHOICES[name]))
                raise ValueError(f"{name} must be one of {allowed}, got {value!r}")

    @property
    def of_the_full_batch(self) -> "Causes":
        """The same net and recipe as a run on whole batches has them."""
        return Causes(**{name: CHOICES[name][value] for name, value in asdict(self).items()})


def corrected_momentum(momentum: float, times: int) -> float:
    """The momentum with which ``times`` moves of a running average go as far as one would."""
    whole_number("times", times, 1)
    if not 0 <= momentum <= 1:
        raise ValueError(f"momentum must be from 0 to 1, got {momentum}")
    return 1 - (1 - momentum) ** (1 / times)


class SmallNet(nn.Module):
    """4 features to 8 hidden to 3 outputs; its normalisation and checkpointing by the causes."""

    def __init__(self, causes: Causes, accumulation_steps: int):
        super().__init__()
        with same_on_every_device(seed=0):
            self.first, self.last = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, OUTPUTS)
        moves = accumulation_steps if "corrected" in causes.normalisation else 1
        moves *= 2 if "corrected" in causes.checkpointing else 1
        self.norm: nn.Module = nn.Identity()
        if causes.normalisation == "GroupNorm":
            self.norm = nn.GroupNorm(2, HIDDEN)
        elif causes.normalisation != "none":
            self.norm = nn.BatchNorm1d(HIDDEN, momentum=corrected_momentum(BN_MOMENTUM, moves))
        self.norm.train("frozen" not in causes.normalisation)
        self.checkpointing = causes.checkpointing != "off"

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Outputs (samples, 3) for inputs (samples, 4) and factors (samples, 8) for dropout."""
        if self.checkpointing and torch.is_grad_enabled():
            hidden = checkpoint(self.hidden, x, use_reentrant=False)
        else:
            hidden = self.hidden(x)
        return self.last(hidden * mask)

    def hidden(self, x: Tensor) -> Tensor:
        return torch.tanh(self.norm(self.first(x)))


def own_loss(outputs: Tensor, y: Tensor) -> Tensor:
    """Mean squared error: each sample's term depends on that sample alone."""
    return mse_loss(outputs, y)


def contrastive_loss(outputs: Tensor, partners: Tensor) -> Tensor:
    """Cross entropy of picking each output's own partner among all that are in the batch."""
    return cross_entropy(outputs @ partners.T, torch.arange(len(partners), device=outputs.device))


@dataclass(frozen=True)
class Trail:
    """What a run left. Row u of each table is after u updates, row 0 the start."""

    gradient: Tensor  # what the optimizer was handed in the first window
    weights: Tensor
    averaged: Tensor  # weights, by the moving average; float64, for it moves little at first
    statistics: Tensor  # running means and variances; no columns without BatchNorm


@lru_cache(maxsize=2048)
def train_with(causes: Causes, accumulation_steps: int) -> Trail:
    """Eight updates on the same 16 samples, each window cut into that many micro-batches.

    Raises:
        TypeError, ValueError: ``accumulation_steps`` is not 1, 2, 4 or 8.
    """
    whole_number("accumulation_steps", accumulation_steps, 1, STEPS[-1])
    if accumulation_steps not in STEPS:
        raise ValueError(f"accumulation_steps must be one of {STEPS}, got {accumulation_steps}")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small a net only loses time on waking others
    try:
        return accumulate_with(causes, accumulation_steps)
    finally:
        torch.set_num_threads(threads)


def accumulate_with(causes: Causes, k: int) -> Trail:
    """The loop behind :func:`train_with`."""
    loss_fn = own_loss if causes.loss == "each sample's own" else contrastive_loss
    model = SmallNet(causes, k)
    optimizer = SGD(model.parameters(), LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    averaged, scheduled, handed_over = flat_weights(model).double(), 0, 0
    trail = [(flat_weights(model), averaged, running_statistics(model))]
    for update in range(UPDATES):
        optimizer.zero_grad()  # clear
        window = draw_window(causes, k, update)
        cached = embedding_gradients(model, window) if "cached" in causes.loss else None
        for i, (x, y, mask) in enumerate(window):
            complete = i == k - 1
            scale = 2 if causes.loss_scale == "grows in the window" and i >= k / 2 else 1
            outputs = model(x, mask)  # forward
            if cached:
                outputs.backward(scale * cached[i])  # backward
            else:
                loss = scale * loss_fn(outputs, y) / k  # scale
                loss.backward()  # backward
            if causes.accumulator == "bfloat16":
                change_gradients(model, lambda held: held.bfloat16().float())
            if causes.clipping == EACH:
                nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
            if complete or causes.stepping == EACH:
                change_gradients(model, lambda held, scale=scale: held / scale)
                if causes.clipping == ONCE:
                    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
                if update == 0:
                    handed_over = handed_over + flat_gradient(model)
                optimizer.param_groups[0]["lr"] = LR * min((scheduled + 1) / WARM_UP, 1)
                optimizer.step()  # step
                optimizer.zero_grad()  # clear
            if complete or causes.schedule == EACH:
                scheduled += 1
            if complete or causes.averaging == EACH:
                averaged = averaged.lerp(flat_weights(model).double(), 1 - EMA_DECAY)
        trail.append((flat_weights(model), averaged, running_statistics(model)))
    return Trail(handed_over, *map(torch.stack, zip(*trail, strict=True)))


def draw_window(causes: Causes, k: int, update: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Inputs, targets and dropout factors of each micro-batch; the samples are always the same."""
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(SAMPLES, FEATURES, generator=chance)
    y = torch.randn(SAMPLES, OUTPUTS, generator=chance)
    masks = torch.ones(SAMPLES, HIDDEN)
    if causes.dropout != "off":
        # Each run that draws its own gets other masks: k is part of the seed.
        chance.manual_seed(1000 * update + (k if causes.dropout == "other masks" else 0))
        masks = 2.0 * (torch.rand(SAMPLES, HIDDEN, generator=chance) < 0.5)
    size = SAMPLES // k
    return list(zip(x.split(size), y.split(size), masks.split(size), strict=True))


def embedding_gradients(
    model: Callable[[Tensor, Tensor], Tensor], window: Sequence[tuple[Tensor, Tensor, Tensor]]
) -> list[Tensor]:
    """First of two passes: for each micro-batch the gradient of the whole window's contrastive
    loss with respect to its outputs, which no graph of the model is kept for.

    Source: Gao, Zhang, Han and Callan, Scaling Deep Contrastive Learning Batch Size under Memory
    Limited Setup (2021).
    """
    with torch.no_grad():
        outputs = [model(x, mask) for x, _, mask in window]
    together = torch.cat(outputs).requires_grad_()
    loss = contrastive_loss(together, torch.cat([y for _, y, _ in window]))
    (gradient,) = torch.autograd.grad(loss, together)
    return list(gradient.split([len(part) for part in outputs]))


def change_gradients(model: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
    """Put ``change(held)`` in the place of each ``.grad``."""
    for parameter in model.parameters():
        parameter.grad = change(parameter.grad)


def running_statistics(model: SmallNet) -> Tensor:
    """Running means and variances as one flat tensor, empty without BatchNorm."""
    kept = [b for b in model.buffers() if b.is_floating_point()]
    return torch.cat([b.flatten() for b in kept]).clone() if kept else torch.zeros(0)


@dataclass(frozen=True)
class Distances:
    """How far an accumulated run is from the run on whole batches.

    The gradient in lengths of the full batch's; all else, for each number of updates from 0, in
    shares of the way that the full batch's run has gone by then.
    """

    gradient: float
    weights: tuple[float, ...]
    averaged: tuple[float, ...]
    statistics: tuple[float, ...] | None  # None where there are none


def distances(causes: Causes, accumulation_steps: int) -> Distances:
    """The accumulated run with these causes against whole batches, measured."""
    run = train_with(causes, accumulation_steps)
    full = train_with(causes.of_the_full_batch, 1)
    gradient = (run.gradient - full.gradient).norm() / full.gradient.norm()
    return Distances(
        gradient.item(),
        _shares(run.weights, full.weights),
        _shares(run.averaged, full.averaged),
        _shares(run.statistics, full.statistics) if full.statistics.numel() else None,
    )


def _shares(run: Tensor, full: Tensor) -> tuple[float, ...]:
    """Row by row the distance between two runs over the way one has gone; 0 where neither moved."""
    apart, gone = (run - full).norm(dim=1).tolist(), (full - full[0]).norm(dim=1).tolist()
    return tuple(a / g if g else (math.inf if a else 0.0) for a, g in zip(apart, gone, strict=True))


def net_with(norm: nn.Module, device: torch.device | str = "cpu") -> nn.Sequential:
    """4 features to 8, ``norm`` of 8 features, tanh, 1 output; the same weights at every call."""
    with same_on_every_device(seed=0):
        net = nn.Sequential(nn.Linear(FEATURES, 8), norm, nn.Tanh(), nn.Linear(8, 1))
    return net.to(device)


def encoder(dropout: float, device: torch.device | str = "cpu") -> nn.Sequential:
    """4 features to an embedding of 3, with dropout before the last layer; always the same."""
    with same_on_every_device(seed=0):
        layers = nn.Linear(FEATURES, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, OUTPUTS)
    return nn.Sequential(*layers).to(device)


def random_numbers(*shape: int, device: torch.device | str = "cpu") -> Tensor:
    """Normal random numbers, drawn on the CPU, the same at every call for one shape."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)


def whole_window_gradient(
    net: nn.Module, loss_fn: Callable[[Tensor], Tensor], parts: Sequence[Tensor], first_seed: int
) -> Tensor:
    """The gradient of a loss over all outputs at once, the graphs of all parts kept for it.

    Part i is run with seed ``first_seed + i``, so that its dropout masks are known. ``.grad`` is
    left with the gradient, the random state of the CPU as it was.
    """
    outputs = []
    with same_on_every_device():
        for i, part in enumerate(parts):
            torch.manual_seed(first_seed + i)
            outputs.append(net(part))
        net.zero_grad()
        loss_fn(torch.cat(outputs)).backward()
    return flat_gradient(net)
