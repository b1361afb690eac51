"""What lesson 06 says, and whether its checks tell right answers from wrong ones."""

import pytest
import torch

from tests.exercises.answering import is_right, ran, verdict


@pytest.fixture(scope="module")
def lesson():
    return ran("06", "set-up", "plain-loop")


@pytest.mark.parametrize(("size", "expected"), [(4, 1.0), (2, 1.96), (1, 3.88)])
def test_a_balancing_loss_is_not_the_mean_of_its_parts(size, expected):
    """By hand: 4 (4/4/4), 4 (0.49/2 + 0.49/2), 4 (0.97)."""
    chances = torch.full((4, 4), 0.01, dtype=torch.float64).fill_diagonal_(0.97)
    values = []
    for part in chances.split(size):
        sent = torch.bincount(part.argmax(1), minlength=4) / len(part)
        values.append(4 * (sent * part.mean(0)).sum().item())
    assert sum(values) / len(values) == pytest.approx(expected)


RIGHT = (
    "def momentum_for(m, k, checkpointed): return 1 - (1 - m) ** (1 / (k * (1 + checkpointed)))",
    "def momentum_for(m, k, c):\n    n = 2 * k if c else k\n    return 1 - (1 - m) ** n**-1",
    "import math\ndef momentum_for(m, k, c): return -math.expm1(math.log1p(-m) / (k << c))",
)
WRONG = (
    "def momentum_for(m, k, c): return m",
    "def momentum_for(m, k, c): return m / (2 * k if c else k)",
    "def momentum_for(m, k, c): return 1 - (1 - m) ** (1 / k)",
    "def momentum_for(m, k, c): return 1 - (1 - m) ** (1 / max(k, 2))",
    "def momentum_for(m, k, c): return 1 - (1 - m) ** (1 / (2 if c else k))",
    "def momentum_for(m, k, c): return 1 - (1 - m) ** (1 / (k + c))",
    "def momentum_for(m, k, c): return 1 - (1 - m) ** (1 / (k**2 if c else k))",
    "def momentum_for(m, k, c): return 1 - (1 - m) ** (k * (2 if c else 1))",
    "def momentum_for(m, k, c): return (1 - m) ** (1 / (k * (2 if c else 1)))",
    "def momentum_for(m, k, c): 1 - (1 - m) ** (1 / (k * (2 if c else 1)))",
)


@pytest.mark.parametrize("answer", RIGHT)
def test_any_right_momentum_is_taken(answer, lesson):
    assert is_right(verdict("06", "exercise-1", answer, lesson))


@pytest.mark.parametrize("answer", WRONG)
def test_a_wrong_momentum_is_told(answer, lesson):
    assert "✗" in verdict("06", "exercise-1", answer, lesson)


# the loop to write

LOOPS = {
    "a window at a time": """
def train_contrastive(model, optimizer, loader, k):
    parts = list(loader)
    for start in range(0, len(parts), k):
        window = parts[start : start + k]
        with torch.no_grad():
            z = torch.cat([model(part) for part in window])
        z.requires_grad_(True)
        (from_above,) = torch.autograd.grad(contrastive(z), z)
        optimizer.zero_grad()
        first = 0
        for part in window:
            model(part).backward(from_above[first : first + len(part)])
            first += len(part)
        optimizer.step()
""",
    "a whole first pass at once, and a product for the second": """
def train_contrastive(net, opt, data, steps):
    def update(window):
        with torch.no_grad():
            z = net(torch.cat(window))
        z.requires_grad_()
        contrastive(z).backward()
        for part, g in zip(window, z.grad.split([len(part) for part in window])):
            (net(part) * g).sum().backward()
        opt.step()
        opt.zero_grad(set_to_none=False)
    window = []
    for part in data:
        window.append(part)
        if len(window) == steps:
            update(window)
            window = []
    if window:
        update(window)
""",
    "embeddings detached one by one": """
def train_contrastive(model, optimizer, loader, k):
    window = []
    for number, part in enumerate(loader, start=1):
        window.append(part)
        if number % k and number < len(loader):
            continue
        leaves = []
        with torch.inference_mode():
            found = [model(part) for part in window]
        leaves = [z.clone().requires_grad_() for z in found]
        contrastive(torch.cat(leaves)).backward()
        optimizer.zero_grad()
        for part, leaf in zip(window, leaves):
            torch.autograd.backward(model(part), leaf.grad)
        optimizer.step()
        window.clear()
""",
}
CORE = """
def train_contrastive(model, optimizer, loader, k):
    parts = list(loader)
    for start in range(0, len(parts), k):
        window = parts[start : start + k]
        with torch.no_grad():
            z = torch.cat([model(part) for part in window]).requires_grad_()
        contrastive(z).backward()
        optimizer.zero_grad()
        for part, g in zip(window, z.grad.split([len(part) for part in window])):
            model(part).backward(g)
        optimizer.step()
"""
SECOND_PASS = CORE[CORE.index("        with torch") : CORE.index("        optimizer.step")]
FAULTS = {
    "divided in the second pass": ("backward(g)", "backward(g / len(window))"),
    "cleared after every micro-batch": ("backward(g)", "backward(g); optimizer.zero_grad()"),
    "never cleared": ("        optimizer.zero_grad()\n", ""),
    "every part the first part's gradient": ("backward(g)", "backward(z.grad[: len(part)])"),
    "a short window dropped": ("range(0, len(parts), k)", "range(0, len(parts) // k * k, k)"),
    "a step each micro-batch": ("backward(g)", "backward(g); optimizer.step()"),
    "the plain loop": (
        SECOND_PASS,
        "        optimizer.zero_grad()\n        for part in window:\n"
        "            (contrastive(model(part)) / len(window)).backward()\n",
    ),
    "one pass over the whole window": (
        SECOND_PASS,
        "        optimizer.zero_grad()\n        contrastive(model(torch.cat(window))).backward()\n",
    ),
    "one pass with all graphs kept": (
        SECOND_PASS,
        "        optimizer.zero_grad()\n        z = [model(part) for part in window]\n"
        "        contrastive(torch.cat(z)).backward()\n",
    ),
    "one pass, each graph gone through by itself": (
        SECOND_PASS,
        "        optimizer.zero_grad()\n        z = [model(part) for part in window]\n"
        "        leaf = torch.cat(z).detach().requires_grad_()\n"
        "        contrastive(leaf).backward()\n"
        "        for out, g in zip(z, leaf.grad.split([len(p) for p in window])):\n"
        "            out.backward(g)\n",
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_any_right_loop_is_taken(name, lesson):
    assert is_right(verdict("06", "exercise-2", LOOPS[name], lesson))


def test_the_loop_that_faults_are_planted_in_is_right(lesson):
    assert is_right(verdict("06", "exercise-2", CORE, lesson))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_loop_is_told(fault, lesson):
    right, wrong = FAULTS[fault]
    assert CORE.count(right) == 1
    assert "✗" in verdict("06", "exercise-2", CORE.replace(right, wrong), lesson)


def test_one_pass_is_told_of_its_graphs(lesson):
    right, wrong = FAULTS["one pass with all graphs kept"]
    told = verdict("06", "exercise-2", CORE.replace(right, wrong), lesson)
    assert "two graphs were alive" in told
    right, wrong = FAULTS["one pass over the whole window"]
    told = verdict("06", "exercise-2", CORE.replace(right, wrong), lesson)
    assert "a forward with a graph took 16 pairs at once, not 4" in told


@pytest.mark.parametrize("cell", ["exercise-1", "exercise-2"])
def test_a_stub_is_not_written_yet(cell, lesson):
    assert "not written yet" in verdict("06", cell, "", lesson)
