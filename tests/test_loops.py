"""The grader of loops: every right loop passes, every fault is told by what the loop did."""

import contextlib
from itertools import islice

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from helpers.loops import (
    SETTINGS,
    TAKES,
    WHOLE_WINDOWS,
    Counter,
    Run,
    Setting,
    build,
    check_loop,
    check_runs,
)
from helpers.loops.verdict import listed, share

FIVE = (Setting((1,) * 5, 2),)  # windows of 2, 2 and 1
TWICE = (Setting((1,) * 5, 2, epochs=2),)


def said(capsys, loop, *arguments, **options) -> str:
    check_loop(loop, *arguments, **options)
    return capsys.readouterr().out


def windows(loader, k):
    batches = iter(loader)
    while window := list(islice(batches, k)):
        yield window


# Right loops, each of another shape.


def takes_a_window(model, optimizer, loader, k):
    for window in windows(loader, k):
        total = sum(map(len, window))
        optimizer.zero_grad()
        for batch in window:
            (model(batch).mean() * len(batch) / total).backward()
        optimizer.step()


def sums_and_clears_after(net, opt, data, steps):
    opt.zero_grad(set_to_none=False)
    seen = 0
    batches = list(data)
    for number, rows in enumerate(batches, start=1):
        net(rows).sum().backward()
        seen += len(rows)
        if number % steps == 0 or number == len(batches):
            for weight in net.parameters():
                weight.grad /= seen
            opt.step()
            net.zero_grad(set_to_none=False)
            seen = 0


def looks_ahead(model, optimizer, loader, k):
    source = iter(loader)
    batch, held, samples = next(source, None), 0, 0
    while batch is not None:
        model(batch).sum().backward()
        held, samples = held + 1, samples + len(batch)
        batch = next(source, None)
        if held == k or batch is None:
            for p in model.parameters():
                p.grad.div_(samples)
            optimizer.step()
            optimizer.zero_grad()
            held = samples = 0


def sets_the_gradient(model, optimizer, loader, k):
    for window in windows(loader, k):
        total = sum(map(len, window))
        held = torch.zeros_like(model.weight)
        for batch in window:
            held += torch.autograd.grad(model(batch).sum() / total, model.weight)[0]
        model.weight.grad = held
        optimizer.step()


def sample_by_sample(model, optimizer, loader, k):
    for window in windows(loader, k):
        optimizer.zero_grad()
        for batch in window:
            for sample in batch:
                (model(sample).sum() / sum(map(len, window))).backward()
        optimizer.step()


class Looping:
    def __call__(self, *objects):
        takes_a_window(*objects)


RIGHT = [
    takes_a_window,
    sums_and_clears_after,
    looks_ahead,
    sets_the_gradient,
    sample_by_sample,
    Looping(),
]


@pytest.mark.parametrize("loop", RIGHT)
def test_any_right_loop_is_right_in_every_setting(loop, capsys):
    name = getattr(loop, "__name__", "Looping")
    assert said(capsys, loop) == f"✓ {name}: right in all {len(SETTINGS)} runs\n"


@pytest.mark.parametrize("loop", [takes_a_window, looks_ahead, sets_the_gradient])
def test_a_loop_that_needs_no_length_is_right_where_there_is_none(loop, capsys):
    assert "✓" in said(capsys, loop, settings=[Setting((2, 2, 1), 2, stream=True)])


def test_a_loop_that_asks_for_the_length_of_a_stream_is_told_so(capsys):
    def asks(model, optimizer, loader, k):
        return len(loader)

    text = said(capsys, asks, settings=[Setting((1, 1), 2, stream=True)])
    assert "raised TypeError: object of type '_Stream' has no len()" in text
    assert "2 micro-batches of 1, k = 2, length unknown" in text


# Wrong ones, and what is said of them.


def usual(model, optimizer, loader, k, scale=None, boundary=None, clear_inside=False, clear=True):
    """The usual loop and what goes wrong with it."""
    optimizer.zero_grad()
    for i, batch in enumerate(loader):
        if clear_inside:
            optimizer.zero_grad()
        (model(batch).mean() / (k if scale is None else scale(i, k))).backward()
        last = i + 1 == len(loader)
        if boundary(i, k, last) if boundary else (i + 1) % k == 0 or last:
            optimizer.step()
            if clear:
                optimizer.zero_grad()


def faulty(**fault):
    def loop(model, optimizer, loader, k):
        usual(model, optimizer, loader, k, **fault)

    return loop


FAULTS = {
    "no division": (
        faulty(scale=lambda i, k: 1),
        "in update 1 each counted 1, should be 1/2",
    ),
    "divided twice": (
        faulty(scale=lambda i, k: k * k),
        "in update 1 each counted 1/4, should be 1/2",
    ),
    "short window divided by k": (faulty(), "in update 3 each counted 1/2, should be 1"),
    "cleared inside": (
        faulty(clear_inside=True, scale=lambda i, k: 1 if i == 4 else k),
        "the gradient of update 1 holds micro-batch 2, not 1 and 2",
    ),
    "never cleared": (
        faulty(clear=False),
        "the gradient of update 2 holds micro-batches 1, 2, 3 and 4, not 3 and 4",
    ),
    "boundary shifted": (
        faulty(boundary=lambda i, k, last: i % k == 0),
        "the gradient of update 1 holds micro-batch 1, not 1 and 2",
    ),
    "one too late": (
        faulty(boundary=lambda i, k, last: i and i % k == 0),
        "stepped 2 times, should be 3; "
        "the gradient of update 1 holds micro-batches 1, 2 and 3, not 1 and 2",
    ),
    "short window dropped": (
        faulty(boundary=lambda i, k, last: (i + 1) % k == 0),
        "stepped 2 times, should be 3; left in .grad at the end: micro-batch 5",
    ),
    "steps each time": (
        faulty(boundary=lambda i, k, last: True),
        "stepped 5 times, should be 3; the gradient of update 1 holds micro-batch 1, not 1 and 2",
    ),
    "never steps": (
        faulty(boundary=lambda i, k, last: False),
        "stepped 0 times, should be 3; left in .grad at the end: micro-batches 1 to 5",
    ),
    "one step at the end": (
        faulty(boundary=lambda i, k, last: last),
        "stepped once, should be 3; "
        "the gradient of update 1 holds micro-batches 1 to 5, not 1 and 2",
    ),
    "NaN": (
        faulty(scale=lambda i, k: float("nan")),
        "the gradient of update 1 holds NaN or infinity",
    ),
    "one micro-batch counted more": (
        faulty(scale=lambda i, k: 1 if i == 0 else k),
        "in update 1 each sample of micro-batch 1 counted 1, should be 1/2",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_by_what_the_loop_did(fault, capsys):
    loop, told = FAULTS[fault]
    assert said(capsys, loop, settings=FIVE) == (
        f"✗ loop, 5 micro-batches of 1, k = 2: {told}\nloop: right in 0 of 1 runs\n"
    )


def test_a_leak_into_the_next_epoch_is_told_by_running_numbers(capsys):
    def leaks(model, optimizer, loader, k, epochs):
        for _ in range(epochs):
            for i, batch in enumerate(loader):
                (model(batch).mean() / k).backward()
                if (i + 1) % k == 0:
                    optimizer.step()
                    optimizer.zero_grad()

    text = said(capsys, leaks, (*TAKES, "epochs"), settings=TWICE)
    assert "stepped 4 times, should be 6" in text
    assert "the gradient of update 3 holds micro-batches 5, 6 and 7, not 5" in text
    assert "left in .grad at the end: micro-batch 10" in text


def test_a_loop_without_epochs_of_its_own_is_called_once_for_each(capsys):
    """What one call leaves in .grad shows in the next."""
    dropped = faulty(boundary=lambda i, k, last: (i + 1) % k == 0)
    assert "holds micro-batches 6 and 7, not 5" in said(capsys, dropped, settings=TWICE)


def test_the_mean_of_means_over_unequal_micro_batches_is_told(capsys):
    settings = [Setting((2, 2, 1), 3)]
    text = said(capsys, faulty(), settings=settings)
    assert "in update 1 each sample of micro-batch 1 counted 1/6, should be 1/5" in text


def test_a_micro_batch_that_goes_backward_twice_counts_twice(capsys):
    def backward_twice(model, optimizer, loader, k):
        for window in windows(loader, k):
            optimizer.zero_grad()
            for batch in window:
                loss = model(batch).mean() / k
                loss.backward(retain_graph=True)
                loss.backward()
            optimizer.step()

    text = said(capsys, backward_twice, settings=[Setting((1, 1), 2)])
    assert "k = 2: in update 1 each counted 1, should be 1/2" in text


def test_samples_left_out_count_nothing(capsys):
    def first_only(model, optimizer, loader, k):
        for window in windows(loader, k):
            optimizer.zero_grad()
            for batch in window:
                (model(batch[:1]).sum() / sum(map(len, window))).backward()
            optimizer.step()

    text = said(capsys, first_only, settings=[Setting((2, 2), 2)])
    assert "in update 1 each sample of micro-batch 1 counted 0, should be 1/4" in text


def test_a_window_in_one_backward_is_right_in_numbers_and_told_for_its_memory(capsys):
    def all_at_once(model, optimizer, loader, k):
        for window in windows(loader, k):
            optimizer.zero_grad()
            sum(model(batch).sum() / sum(map(len, window)) for batch in window).backward()
            optimizer.step()

    text = said(capsys, all_at_once, settings=[Setting((2, 2), 2)])
    assert "k = 2: one backward went through micro-batches 1 and 2, all in memory at once" in text


def test_weight_decay_written_into_the_gradient_is_told(capsys):
    def decays(model, optimizer, loader, k):
        for window in windows(loader, k):
            optimizer.zero_grad()
            for batch in window:
                (model(batch).mean() / k).backward()
            model.weight.grad += 0.5
            optimizer.step()

    text = said(capsys, decays, settings=[Setting((1, 1), 2)])
    assert "in update 1 each" in text


def test_a_learning_rate_divided_in_place_of_the_loss_is_wrong(capsys):
    def divides_rate(model, optimizer, loader, k):
        optimizer.param_groups[0]["lr"] /= k
        usual(model, optimizer, loader, k, scale=lambda i, k: 1)

    text = said(capsys, divides_rate, settings=[Setting((1, 1), 2)])
    assert "each counted 1, should be 1/2; update 1 ran at lr 0.5, should be 1" in text


def test_faults_of_one_kind_are_told_once(capsys):
    text = said(capsys, faulty(scale=lambda i, k: 1), settings=WHOLE_WINDOWS)
    lines = text.splitlines()
    assert lines[0].endswith("in update 1 each counted 1, should be 1/2 (and 1 more like this)")
    assert lines[1].endswith("each sample counted 1/2, should be 1/4 (and 1 more like this)")
    assert lines[2:] == ["loop: right in 1 of 5 runs"]


# What is no loop yet, or fails.


@pytest.mark.parametrize("stub", [lambda *objects: None, lambda *objects: ...])
def test_a_stub_is_not_written_yet(stub, capsys):
    assert said(capsys, stub) == "<lambda>: not written yet\n"


def test_an_error_is_told_in_one_line(capsys):
    def fails(model, optimizer, loader, k):
        raise KeyError("first line\nsecond")

    text = said(capsys, fails, settings=FIVE)
    assert text.splitlines()[0] == (
        "✗ fails, 5 micro-batches of 1, k = 2: raised KeyError: 'first line\\nsecond'"
    )


def test_a_loop_that_takes_other_arguments_is_told_how_many_it_gets(capsys):
    text = said(capsys, lambda model: print(model), settings=FIVE)
    assert "takes 1 positional argument but 4 were given" in text


def test_a_loop_that_never_ends_is_stopped(capsys):
    def endless(model, optimizer, loader, k):
        batch = next(iter(loader))
        while True:
            model(batch)

    assert "the model was called more than 1000 times" in said(capsys, endless, settings=FIVE)


def test_a_loop_without_backward_is_told(capsys):
    def forward_only(model, optimizer, loader, k):
        for batch in loader:
            model(batch)
        optimizer.step()

    text = said(capsys, forward_only, settings=[Setting((1, 1), 2)])
    assert "no backward added to .grad" in text


@pytest.mark.parametrize("wrong", [None, 3, "loop"])
def test_what_cannot_be_called_is_refused(wrong):
    with pytest.raises(TypeError, match="loop must be callable"):
        check_loop(wrong)


def test_nonsense_is_refused_before_the_loop_is_called():
    def loop(*objects):
        raise AssertionError

    with pytest.raises(ValueError, match=r"each of takes must be one of 'model'.*got 'modle'"):
        check_loop(loop, ("modle",))
    with pytest.raises(ValueError, match="data must be one of"):
        check_loop(loop, data="pictures")
    with pytest.raises(ValueError, match="settings must hold at least one"):
        check_loop(loop, settings=())
    with pytest.raises(ValueError, match="makers must hold at least one"):
        check_runs(loop, ())
    with pytest.raises(ValueError, match=r"each of sizes must be .* at least 1, got 0"):
        check_loop(loop, settings=[Setting((1, 0), 2)])
    with pytest.raises(ValueError, match="accumulation_steps must be"):
        Setting((1,), 0)
    with pytest.raises(ValueError, match="epochs must be"):
        Setting((1,), 1, epochs=0)
    with pytest.raises(ValueError, match="the number of sizes must be from 1 to 10, got 11"):
        Setting((1,) * 11, 1)


def test_nothing_of_the_readers_is_altered(capsys):
    def draws(model, optimizer, loader, k):
        torch.rand(1)
        takes_a_window(model, optimizer, loader, k)

    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    with torch.no_grad():
        check_loop(draws, settings=FIVE)
        assert not torch.is_grad_enabled()
    assert "✓" in capsys.readouterr().out
    assert torch.equal(torch.random.get_rng_state(), before)


# Targets, tokens, and what else a loop is handed.

PAIRS = ("model", "criterion", "optimizer", "loader", "accumulation_steps")


def with_targets(model, criterion, optimizer, loader, accumulation_steps):
    optimizer.zero_grad()
    for step, (inputs, targets) in enumerate(loader):
        (criterion(model(inputs), targets) / accumulation_steps).backward()
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()


def test_the_loop_of_lesson_1_is_right_for_whole_windows(capsys):
    text = said(capsys, with_targets, PAIRS, settings=WHOLE_WINDOWS)
    assert text == "✓ with_targets: right in all 5 runs\n"


def test_and_loses_a_short_one(capsys):
    text = said(capsys, with_targets, PAIRS, settings=FIVE)
    assert "stepped 2 times, should be 3; left in .grad at the end: micro-batch 5" in text


def test_the_drawn_loader_is_what_a_reader_would_make(capsys):
    loader = build(Setting((4, 4, 2), 2), PAIRS).arguments[3]
    assert (loader.batch_size, len(loader), len(loader.dataset)) == (4, 3, 10)
    assert [len(x) for x, _ in loader] == [4, 4, 2]


def over_tokens(model, optimizer, loader, k):
    for window in windows(loader, k):
        count = sum((labels != -100).sum() for _, labels in window)
        if count:
            optimizer.zero_grad()
            for tokens, labels in window:
                logits = model(tokens).flatten(0, 1)
                (F.cross_entropy(logits, labels.flatten(), reduction="sum") / count).backward()
            optimizer.step()


def mean_of_means(model, optimizer, loader, k):
    for window in windows(loader, k):
        optimizer.zero_grad()
        for tokens, labels in window:
            logits = model(tokens).flatten(0, 1)
            (F.cross_entropy(logits, labels.flatten()) / len(window)).backward()
        optimizer.step()


TOKENS = (
    Setting(((3, 1), (2,)), 2),
    Setting((2, 6, 1), 2),
    Setting((2, 0, 1), 3),
    Setting((0, 0, 1), 2),
)


def test_labels_counted_over_the_window_are_right(capsys):
    text = said(capsys, over_tokens, data="tokens", settings=TOKENS)
    assert text == "✓ over_tokens: right in all 4 runs\n"


def test_a_mean_of_means_over_tokens_is_told(capsys):
    text = said(capsys, mean_of_means, data="tokens", settings=TOKENS[:1])
    assert "in update 1 each label of micro-batch 1 counted 1/8, should be 1/6" in text


def test_a_step_on_a_window_without_labels_is_one_too_many(capsys):
    text = said(capsys, mean_of_means, data="tokens", settings=TOKENS[3:])
    assert "stepped 2 times, should be 1; the gradient of update 1 is zero" in text


EVERYTHING = (*TAKES, "scheduler", "max_norm", "scaler", "ema")


def everything(fault=""):
    def loop(model, optimizer, loader, k, scheduler, max_norm, scaler, ema):
        for window in windows(loader, k):
            total = sum(map(len, window))
            optimizer.zero_grad()
            for batch in window:
                scaler.scale(model(batch).sum() / total).backward()
                if fault == "clip each":
                    nn.utils.clip_grad_norm_(model.parameters(), 1024 * max_norm)
                if fault == "schedule each":
                    scheduler.step()
                if fault == "update each":
                    scaler.update()
            if fault != "still scaled":
                scaler.unscale_(optimizer)
            if fault != "not clipped":
                nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            if fault == "schedule first":
                scheduler.step()
            scaler.step(optimizer)
            if fault != "update each":
                scaler.update()
            if fault not in ("schedule first", "schedule each"):
                scheduler.step()
            for _ in range(2 if fault == "averaged twice" else 1):
                ema.update_parameters(model)

    return loop


def test_a_loop_with_everything_in_it_is_right(capsys):
    assert "✓ loop: right in all 11 runs" in said(capsys, everything(), EVERYTHING)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("clip each", "right norm and points elsewhere: .grad was changed 3 times on the way"),
        ("not clipped", "update 2 has a gradient of norm 3.35e+04, should be 50"),
        ("still scaled", "in update 1 each counted 0.0004858, should be 1/3"),
        ("schedule each", "update 1 ran at lr 0.25, should be 1; the scheduler moved 6 times"),
        ("schedule first", "update 1 ran at lr 0.5, should be 1"),
        ("averaged twice", "the average took in the weights 4 times, should be 2"),
    ],
)
def test_what_belongs_to_the_window_done_otherwise_is_told(fault, told, capsys):
    text = said(capsys, everything(fault), EVERYTHING, settings=[Setting((1,) * 6, 3)])
    assert told in text


def test_clipping_does_not_hide_a_wrong_scale(capsys):
    """Where every window is clipped, a loop that divides twice has the right gradient."""

    def divides_twice(model, optimizer, loader, k, max_norm):
        for i, batch in enumerate(loader, start=1):
            (model(batch).mean() / k / k).backward()
            if i % k == 0:
                nn.utils.clip_grad_norm_(model.parameters(), max_norm)
                optimizer.step()
                optimizer.zero_grad()

    text = said(capsys, divides_twice, (*TAKES, "max_norm"), settings=WHOLE_WINDOWS)
    assert "in update 1 each counted 1/4, should be 1/2" in text


def test_bfloat16_needs_a_wider_tolerance(capsys):
    def mixed(model, optimizer, loader, k):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            takes_a_window(model, optimizer, loader, k)

    assert "✗" in said(capsys, mixed)
    assert "✓" in said(capsys, mixed, tolerance=0.01)


# Which updates are right is the exercise's to say; so is the whole run.


def dropping(counts, k, epochs):
    whole = len(counts) // k
    return [
        {e * len(counts) + w * k + i + 1: 1 / sum(counts[w * k : w * k + k]) for i in range(k)}
        for e in range(epochs)
        for w in range(whole)
    ]


def test_other_updates_may_be_the_right_ones(capsys):
    drops = faulty(boundary=lambda i, k, last: (i + 1) % k == 0)
    assert "✓" in said(capsys, drops, settings=TWICE, right=dropping)
    assert "stepped 6 times" in said(capsys, takes_a_window, settings=TWICE, right=dropping)


def run_with(gradients, also=None):
    def make():
        model = nn.Linear(2, 1, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        steps = Counter("counted", lambda: 2, 2)
        arguments = (model, optimizer)
        return Run("two weights", model, arguments, gradients, counters=(steps,), also=also)

    return make


def one_step(model, optimizer):
    model(torch.tensor([[3.0, 4.0]])).sum().backward()
    optimizer.step()
    return 7


@pytest.mark.parametrize(
    ("gradient", "told"),
    [
        ((3.0, 4.0), "✓"),
        ((6.0, 8.0), "the gradient of update 1 is 0.5 times what it should be"),
        ((4.0, 3.0), "the gradient of update 1 is off by 28.3% of what it should be"),
    ],
)
def test_a_run_of_ones_own_is_told_by_how_far_a_gradient_is_off(gradient, told, capsys):
    check_runs(one_step, [run_with((torch.tensor(gradient),))])
    assert told in capsys.readouterr().out


def test_a_run_may_ask_for_more(capsys):
    def also(trace, returned):
        return f"returned {returned} after {len(trace.updates)} updates"

    check_runs(one_step, [run_with((torch.tensor([3.0, 4.0]),), also)])
    assert "two weights: returned 7 after 1 updates" in capsys.readouterr().out


def test_weights_and_numbers_are_said_as_one_says_them():
    assert [share(w) for w in (1 / 3, 1.0, 0.0, 5 / 6, 0.123456)] == [
        "1/3",
        "1",
        "0",
        "5/6",
        "10/81",
    ]
    assert [listed(n) for n in ([5], [6, 5], [1, 2, 3], [3, 4, 5, 6, 7], [1, 2, 3, 4, 6])] == [
        "5",
        "5 and 6",
        "1, 2 and 3",
        "3 to 7",
        "1, 2, 3, 4 and 6",
    ]


def test_gradients_stand_for_themselves_in_every_setting():
    """Each sample's row of parts is what its own loss has as gradient."""
    for data in ("inputs", "pairs", "tokens"):
        run = build(Setting((2, 1, 3), 2), data=data)
        first = next(iter(run.arguments[2]))
        with contextlib.suppress(AttributeError):
            run.model.zero_grad()
        if data == "inputs":
            loss = run.model(first).sum()
        elif data == "pairs":
            loss = F.mse_loss(run.model(first[0]), first[1], reduction="sum")
        else:
            loss = F.cross_entropy(run.model(first[0]).flatten(0, 1), first[1].flatten())
            loss = loss * 2
        loss.backward()
        (gradient,) = (p.grad.flatten() for p in run.model.parameters())
        assert torch.allclose(gradient, run.parts[:2].sum(0))
