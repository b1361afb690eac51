"""The runs behind the equivalence panel once more: in float64, without modules or optimizers."""

from functools import lru_cache

import torch
from torch.nn.functional import group_norm

# What a run on whole batches has in the place of a choice, where k = 1 alone makes no difference.
FULL = {
    "on": "off",
    "on, momentum corrected": "off",
    "negatives, cached embeddings": "in-batch negatives",
    "other masks": "the same masks",
    "grows in the window": "held",
    "bfloat16": "float32",
}


@lru_cache(maxsize=256)
def distances_again(chosen: tuple[tuple[str, str], ...], k: int) -> dict[str, list[float]]:
    """Distances to whole batches by what they are of, after 0 to 8 updates; gradient's alone."""
    causes = dict(chosen)
    of_the_full_batch = {name: FULL.get(choice, choice) for name, choice in chosen}
    run, full = run_again(causes, k), run_again(of_the_full_batch, 1)
    shares = {"gradient": [((run[0] - full[0]).norm() / full[0].norm()).item()]}
    names = ["weights", "moving average", "running statistics"]
    for name, trail, other in zip(names, run[1:], full[1:], strict=True):
        if trail[0] is not None:
            pairs = [
                ((a - b).norm().item(), (b - other[0]).norm().item())
                for a, b in zip(trail, other, strict=True)
            ]
            shares[name] = [apart / gone if gone else 0.0 for apart, gone in pairs]
    return shares


def run_again(causes, k):
    """The first window's gradient, then weights, averages and statistics after each update."""
    data = torch.Generator().manual_seed(0)
    x = torch.randn(16, 4, generator=data).double()
    y = torch.randn(16, 3, generator=data).double()
    weights, statistics = start(causes["normalisation"])
    moves = (k if "BatchNorm, m" in causes["normalisation"] else 1) * (
        2 if "corrected" in causes["checkpointing"] else 1
    )
    statistics_momentum = 1 - 0.9 ** (1 / moves)
    velocity, scheduled, first_gradient = None, 0, 0
    average = flat(weights)
    trail = [(average, average, statistics)]
    size = 16 // k
    for update in range(8):
        masks = masks_of(causes["dropout"], update, k)
        parts = [slice(i * size, (i + 1) * size) for i in range(k)]
        held = [torch.zeros_like(w) for w in weights]

        def forward(part, moved, weights, masks=masks):
            nonlocal statistics
            hidden = x[part] @ weights[0].T + weights[1]
            hidden, seen = normalised(hidden, causes["normalisation"], weights)
            for _ in range(moved if seen is not None else 0):
                statistics = statistics + statistics_momentum * (seen - statistics)
            return (torch.tanh(hidden) * masks[part]) @ weights[2].T + weights[3]

        twice = 1 if causes["checkpointing"] == "off" else 2
        cached = causes["loss"] == "negatives, cached embeddings"
        if cached:  # the gradient of the mean over rows of logsumexp(o·P') - o·p, row by row
            scores = torch.cat([forward(part, 1, weights) for part in parts]) @ y.T
            from_above = (scores.softmax(1) @ y - y) / 16
        for i, part in enumerate(parts):
            scale = 2 if causes["loss_scale"] != "held" and 2 * i >= k else 1
            free = [w.clone().requires_grad_() for w in weights]
            outputs = forward(part, twice, free)
            if cached:
                loss = (outputs * from_above[part]).sum()
            elif causes["loss"] == "each sample's own":
                loss = ((outputs - y[part]) ** 2).sum() / 48
            else:
                loss = picking(outputs, y[part]) / k
            new = torch.autograd.grad(scale * loss, free)
            held = [h + n for h, n in zip(held, new, strict=True)]
            if causes["accumulator"] == "bfloat16":
                held = [h.float().bfloat16().double() for h in held]
            if causes["clipping"] == "each micro-batch":
                held = clipped(held)
            last = i == k - 1
            if last or causes["stepping"] == "each micro-batch":
                held = [h / scale for h in held]
                if causes["clipping"] == "once a window":
                    held = clipped(held)
                if update == 0:
                    first_gradient = first_gradient + flat(held)
                pull = [h + 0.1 * w for h, w in zip(held, weights, strict=True)]
                velocity = [
                    0.9 * v + p for v, p in zip(velocity or [0] * len(pull), pull, strict=True)
                ]
                lr = 0.1 * min(scheduled + 1, 8) / 8
                weights = [w - lr * v for w, v in zip(weights, velocity, strict=True)]
                held = [torch.zeros_like(w) for w in weights]
            if last or causes["schedule"] == "each micro-batch":
                scheduled += 1
            if last or causes["averaging"] == "each micro-batch":
                average = 0.9 * average + 0.1 * flat(weights)
        trail.append((flat(weights), average, statistics))
    return first_gradient, *zip(*trail, strict=True)


def start(normalisation):
    """The first layer's weights and bias, the last's, the norm's; and running statistics."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)
    weights = [p.detach().double() for layer in layers for p in layer.parameters()]
    if normalisation != "none":
        weights += [torch.ones(8).double(), torch.zeros(8).double()]
    kept = torch.cat([torch.zeros(8), torch.ones(8)]).double()
    return weights, kept if "BatchNorm" in normalisation else None


def normalised(hidden, normalisation, weights):
    """The hidden layer normalised; and what running statistics see of it, if they move."""
    if normalisation == "none":
        return hidden, None
    if normalisation == "GroupNorm":
        return group_norm(hidden, 2, *weights[4:]), None
    if normalisation == "BatchNorm, frozen":
        return hidden / (1 + 1e-5) ** 0.5 * weights[4] + weights[5], None
    centred = hidden - hidden.mean(0)
    variance = (centred**2).mean(0)
    seen = torch.cat([hidden.mean(0), variance * len(hidden) / (len(hidden) - 1)]).detach()
    return centred / (variance + 1e-5).sqrt() * weights[4] + weights[5], seen


def masks_of(dropout, update, k):
    if dropout == "off":
        return torch.ones(16, 8).double()
    chance = torch.Generator().manual_seed(1000 * update + (k if dropout == "other masks" else 0))
    return torch.where(torch.rand(16, 8, generator=chance) < 0.5, 2.0, 0.0).double()


def picking(outputs, partners):
    """Mean of minus the log-probability that each output picks its own partner."""
    scores = outputs @ partners.T
    return (scores.logsumexp(1) - scores.diagonal()).mean()


def clipped(held):
    length = flat(held).norm()
    return [h * min(1.0, 0.25 / (length.item() + 1e-6)) for h in held]


def flat(tensors):
    return torch.cat([t.flatten() for t in tensors])
