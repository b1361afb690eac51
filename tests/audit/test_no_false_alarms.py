"""Right loops of every sort are found right."""

import contextlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from helpers.audit import audit
from helpers.models import small_convnet, tiny_language_model
from helpers.samples import digits
from tests.audit.loops import SGD, kinds, windows

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "Adafactor": lambda p: torch.optim.Adafactor(p),
    "Rprop": lambda p: torch.optim.Rprop(p),
}
POLICIES = ("flush", "carry on", "drop")


def net(hidden, outputs=1):
    return nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


def each(model, batch):
    return (model(batch[0]) - batch[1]).square().flatten()


def training(k, epochs, policy, optimizer, reduction="mean", max_norm=None, rescale=False):
    """A right loop of nearly any sort."""

    def train(model, batches):
        steps = optimizer(model.parameters())
        waiting = []

        def update():
            elements = sum(len(x) for x, _ in waiting)
            count = 1 if reduction == "sum" else elements
            for batch in waiting:
                (each(model, batch).sum() / (1 if rescale else count)).backward()
            if rescale:
                for parameter in model.parameters():
                    parameter.grad.div_(count)
            if max_norm:
                nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            steps.step()
            steps.zero_grad()
            waiting.clear()

        for _ in range(epochs):
            for batch in batches:
                waiting.append(batch)
                if len(waiting) == k:
                    update()
            if waiting and policy == "flush":
                update()
            if policy == "drop":
                waiting.clear()

    return train


@settings(max_examples=30)
@given(
    sizes=st.lists(st.integers(2, 6), min_size=2, max_size=9),
    k=st.integers(1, 5),
    epochs=st.integers(1, 3),
    policy=st.sampled_from(POLICIES),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    reduction=st.sampled_from(("mean", "sum")),
    max_norm=st.sampled_from((None, 0.01, 1.0)),
    told=st.booleans(),
    rescale=st.booleans(),
    dtype=st.sampled_from((torch.float32, torch.float64)),
    seed=st.integers(0, 99),
)
def test_right_loops_are_right(
    sizes, k, epochs, policy, optimizer, reduction, max_norm, told, rescale, dtype, seed
):
    torch.manual_seed(seed)
    model = net(1 + seed % 9).to(dtype)
    batches = [(torch.randn(n, 4, dtype=dtype), torch.randn(n, 1, dtype=dtype)) for n in sizes]
    train = training(k, epochs, policy, OPTIMIZERS[optimizer], reduction, max_norm, rescale)
    whole = len(sizes) >= k or policy == "flush"
    meant = {"last_window": policy, "reduction": reduction, "max_norm": max_norm} if told else {}
    if not told and policy != "flush" and len(sizes) % k:
        meant = {"last_window": policy}  # a window left over at the end has to be meant
    if reduction == "sum" and (rescale or max_norm):
        meant |= {"reduction": "sum"}
    if not whole and (policy == "drop" or len(sizes) * epochs < k):
        return
    report = audit(train, model, batches, each, k, **meant)
    assert report.ok, str(report)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("k", [2, 5])
def test_narrow_types_are_right_up_to_their_rounding(dtype, k):
    torch.manual_seed(0)
    batches = [(torch.randn(n, 4, dtype=dtype), torch.randn(n, 1, dtype=dtype)) for n in (3, 5) * 5]
    model = net(8).to(dtype)
    report = audit(training(k, 2, "flush", OPTIMIZERS["SGD"]), model, batches, each, k)
    assert report.ok, str(report)


def test_autocast_is_followed():
    torch.manual_seed(0)
    batches = [(torch.randn(6, 4), torch.randn(6, 1)) for _ in range(4)]

    def train(model, batches):
        optimizer = SGD(model.parameters(), 0.1)
        for window in windows(batches, 2):
            for batch in window:
                with torch.autocast("cpu", torch.bfloat16):
                    loss = each(model, batch).mean() / 2
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    assert audit(train, net(8), batches, each, 2).ok


def accumulate(loss, k, epochs=1, optimizer=OPTIMIZERS["AdamW"], around=contextlib.nullcontext):
    """The sum of the losses of each window over the number of its elements."""

    def train(model, batches):
        steps = optimizer(model.parameters())
        for _ in range(epochs):
            for window in windows(batches, k):
                with torch.no_grad():
                    count = sum(len(loss(model, batch)) for batch in window)
                for batch in window:
                    with around():
                        (loss(model, batch).sum() / count).backward()
                steps.step()
                steps.zero_grad()

    return train


def entropies(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def test_the_digits_net_trained_for_an_epoch():
    x, y = digits(128)
    batches = list(zip(x.split(16), y.split(16), strict=True))
    report = audit(accumulate(entropies, 4), small_convnet(), batches, entropies, 4)
    assert report.ok
    assert max(u.comparison.relative_difference for u in report.updates) < 1e-5


def next_tokens(model, rows):
    logits, labels = model(rows[:, :-1]), rows[:, 1:].clone()
    labels[labels == 0] = -100
    losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return losses[labels.flatten() != -100]


def test_the_small_language_model_counting_tokens():
    torch.manual_seed(0)
    batches = [torch.randint(0, 12, (3, n)) for n in (5, 9, 7, 4, 12)]
    report = audit(accumulate(next_tokens, 2), tiny_language_model(), batches, next_tokens, 2)
    assert report.ok, str(report)
    means = [b for b in batches for _ in (0,)]

    def naive(model, batches):
        optimizer = SGD(model.parameters(), 0.1)
        for window in windows(batches, 2):
            for rows in window:
                (next_tokens(model, rows).mean() / len(window)).backward()
            optimizer.step()
            optimizer.zero_grad()

    found = audit(naive, tiny_language_model(), means, next_tokens, 2)
    assert kinds(found) == {"mean-of-means"}


def test_weighted_means():
    def weighted(model, batch):
        return each(model, batch), batch[0][:, 0].abs()

    def train(model, batches):
        optimizer = SGD(model.parameters(), 0.1)
        for window in windows(batches, 2):
            total = sum(batch[0][:, 0].abs().sum() for batch in window)
            for batch in window:
                losses, weights = weighted(model, batch)
                ((losses * weights).sum() / total).backward()
            optimizer.step()
            optimizer.zero_grad()

    torch.manual_seed(0)
    batches = [(torch.randn(n, 4), torch.randn(n, 1)) for n in (3, 5, 2, 4)]
    assert audit(train, net(5), batches, weighted, 2).ok

    def means(model, batches):
        optimizer = SGD(model.parameters(), 0.1)
        for window in windows(batches, 2):
            for batch in window:
                losses, weights = weighted(model, batch)
                ((losses * weights).sum() / weights.sum() / 2).backward()
            optimizer.step()
            optimizer.zero_grad()

    assert kinds(audit(means, net(5), batches, weighted, 2)) == {"mean-of-means"}


BATCHES = [(torch.linspace(-1, 1, 12).reshape(3, 4) * i, torch.ones(3, 1)) for i in (1, 2, 3, 4, 5)]


def mean_loop(prepare=lambda model: None, forward=lambda model, x: model(x), every=lambda m, b: 0):
    def train(model, batches):
        optimizer = prepare(model) or SGD(model.parameters(), 0.1)
        optimizers = optimizer if isinstance(optimizer, list) else [optimizer]
        for _ in range(2):
            for window in windows(batches, 2):
                for x, y in window:
                    loss = (forward(model, x) - y).square().mean()
                    (loss / len(window)).backward()
                    every(model, (x, y))
                for each_one in optimizers:
                    each_one.step()
                    each_one.zero_grad()

    return train


def halves(model):
    return [SGD(model[0].parameters(), 0.1), torch.optim.Adam(model[2].parameters(), 0.01)]


def frozen(model):
    model[0].requires_grad_(False)


def head_only(model):
    return SGD(model[2].parameters(), 0.1)


def evaluating(model, batch):
    with torch.no_grad():
        model.eval()
        model(batch[0] * 3)
        model.train()


def checkpointed(model, x):
    return torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)


@pytest.mark.parametrize(
    "train",
    [
        mean_loop(halves),
        mean_loop(frozen),
        mean_loop(head_only),
        mean_loop(every=evaluating),
        mean_loop(forward=checkpointed),
        mean_loop(forward=lambda model, x: model(input=x)),
        mean_loop(forward=lambda model, x: model.float()(x.clone().reshape(3, 4))),
    ],
    ids=["two optimizers", "frozen", "head only", "evaluating", "checkpoint", "keyword", "cloned"],
)
def test_loops_as_they_are_written(train):
    report = audit(train, net(5), BATCHES, each, 2)
    assert report.ok, str(report)


def test_gradients_set_by_hand_are_held_against_the_whole_window():
    def by_hand(divisor):
        def train(model, batches):
            optimizer, parameters = SGD(model.parameters(), 0.1), [*model.parameters()]
            for window in windows(batches, 2):
                total = [torch.zeros_like(p) for p in parameters]
                for batch in window:
                    loss = each(model, batch).mean() / divisor(window)
                    for t, g in zip(total, torch.autograd.grad(loss, parameters), strict=True):
                        t += g
                for p, t in zip(parameters, total, strict=True):
                    p.grad = t
                optimizer.step()
                optimizer.zero_grad()

        return train

    assert audit(by_hand(len), net(5), BATCHES, each, 2).ok
    report = audit(by_hand(lambda window: 1), net(5), BATCHES, each, 2)
    assert kinds(report) == {"loss-not-divided"}
