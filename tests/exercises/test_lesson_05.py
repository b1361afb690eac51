"""What lesson 05 says, and whether its checks tell right answers from wrong ones."""

import pytest
import torch

from helpers.models import tiny_language_model
from helpers.subjects.tokens import count_targets, pad, sequences, token_loss
from tests.exercises.answering import is_right, ran, verdict


@pytest.fixture(scope="module")
def lesson():
    return ran("05", "set-up", "eight-sequences", "token-loop", "packing", "training", "train")


@pytest.fixture
def frozen():
    """The lesson's model on the CPU, its embeddings frozen, so that some .grad stays None."""
    model = tiny_language_model()
    model.token.requires_grad_(False)
    model.place.requires_grad_(False)
    return model


def token_mean(model, batch):
    tokens, labels = pad(batch)
    model.zero_grad()
    token_loss(model(tokens), labels).backward()
    return [p.grad.clone() for p in model.parameters() if p.requires_grad]


ROADS = {
    "look ahead": ("token-loop", "accumulate(window, 'weighted by tokens')"),
    "rescale": ("rescale", "accumulate_then_rescale(window)"),
}


@pytest.mark.parametrize("road", ROADS)
def test_both_ways_to_the_count_work_on_frozen_parameters(road, lesson, frozen):
    cell, call = ROADS[road]
    space = ran("05", "token-gradients", cell, space=dict(lesson))
    batch = sequences([3, 9, 20, 4])
    expected = token_mean(frozen, batch)
    space |= {"model": frozen, "device": "cpu", "window": [batch[:1], batch[1:3], batch[3:]]}
    eval(call, space)
    held = [p.grad for p in frozen.parameters() if p.requires_grad]
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(held, expected, strict=True))
    assert frozen.token.weight.grad is None


@pytest.mark.parametrize("road", ROADS)
def test_a_window_without_targets_leaves_a_gradient_of_zero(road, lesson, frozen):
    cell, call = ROADS[road]
    space = ran("05", "token-gradients", cell, space=dict(lesson))
    space |= {"model": frozen, "device": "cpu", "window": [sequences([1, 1]), sequences([1])]}
    eval(call, space)
    assert all((p.grad == 0).all() for p in frozen.parameters() if p.requires_grad)


def test_a_packed_row_has_one_target_fewer_for_each_sequence_in_it(lesson):
    assert lesson["packed"]([3, 5]) == (7, 6)
    assert lesson["packed"]([24]) == (23, 23)
    assert lesson["packed"]([3] * 8) == (23, 16)


def test_transformers_flattening_collator_leaves_the_borders_out():
    collator = pytest.importorskip("transformers").DataCollatorWithFlattening()
    rows = [{"input_ids": s.tolist()} for s in sequences([3, 5])]
    labels = collator(rows, return_tensors="pt")["labels"]
    assert count_targets(labels[:, 1:]) == 6


def test_a_real_token_may_be_0_as_padding_is():
    tokens, labels = pad(sequences([3, 5]))
    assert tokens[1, 4] == 0
    assert tokens.count_nonzero() == 7
    assert count_targets(labels) == 6


def test_not_seen_before_means_no_copy_of_a_training_sequence(lesson):
    unseen = {tuple(sequence.tolist()) for sequence in lesson["unseen"]}
    assert not unseen & lesson["trained_on"]
    assert (len(lesson["drawn"]), len(lesson["unseen"])) == (96, 71)


def test_trained_by_tokens_the_model_counts_short_ones_in_threes_too(lesson, monkeypatch):
    # Else the lesson puts it back into the state before the training.
    monkeypatch.setattr(lesson["model"], "load_state_dict", lambda state: None)
    lesson["train"]("weighted by tokens", 1)
    model, chance = lesson["model"].cpu(), {1: [], 3: []}
    for sequence in (s for s in lesson["unseen"] if len(s) <= 8):
        tokens, _ = pad([sequence])
        likely = model(tokens).softmax(-1)[0, :-1]
        for step, found in chance.items():
            next_ones = (sequence[:-1] + step) % 12
            found += likely[range(len(next_ones)), next_ones].tolist()
    in_ones, in_threes = (sum(found) / len(found) for found in chance.values())
    assert in_threes > 2 * in_ones


# the exercises

RIGHT = {
    "exercise-1": (
        "def shares(targets): return [sum(targets) / len(targets) / n for n in targets]",
        "def shares(targets): return tuple(sum(targets) / (n * len(targets)) for n in targets)",
        "def shares(targets): return torch.tensor(targets).double().mean() / torch.tensor(targets)",
        "shares = lambda targets: [sum(targets) / len(targets) * (1 / n) for n in targets]",
    ),
    "exercise-3": (
        "def rank_loss(loss_sum, targets, world): return loss_sum * world / targets",
        "def rank_loss(loss_sum, targets, world): return loss_sum / (targets / world)",
        "rank_loss = lambda loss, n, w: torch.tensor(float(loss)) / n * w",
    ),
}
WRONG = {
    "exercise-1": (
        "def shares(targets): return [1 / (len(targets) * n) for n in targets]",
        "def shares(targets): return [sum(targets) / n for n in targets]",
        "def shares(targets): return [sum(targets) / (2 * n) for n in targets]",
        "def shares(targets): return [n * len(targets) / sum(targets) for n in targets]",
        "def shares(targets): return [sum(targets) / (len(targets) * n) for n in targets][:-1]",
        "def shares(targets): return [1.0 for n in targets]",
        "def shares(targets): return 1.0",
    ),
    "exercise-3": (
        "def rank_loss(loss_sum, targets, world): return loss_sum / targets",
        "def rank_loss(loss_sum, targets, world): return 2 * loss_sum / targets",
        "def rank_loss(loss_sum, targets, world): return loss_sum * world",
        "def rank_loss(loss_sum, targets, world): return loss_sum / targets / world",
        "def rank_loss(loss_sum, targets, world): return loss_sum / world",
        "def rank_loss(loss_sum, targets, world): return max(world, 2) * loss_sum / targets",
        "def rank_loss(loss_sum, targets, world): loss_sum * world / targets",
    ),
}


@pytest.mark.parametrize(("cell", "answer"), [(c, a) for c, tried in RIGHT.items() for a in tried])
def test_any_right_answer_is_taken(cell, answer, lesson):
    assert is_right(verdict("05", cell, answer, lesson))


@pytest.mark.parametrize(("cell", "answer"), [(c, a) for c, tried in WRONG.items() for a in tried])
def test_a_wrong_answer_is_told(cell, answer, lesson):
    assert "✗" in verdict("05", cell, answer, lesson)


def test_a_list_of_the_wrong_length_is_told_as_such(lesson):
    short = "def shares(targets): return [sum(targets) / (len(targets) * n) for n in targets][:-1]"
    assert "2 long, should be 3" in verdict("05", "exercise-1", short, lesson)


@pytest.mark.parametrize("cell", RIGHT)
def test_a_stub_is_not_written_yet(cell, lesson):
    assert "not written yet" in verdict("05", cell, "", lesson)


# the loop to write

LOOPS = {
    "a window at a time": """
def train_by_tokens(model, optimizer, loader, k):
    window = []
    def update():
        n = sum(int((labels >= 0).sum()) for _, labels in window)
        if n:
            for tokens, labels in window:
                (token_loss(model(tokens), labels, "sum") / n).backward()
            optimizer.step()
            optimizer.zero_grad()
        window.clear()
    for batch in loader:
        window.append(batch)
        if len(window) == k:
            update()
    update()
""",
    "rescaled at the end": """
def train_by_tokens(net, opt, data, steps):
    def update(n):
        if n:
            for p in net.parameters():
                p.grad.div_(n)
            opt.step()
        opt.zero_grad(set_to_none=False)
    n = seen = 0
    for tokens, labels in data:
        token_loss(net(tokens), labels, "sum").backward()
        n, seen = n + count_targets(labels), seen + 1
        if seen == steps:
            update(n)
            n = seen = 0
    if seen:
        update(n)
""",
    "means weighted by their counts": """
def train_by_tokens(model, optimizer, loader, accumulation_steps):
    batches = list(loader)
    for start in range(0, len(batches), accumulation_steps):
        window = [b for b in batches[start : start + accumulation_steps] if count_targets(b[1])]
        if not window:
            continue
        total = sum(count_targets(labels) for _, labels in window)
        optimizer.zero_grad()
        for tokens, labels in window:
            loss = token_loss(model(tokens), labels) * count_targets(labels) / total
            loss.backward()
        optimizer.step()
""",
}
CORE = """
from itertools import islice
def train_by_tokens(model, optimizer, loader, k):
    batches = iter(loader)
    while window := list(islice(batches, k)):
        n = sum(count_targets(labels) for _, labels in window)
        optimizer.zero_grad()
        for tokens, labels in window:
            loss = token_loss(model(tokens), labels, "sum") / n
            loss.backward()
        if n:
            optimizer.step()
"""
COUNTED, BACKWARD = "count_targets(labels) for", "            loss.backward()"
WINDOW, STEP = "while window := list(islice(batches, k)):", "            optimizer.step()"
LOOP_FAULTS = {
    "mean of means": ('labels, "sum") / n', "labels) / len(window)"),
    "undivided": ('"sum") / n', '"sum")'),
    "divided by k": ('"sum") / n', '"sum") / k'),
    "divided by what the micro-batch holds": ('"sum") / n', '"sum") / count_targets(labels)'),
    "all places counted": (COUNTED, "labels.numel() for"),
    "one too many for each row": (COUNTED, "count_targets(labels) + len(labels) for"),
    "steps on nothing": ("        if n:\n    " + STEP[4:], STEP[4:]),
    "cleared too often": (BACKWARD, f"            optimizer.zero_grad()\n{BACKWARD}"),
    "never cleared": ("        optimizer.zero_grad()\n", ""),
    "the last window dropped": (WINDOW, "while len(window := list(islice(batches, k))) == k:"),
    "a backward for the whole window": (
        BACKWARD,
        "            kept = loss + (tokens is not window[0][0] and kept)\n        kept.backward()",
    ),
    "the length asked for": ("batches = iter(loader)", "batches = iter(loader); len(loader)"),
    "a step each micro-batch": (BACKWARD, f"{BACKWARD}\n{STEP}"),
}


@pytest.mark.parametrize("name", LOOPS)
def test_any_right_loop_is_taken(name, lesson):
    assert is_right(verdict("05", "loop-to-write", LOOPS[name], lesson))


def test_the_loop_that_faults_are_planted_in_is_right_but_for_empty_windows(lesson):
    with_guard = CORE.replace("/ n\n", "/ max(n, 1)\n")
    assert is_right(verdict("05", "loop-to-write", with_guard, lesson))


@pytest.mark.parametrize("fault", LOOP_FAULTS)
def test_a_fault_in_the_loop_is_told(fault, lesson):
    right, wrong = LOOP_FAULTS[fault]
    assert CORE.count(right) == 1
    assert "✗" in verdict("05", "loop-to-write", CORE.replace(right, wrong), lesson)


def test_a_mean_of_means_is_told_what_each_label_counted(lesson):
    wrong = CORE.replace('labels, "sum") / n', "labels) / len(window)")
    told = verdict("05", "loop-to-write", wrong, lesson)
    assert "each label of micro-batch 1 counted 1/6, should be 1/8" in told
