"""Two faults at once: both are named, or called unexplained; never is a wrong name among them."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from helpers.audit import audit
from tests.audit.loops import SGD, kinds

# What a loop does at micro-batch i of n, from 0, with windows of k: (steps there, clears there).
WINDOWS = {
    "": lambda i, n, k: (full := (i + 1) % k == 0 or i == n - 1, full),
    "window-dropped": lambda i, n, k: ((i + 1) % k == 0, (i + 1) % k == 0 or i == n - 1),
    "window-leaked": lambda i, n, k: (full := (i + 1) % k == 0, full),
    "boundary-off-by-one": lambda i, n, k: (early := i % k == 0, early),
    "cleared-inside-window": lambda i, n, k: (
        full := (i + 1) % k == 0 or i == n - 1,
        full or i == k,
    ),
    "never-cleared": lambda i, n, k: ((i + 1) % k == 0 or i == n - 1, False),
    "stepped-every-micro-batch": lambda i, n, k: (True, True),
}
# What a mean loss is multiplied by: of a micro-batch of so many, in a window of so many micro-
# batches and elements.
SCALES = {
    (): lambda size, k, m, elements: size / elements,
    ("loss-not-divided",): lambda size, k, m, elements: 1,
    ("mean-of-means", "short-window-divided-by-k"): lambda size, k, m, elements: 1 / k,
    ("mean-of-means",): lambda size, k, m, elements: 1 / m,
    ("divided-twice", "mean-of-means"): lambda size, k, m, elements: 1 / (m * k),
    ("divided-twice",): lambda size, k, m, elements: size / elements / k,
    ("wrong-divisor",): lambda size, k, m, elements: size / 7.3,
}


def squares(model, batch):
    return (model(batch[0]) - batch[1]).square().flatten()


def looping(windows, scale, k, backwards, decay):
    def train(model, batches):
        optimizer, batches = SGD(model.parameters(), 0.01), list(batches)
        for _ in range(2):
            for i, batch in enumerate(batches[::-1] if backwards else batches):
                start = i - i % k
                order = batches[::-1] if backwards else batches
                sizes = [len(x) for x, _ in order[start : start + k]]
                factor = scale(len(batch[0]), k, len(sizes), sum(sizes))
                (squares(model, batch).mean() * factor).backward()
                step, clear = windows(i, len(batches), k)
                if step:
                    optimizer.step()
                if clear:
                    optimizer.zero_grad()
                if decay:
                    with torch.no_grad():
                        model[0].weight.mul_(0.99)

    return train


@settings(max_examples=30)
@given(
    sizes=st.lists(st.integers(2, 6), min_size=4, max_size=9),
    k=st.integers(2, 4),
    windows=st.sampled_from(sorted(WINDOWS)),
    scale=st.sampled_from(sorted(SCALES)),
    backwards=st.booleans(),
    decay=st.booleans(),
    seed=st.integers(0, 9),
)
def test_no_wrong_name(sizes, k, windows, scale, backwards, decay, seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    batches = [(torch.randn(n, 3).double(), torch.randn(n, 1).double()) for n in sizes]
    train = looping(WINDOWS[windows], SCALES[scale], k, backwards, decay)
    planted = {windows, *scale, "unexplained"}
    planted |= {"order-or-data-differ"} if backwards else set()
    planted |= {"weights-moved-between-updates"} if decay else set()
    found = kinds(audit(train, model, batches, squares, k))
    assert found <= planted, (found, planted)
