import contextlib
import copy
import gc
import weakref

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from helpers.memory import (
    CATEGORIES,
    DoesNotFit,
    Memory,
    accumulated_update,
    fake,
    measure,
    measuring,
    plan,
    planning,
)
from helpers.memory.faking import same_kernels
from helpers.memory.planning import even_cut
from helpers.models import transformer_layer
from helpers.subjects.memory import activation_formula

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "Adam": torch.optim.Adam,
    "AdamW": torch.optim.AdamW,
    "AdamW, foreach": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
}


def parts(**sizes):
    """Bytes by category, 0 for those not named."""
    return {name: sizes.get(name.replace(" ", "_"), 0) for name in CATEGORIES}


# what counts, by hand


def test_an_output_counts_beside_its_input():
    with measure() as memory:
        a = torch.zeros(1000)  # 4000 bytes
        b = a + 1  # 8000
        del a  # 4000
        c = b.double()  # 12000
        del b
        assert memory.live == 8000
    assert memory.peak == 12000
    assert c.shape == (1000,)


def test_views_and_in_place_operations_count_nothing():
    a = torch.zeros(10, 10)
    with measure(inputs=a) as memory:
        a.add_(1).t()[2:5].mul_(3)
        a.split(5), a.expand(7, 10, 10), a.detach()
    assert memory.peak == memory.live == 400


def test_a_tensor_from_before_counts_from_its_first_use_and_an_input_from_the_start():
    a, b = torch.zeros(100), torch.zeros(100)
    with measure(inputs=[a]) as memory:
        assert memory.live == 400
        b.neg_()
        assert memory.live == 800


def test_a_resized_storage_counts_by_its_new_size():
    with measure() as memory:
        a = torch.zeros(10)
        a.resize_(30)
        assert (memory.live, memory.peak) == (120, 120)


def test_the_parts_of_a_linear_layer():
    model, x = nn.Linear(3, 2), torch.ones(5, 3)
    with measure(model, inputs=x) as memory:
        loss = model(x).mean()
        assert memory.by_category() == parts(parameters=32, activations=60, other=4)
        assert [(kept.shape, kept.bytes) for kept in memory.saved()] == [((5, 3), 60)]
        loss.backward()
        assert memory.by_category() == parts(parameters=32, gradients=32, other=60 + 4)
    # the gradient of the outputs, 5 x 2, beside the gradients of weight and bias; loss, its ones
    assert memory.at_peak == parts(parameters=32, gradients=32, activations=60, other=40 + 4 + 4)
    assert memory.peak == sum(memory.at_peak.values()) == 172


@pytest.mark.parametrize(
    ("name", "numbers", "counters"),
    [("SGD", 0, 0), ("momentum", 1, 0), ("Adam", 2, 2), ("AdamW", 2, 2)],
)
def test_the_state_of_an_optimizer(name, numbers, counters):
    model = nn.Linear(30, 20)
    optimizer = OPTIMIZERS[name](model.parameters())
    with measure(model, optimizer) as memory:
        model(torch.ones(1, 30)).sum().backward()
        optimizer.step()
    assert memory.by_category()["optimizer state"] == numbers * 620 * 4 + counters * 4
    with measure(model, optimizer) as later:
        pass
    assert later.peak == 2 * 620 * 4 + memory.by_category()["optimizer state"]


def test_buffers_count_as_parameters_and_shared_weights_once():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    with measure(model) as memory:
        pass
    assert memory.by_category() == parts(parameters=(16 + 4) * 4 + 4 * 4 * 4 + 8)


def test_a_gradient_let_go_of_is_gone():
    model = nn.Linear(4, 4)
    with measure(model) as memory:
        model(torch.ones(1, 4)).sum().backward()
        assert memory.by_category()["gradients"] == 80
        model.zero_grad()
        assert memory.by_category()["gradients"] == 0


# against the allocator, which no hook or mode of ours comes near


def peak_of_the_allocator(step):
    """The most bytes that PyTorch's CPU allocator handed out on top of what there was."""
    with torch.profiler.profile(profile_memory=True) as profiler:
        step()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def encoder():
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)


def against_the_allocator(build, name, shape):
    model = build()
    optimizer = OPTIMIZERS[name](model.parameters())

    def step():
        batches = ((torch.randn(size, *shape), None) for size in (5, 5, 3))
        accumulated_update(model, lambda out, _: out.square().mean(), optimizer, batches, [1] * 3)

    step()
    optimizer.zero_grad()  # the profiler misses the release of what was made before it
    with measure(model, optimizer) as memory:
        before = memory.live
        step()
    optimizer.zero_grad()
    return memory.peak - before, peak_of_the_allocator(step)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(
    ("build", "shape"), [(lambda: nn.Linear(16, 3), (16,)), (encoder, (6, 16))]
)
def test_the_peak_is_what_the_allocator_saw(build, shape, name):
    measured, seen = against_the_allocator(build, name, shape)
    assert measured == seen


def test_a_storage_that_is_never_let_go_of_is_noticed(monkeypatch):
    monkeypatch.setattr(Memory, "_forget", lambda memory, key: None)
    measured, seen = against_the_allocator(encoder, "Adam", (6, 16))
    assert measured > seen


# nothing of the reader's is altered


def test_results_are_the_same_to_the_bit():
    models = [encoder() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    x = torch.randn(4, 6, 16)
    torch.manual_seed(1)
    models[0](x).square().mean().backward()
    state = torch.get_rng_state()
    torch.manual_seed(1)
    with measure(models[1]):
        models[1](x).square().mean().backward()
    assert torch.equal(torch.get_rng_state(), state)
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)
        assert not other._post_accumulate_grad_hooks


def test_a_graph_made_inside_can_be_used_after():
    w = torch.tensor([2.0], requires_grad=True)
    with measure():
        loss = (w**3).sum()
        (slope,) = torch.autograd.grad(loss, w, create_graph=True)
    slope.backward()
    assert (slope.item(), w.grad.item()) == (12, 12)


def test_an_output_saved_for_backward_is_not_kept_alive():
    with measure() as memory:
        y = torch.ones(10, requires_grad=True).exp()
        assert memory.live == 80
        gone = weakref.ref(y)
        del y
        assert gone() is None
        assert memory.live == 0


def test_changing_a_saved_tensor_in_place_is_still_an_error():
    w = torch.ones(3, requires_grad=True)
    with measure():
        y = w.exp()
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_an_error_inside_passes_and_leaves_no_hook():
    model = nn.Linear(2, 2)
    with pytest.raises(KeyError), measure(model):
        raise KeyError
    assert torch._C._autograd._top_saved_tensors_default_hooks(False) is None
    assert not model.weight._post_accumulate_grad_hooks


def test_fakes_leave_the_random_state_alone():
    state = torch.get_rng_state()
    with fake():
        torch.manual_seed(7)
        nn.Dropout()(nn.Linear(3, 3)(torch.randn(2, 3)))
    assert torch.equal(torch.get_rng_state(), state)


# fake against real


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.norm = nn.Embedding(11, 16), nn.LayerNorm(16)
        self.attend, self.head = nn.Linear(16, 48), nn.Linear(16, 11)

    def forward(self, tokens):
        x = self.token(tokens)
        split = self.attend(self.norm(x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*split, is_causal=True)
        return self.head(x + mixed.transpose(1, 2).flatten(2)).mean(1)


class Checkpointed(nn.Module):
    def __init__(self, recompute=True, reentrant=False):
        super().__init__()
        self.recompute, self.reentrant = recompute, reentrant
        self.first, self.head = nn.Linear(16, 16), nn.Linear(16, 3)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 16))
            for _ in range(3)
        )

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant) if self.recompute else block(x)
        return self.head(x)


def network():
    layers = (nn.Linear(16, 32), nn.ReLU(inplace=True), nn.LayerNorm(32), nn.Dropout(0.2))
    return nn.Sequential(*layers, nn.Linear(32, 3))


def convnet():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(36, 3),
    )  # fmt: skip


def rows(samples):
    return torch.randn(samples, 16)


NETS = {
    "linear": (lambda: nn.Linear(16, 3), rows),
    "LayerNorm and dropout": (network, rows),
    "embedding and attention": (Attention, lambda samples: torch.randint(11, (samples, 6))),
    "convnet": (convnet, lambda samples: torch.randn(samples, 1, 8, 8)),
    "checkpointed": (Checkpointed, rows),
    "checkpointed, reentrant": (lambda: Checkpointed(reentrant=True), rows),
}


def two_updates(net, name, sizes=(5, 5, 3)):
    """The memory of the second and third update of a net that accumulates."""
    build, inputs = NETS[net]
    model = build()
    optimizer = OPTIMIZERS[name](model.parameters())

    def update(sizes):
        batches = ((inputs(size), torch.randint(3, (size,))) for size in sizes)
        accumulated_update(model, F.cross_entropy, optimizer, batches, [0.5] * len(sizes))

    update((2,))
    with measure(model, optimizer) as memory:
        update(sizes), update(sizes)
    return memory


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("net", NETS)
def test_fake_and_real_agree_exactly(net, name):
    real = two_updates(net, name)
    with fake():
        pretended = two_updates(net, name)
    assert (pretended.peak, pretended.live) == (real.peak, real.live)
    assert pretended.at_peak == real.at_peak
    assert pretended.by_category() == real.by_category()
    assert sum(real.at_peak.values()) == real.peak


def test_a_difference_of_one_sample_is_noticed():
    with fake():
        pretended = two_updates("linear", "Adam", (5, 6, 3))
    assert pretended.peak != two_updates("linear", "Adam").peak


def test_a_model_of_a_terabyte_is_measured():
    with fake():
        model = nn.Linear(2**19, 2**19, bias=False)
        with measure(model) as memory:
            model(torch.zeros(1, 2**19)).sum().backward()
    assert memory.at_peak["parameters"] == memory.at_peak["gradients"] == 2**40


# what accumulation buys, and what it does not


@pytest.mark.parametrize("net", NETS)
def test_activations_shrink_with_the_micro_batch_and_nothing_else_does(net):
    found = []
    for samples in (2, 3, 4, 8):
        model = NETS[net][0]()
        optimizer = torch.optim.Adam(model.parameters())
        with measure(model, optimizer) as memory:
            loss = F.cross_entropy(model(NETS[net][1](samples)), torch.zeros(samples).long())
            activations = memory.by_category()["activations"]
            loss.backward()
            optimizer.step()
        found.append((activations, *list(memory.by_category().values())[:3]))
    (two, *fixed), (three, *_), (four, *_), (eight, *_) = found
    assert three - two == four - three == (eight - four) / 4 > 0
    assert all(others == fixed for _, *others in found)


def test_checkpointing_keeps_less_and_recomputes_one_block_at_a_time():
    peaks = {}
    for recompute in (False, True):
        model, x = Checkpointed(recompute), torch.randn(100, 16)
        with measure(model, inputs=x) as memory:
            model(x).sum().backward()
        peaks[recompute] = memory.at_peak["activations"]
    # kept of a block: its inputs 16, GELU's 64 and its output's mask 64, the last layer's 64
    assert peaks[False] >= 3 * 100 * (16 + 3 * 64) * 4
    assert peaks[True] < peaks[False] / 2
    # what one block keeps while it is computed again
    assert peaks[True] >= 100 * (16 + 3 * 64) * 4


def tanh_peak(once):
    w, k = torch.tensor(0.5, requires_grad=True), 4
    batches = [torch.linspace(-1, 1, 256) for _ in range(k)]
    with measure(nn.ParameterList([w])) as memory:
        if once:
            sum(torch.tanh(w * x).mean() / k for x in batches).backward()
        else:
            for x in batches:
                (torch.tanh(w * x).mean() / k).backward()
    return memory.at_peak["activations"] / 4, w.grad


def test_one_backward_for_the_sum_keeps_all_graphs_alive():
    each, once = tanh_peak(once=False), tanh_peak(once=True)
    assert (each[0], once[0]) == (512, 2048)
    assert torch.allclose(each[1], once[1])


# a transformer layer against the formula

SEQUENCE, BATCH, HIDDEN, HEADS = 512, 2, 1024, 16


def saved_by_the_layer(sequence=SEQUENCE, **changed):
    with fake():
        layer = transformer_layer(HIDDEN, HEADS, **changed)
        x = torch.zeros(BATCH, sequence, HIDDEN, dtype=layer.mix.weight.dtype, requires_grad=True)
        with measure(layer, inputs=x) as memory:
            out = layer(x)
            found = memory.saved()
    assert out.shape == x.shape
    return found


@pytest.mark.parametrize("sequence", [128, 512, 2048])
def test_the_layer_keeps_what_the_formula_says(sequence):
    found = sum(kept.bytes for kept in saved_by_the_layer(sequence))
    formula = activation_formula(sequence, BATCH, HIDDEN, HEADS)
    assert formula == sequence * BATCH * HIDDEN * (34 + 5 * HEADS * sequence / HIDDEN)
    assert found == pytest.approx(formula, rel=0.05)


def test_the_layer_and_the_formula_agree_term_by_term():
    tokens, scores = SEQUENCE * BATCH * HIDDEN, HEADS * SEQUENCE**2 * BATCH
    kept: dict[tuple, int] = {}
    for tensor in saved_by_the_layer():
        kind = (tensor.bytes, tensor.dtype)
        kept[kind] = kept.get(kind, 0) + 1
    half, mask = torch.bfloat16, torch.bool
    assert kept == {
        # two norms' inputs, query, key, value, and the inputs of the layers that make these
        # (attend), that mix heads (mix), and that follow the second norm (grow)
        (2 * tokens, half): 8,
        (tokens, mask): 2,  # the dropouts before the residual sums
        (8 * tokens, half): 2,  # GELU's input and shrink's
        (2 * scores, half): 2,  # softmax's output and, after dropout, what is multiplied by value
        (scores, mask): 1,
        (2 * SEQUENCE * BATCH, half): 4,  # mean and 1/deviation of two norms: not in the formula
    }
    assert 8 * 2 + 2 + 2 * 8 == 34


def test_single_precision_breaks_the_formula():
    found = sum(kept.bytes for kept in saved_by_the_layer(dtype=torch.float32))
    assert found > 1.5 * activation_formula(SEQUENCE, BATCH, HIDDEN, HEADS)


def test_the_layer_is_the_same_real_and_fake():
    layer, x = transformer_layer(16, 2), torch.ones(3, 6, 16, dtype=torch.bfloat16)
    with measure(layer, inputs=x) as real:
        layer(x).sum().backward()
    with fake():
        layer, x = transformer_layer(16, 2), torch.ones(3, 6, 16, dtype=torch.bfloat16)
        with measure(layer, inputs=x) as pretended:
            layer(x).sum().backward()
    assert (real.peak, real.at_peak) == (pretended.peak, pretended.at_peak)


def test_recomputing_leaves_34_and_2():
    none, attention, layer = (
        activation_formula(512, 2, 1024, 16, what) for what in ("nothing", "attention", "layer")
    )
    assert (none, attention, layer) == (2**20 * 74, 2**20 * 34, 2**20 * 2)


# the plan


def real_peak(model, optimizer, sizes):
    """The peak of the second update, run for real, each micro-batch made when its turn comes."""
    model = copy.deepcopy(model)
    made = optimizer(model.parameters())
    for _ in range(2):
        batches = ((torch.randn(size, 16), torch.randint(3, (size,))) for size in sizes)
        with measure(model, made) as memory:
            accumulated_update(model, F.cross_entropy, made, batches, [0.5] * len(sizes))
    return memory.peak


def planned(model, optimizer, samples, budget, allowance=0):
    x, y = torch.zeros(1, 16), torch.zeros(1).long()
    return plan(model, F.cross_entropy, x, y, optimizer, samples, budget, allowance)


def check_plan(model, optimizer, samples, budget, allowance=0):
    """What the plan says fits does, for real, and one micro-batch fewer does not."""
    room, made, refused = budget - allowance, None, None
    try:
        made = planned(model, optimizer, samples, budget, allowance)
    except DoesNotFit as error:
        refused = error
    if made is None:
        assert real_peak(model, optimizer, (1,) * samples) == refused.peak > room
        return None
    assert made.sizes == even_cut(samples, made.accumulation_steps)
    assert real_peak(model, optimizer, made.sizes) == made.peak <= room
    if made.accumulation_steps > 1:
        fewer = real_peak(model, optimizer, even_cut(samples, made.accumulation_steps - 1))
        assert fewer == made.peak_with_one_fewer > room
    else:
        assert made.peak_with_one_fewer is None
    return made


@given(
    width=st.integers(1, 40),
    depth=st.integers(0, 2),
    name=st.sampled_from(sorted(OPTIMIZERS)),
    samples=st.integers(1, 40),
    share=st.floats(0, 1.1),
    allowance=st.integers(0, 1000),
)
@example(width=1, depth=0, name="Adam", samples=5, share=0.75, allowance=0)
@settings(max_examples=25)
def test_what_the_plan_says_fits_does_and_one_micro_batch_fewer_does_not(
    width, depth, name, samples, share, allowance
):
    hidden = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.Tanh())]
    model = nn.Sequential(nn.Linear(16, width), nn.Dropout(0.1), *hidden, nn.Linear(width, 3))
    low = real_peak(model, OPTIMIZERS[name], (1,) * min(samples, 2))
    high = real_peak(model, OPTIMIZERS[name], (samples,))
    budget = allowance + int(0.95 * low + share * (high - 0.95 * low))
    assume(budget > 0)
    check_plan(model, OPTIMIZERS[name], samples, budget, allowance)


def test_a_plan_that_forgets_the_gradients_is_noticed(monkeypatch):
    model, sgd, whole = nn.Linear(16, 400), OPTIMIZERS["SGD"], planning._telling
    budget = real_peak(model, sgd, even_cut(32, 7))
    assert check_plan(model, sgd, 32, budget).sizes == (5, 5, 5, 5, 4, 4, 4)
    monkeypatch.setattr(planning, "_telling", lambda sizes: whole(sizes)[:1])
    with pytest.raises(AssertionError):
        check_plan(model, sgd, 32, budget)


def test_a_whole_batch_may_fit_where_half_of_it_beside_gradients_does_not():
    model, sgd = nn.Linear(16, 1000), OPTIMIZERS["SGD"]  # gradients as large as 17 outputs
    whole, half = real_peak(model, sgd, (8,)), real_peak(model, sgd, (4, 4))
    assert half > whole
    assert check_plan(model, sgd, 8, whole).sizes == (8,)


@pytest.mark.parametrize("build", [network, lambda: nn.Linear(16, 1000)])
def test_the_plan_is_the_best_of_all_even_cuts(build):
    model, sgd, samples = build(), OPTIMIZERS["SGD"], 13
    peaks = {k: real_peak(model, sgd, even_cut(samples, k)) for k in range(1, samples + 1)}
    for budget in sorted(peaks.values()):
        fewest = min(k for k in peaks if peaks[k] <= budget)
        assert planned(model, sgd, samples, budget).accumulation_steps == fewest


def test_a_plan_of_two_sizes_counts_each():
    made = planning.Plan((22, 21, 21), 10, {"parameters": 10}, None, 20, 0)
    assert (
        str(made) == "1 x 22 and 2 x 21 samples.\nPeak 10 bytes of 20 bytes: parameters 10 bytes."
    )


def test_micro_batches_differ_by_one_sample_at_most():
    assert even_cut(64, 3) == (22, 21, 21)
    assert even_cut(64, 4) == (16,) * 4
    assert even_cut(8, 3) == (3, 3, 2)


def test_a_plan_touches_nothing():
    model, x, y = network(), torch.randn(4, 16), torch.randint(3, (4,))
    model(x).sum().backward()
    weights = [p.clone() for p in model.parameters()]
    gradients = [p.grad for p in model.parameters()]
    values, state = [g.clone() for g in gradients], torch.get_rng_state()
    plan(model, F.cross_entropy, x, y, torch.optim.Adam, 64, 10**6)
    for p, weight, gradient, value in zip(
        model.parameters(), weights, gradients, values, strict=True
    ):
        assert torch.equal(p, weight)
        assert p.grad is gradient
        assert torch.equal(gradient, value)
        assert not p._post_accumulate_grad_hooks
    assert torch.equal(torch.get_rng_state(), state)


def test_a_model_without_memory_is_planned_for_too():
    x, y = torch.zeros(1, 16), torch.zeros(1).long()
    budget, adam = 60_000, torch.optim.Adam
    with torch.device("meta"):
        unmade = network()
    made = plan(unmade, F.cross_entropy, x, y, adam, 64, budget)
    assert made == plan(network(), F.cross_entropy, x, y, adam, 64, budget)


def test_a_plan_prints_what_it_is():
    x, y = torch.zeros(1, 16), torch.zeros(1).long()
    made = plan(network(), F.cross_entropy, x, y, torch.optim.Adam, 64, 50_000, allowance=10_000)
    first, second = str(made).splitlines()
    assert first == f"{made.accumulation_steps} x {made.micro_batch} samples."
    assert "+ 9.766 KiB allowance of 48.83 KiB: parameters" in second


@pytest.mark.parametrize(
    ("model", "optimizer", "allowance", "largest"),
    [
        (nn.Linear(16, 1000), torch.optim.Adam, 0, "optimizer state"),
        (nn.Sequential(nn.Linear(16, 3), *[nn.Tanh()] * 99), OPTIMIZERS["SGD"], 0, "activations"),
        (nn.Linear(16, 3), torch.optim.Adam, 5000, "allowance"),
    ],
)
def test_what_is_too_large_is_named(model, optimizer, allowance, largest):
    x, y = torch.zeros(1, 16), torch.zeros(1).long()
    with pytest.raises(DoesNotFit, match=f"The largest part is {largest}") as raised:
        plan(model, F.cross_entropy, x, y, optimizer, 8, 100, allowance)
    assert raised.value.largest == largest
    assert sum(raised.value.at_peak.values()) == raised.value.peak > 100 - allowance


# the parts that fail, and what is not to be touched


def sizes_of(model, loss_fn, x, y, optimizer, samples=8, budget=10**6):
    return plan(model, loss_fn, x, y, optimizer, samples, budget).sizes


X, Y = torch.rand(8, 4), torch.rand(8, 1)
mean_error = nn.L1Loss()


def test_an_optimizer_of_other_parameters_is_refused_before_anything_runs():
    model = nn.Linear(4, 1)
    model(X).sum().backward()
    held = model.weight.grad
    value = held.clone()
    with pytest.raises(ValueError, match="optimizer must make an optimizer of the parameters that"):
        sizes_of(model, mean_error, X, Y, lambda _: torch.optim.AdamW(model.parameters()))
    assert model.weight.grad is held
    assert torch.equal(held, value)


def test_groups_by_name_are_planned_for():
    def by_name(parameters):
        biases = [p for name, p in parameters.named if name.endswith("bias")]
        weights = [p for name, p in parameters.named if name.endswith("weight")]
        return torch.optim.AdamW([{"params": weights}, {"params": biases, "weight_decay": 0}])

    made = plan(nn.Linear(4, 1), mean_error, X, Y, by_name, 8, 10**6)
    assert made.at_peak["optimizer state"] == 2 * 5 * 4 + 2 * 4


def test_an_optimizer_that_is_none_is_refused():
    with pytest.raises(TypeError, match=r"optimizer must make a torch\.optim\.Optimizer, got list"):
        sizes_of(nn.Linear(4, 1), mean_error, X, Y, list)


ELEMENT_WISE = {
    "mse": nn.MSELoss,
    "smooth l1": nn.SmoothL1Loss,
    "huber": nn.HuberLoss,
    "l1": nn.L1Loss,
    "bce": nn.BCELoss,
    "bce with logits": nn.BCEWithLogitsLoss,
    "kl": nn.KLDivLoss,
    "soft margin": nn.SoftMarginLoss,
    "poisson": nn.PoissonNLLLoss,
    "hinge": nn.HingeEmbeddingLoss,
    "multi-label": nn.MultiLabelSoftMarginLoss,
}


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("loss", ELEMENT_WISE)
def test_a_fake_loss_holds_what_a_real_one_does(loss, reduction):
    def held(make):
        outputs, targets = make(8, 5).sigmoid().requires_grad_(), make(8, 5)
        with measure(inputs=(outputs, targets)) as memory:
            losses = ELEMENT_WISE[loss](reduction=reduction)(outputs, targets)
            losses.sum().backward()
        return memory.live, memory.peak

    with fake():
        pretended = held(torch.ones)
    assert pretended == held(torch.ones)


def test_a_real_run_keeps_within_the_budget_that_was_planned_for():
    x = torch.rand(64, 784)
    model = nn.Sequential(nn.Linear(784, 32), nn.Linear(32, 784))
    made = plan(model, nn.MSELoss(), x, x, OPTIMIZERS["SGD"], 64, 10**6)
    optimizer = OPTIMIZERS["SGD"](model.parameters())
    batches = ((torch.rand(n, 784), torch.rand(n, 784)) for n in made.sizes)
    with measure(model, optimizer) as memory:
        accumulated_update(model, nn.MSELoss(), optimizer, batches, [0.5] * len(made.sizes))
    assert made.sizes == (32, 32)
    assert memory.peak == made.peak < 10**6


def test_a_model_that_takes_no_single_sample_gets_a_plan():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    adam = torch.optim.AdamW
    assert sizes_of(model, mean_error, X, Y, adam) == (8,)
    with pytest.raises(DoesNotFit, match="at least micro-batches of 2 samples") as refused:
        sizes_of(model, mean_error, X, Y, adam, samples=9, budget=10)
    tight = sizes_of(model, mean_error, X, Y, adam, samples=9, budget=refused.value.peak)
    assert tight == (3, 2, 2, 2)


class ReadsValues(nn.Linear):
    def forward(self, x):
        x.detach().numpy()
        return super().forward(x)


@pytest.mark.parametrize(
    ("model", "loss_fn", "optimizer", "message"),
    [
        (ReadsValues(4, 1), mean_error, torch.optim.SGD, "model must run on tensors without"),
        (nn.Linear(3, 1), mean_error, torch.optim.SGD, "model must run .* got RuntimeError"),
        (nn.Linear(4, 1), lambda a, b: a / 0 + b[9], torch.optim.SGD, "loss_fn must run .* Index"),
        (nn.Linear(4, 1), mean_error, torch.optim.Adafactor, "optimizer must not depend on values"),
        (nn.Linear(4, 1), mean_error, torch.optim.LBFGS, "optimizer must run .*closure"),
        (nn.Linear(4, 1), mean_error, lambda _: 1 / 0, "optimizer must run .* ZeroDivisionError"),
    ],
)
def test_the_part_that_fails_is_named(model, loss_fn, optimizer, message):
    with pytest.raises(ValueError, match=message):
        sizes_of(model, loss_fn, X, Y, optimizer)


@pytest.mark.parametrize("held", [True, False])
def test_a_loss_that_uses_the_readers_model_leaves_its_gradients_alone(held):
    model = nn.Linear(4, 1)
    if held:
        model(X).sum().backward()
    before = None if model.weight.grad is None else model.weight.grad.clone()

    def with_decay(outputs, y):
        return mean_error(outputs, y) + model.weight.square().sum()

    with contextlib.suppress(ValueError):
        sizes_of(model, with_decay, X, Y, torch.optim.SGD)
    after = model.weight.grad
    assert (after is None) if before is None else torch.equal(after, before)


def test_what_the_allocator_holds_for_others_is_not_the_measured_codes(monkeypatch):
    model = nn.Linear(30, 20)
    monkeypatch.setattr(measuring, "one_device", lambda *_: torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 8_000)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 10_000)
    with measure(model) as memory:
        pass
    assert memory.live == 0  # nothing of it is on that device
    assert memory.allocator_peak == 2_000


# on a GPU


def test_fake_parameters_on_cuda_are_stepped_as_real_ones():
    with fake():
        weight = nn.Parameter(torch.empty(3, device="cuda"))
        for decided in (None, False):
            made = torch.optim.AdamW([weight], foreach=decided)
            same_kernels(made)
            assert made.param_groups[0]["foreach"] is (decided is None)
        for other in ({"fused": True}, {"differentiable": True}):
            made = torch.optim.AdamW([weight], **other)
            same_kernels(made)
            assert made.param_groups[0]["foreach"] is None


@needs_cuda
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_prediction_is_within_5_percent_of_cudas_allocator(name):
    model = nn.Sequential(*(transformer_layer(1024, 16, device="cuda") for _ in range(4)))
    optimizer = OPTIMIZERS[name](model.parameters())
    sizes, shape = (4, 4), (512, 1024)

    def loss(out, _):
        return out.float().square().mean()

    def update(model, optimizer):
        batches = (
            (torch.zeros(size, *shape, dtype=torch.bfloat16, device="cuda"), None) for size in sizes
        )
        accumulated_update(model, loss, optimizer, batches, [0.5, 0.5])

    update(model, optimizer)  # makes the state, and cuBLAS its workspace
    gc.collect()
    with measure(model, optimizer) as memory:
        update(model, optimizer)
    assert memory.peak == pytest.approx(memory.allocator_peak, rel=0.05)
    x, y = torch.zeros(1, *shape, dtype=torch.bfloat16), torch.zeros(1)
    made = plan(model, loss, x, y, OPTIMIZERS[name], 8, memory.peak + 2**20)
    assert made.sizes == sizes
    assert made.peak == pytest.approx(memory.allocator_peak, rel=0.05)


# called wrongly


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"budget": 0}, ValueError, "budget must be a whole number of at least 1, got 0"),
        ({"budget": 1e9}, TypeError, "budget must be a whole number of at least 1, got 1000000000"),
        ({"allowance": -1}, ValueError, "allowance must be a whole number of at least 0, got -1"),
        ({"effective_batch": 0}, ValueError, "effective_batch must be .* at least 1, got 0"),
        ({"model": "net"}, TypeError, "model must be a Module, got str"),
        ({"model": nn.Tanh()}, ValueError, "model must have trainable parameters"),
        ({"model": nn.LazyLinear(2)}, ValueError, "parameters without a shape"),
        ({"loss_fn": 1}, TypeError, "loss_fn must be callable, got 1"),
        ({"optimizer": None}, TypeError, "optimizer must be callable, got None"),
        ({"x": [1.0]}, TypeError, "x must be a tensor, got list"),
        ({"x": torch.tensor(1.0)}, ValueError, "x must hold at least one sample"),
        ({"y": torch.zeros(3)}, ValueError, "x and y must hold as many samples, got 1 and 3"),
        ({"loss_fn": lambda out, y: out}, ValueError, "loss_fn must return a scalar"),
        (
            {"loss_fn": lambda out, y: out.sum() * out.max().item()},
            ValueError,
            "loss_fn must not depend on values",
        ),
        ({"device": "xpu"}, ValueError, "device must be one that this machine has, got 'xpu'"),
    ],
)
def test_a_plan_says_what_it_takes(changed, error, message):
    right = {
        "model": nn.Linear(16, 3),
        "loss_fn": F.cross_entropy,
        "x": torch.zeros(1, 16),
        "y": torch.zeros(1).long(),
        "optimizer": torch.optim.Adam,
        "effective_batch": 8,
        "budget": 10**6,
    }
    with pytest.raises(error, match=message):
        plan(**{**right, **changed})


def test_an_optimizer_already_made_is_refused():
    model = nn.Linear(16, 3)
    made = torch.optim.SGD(model.parameters())
    with pytest.raises(TypeError, match="optimizer must make an optimizer"):
        plan(model, F.cross_entropy, torch.zeros(1, 16), torch.zeros(1).long(), made, 8, 10**6)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"model": 3}, TypeError, "model must be a Module or None, got 3"),
        ({"optimizer": "SGD"}, TypeError, "optimizer must be a Optimizer or None, got 'SGD'"),
        ({"inputs": [1]}, TypeError, "inputs must be tensors, got int"),
        ({"device": "xpu"}, ValueError, "device must be one that this machine has, got 'xpu'"),
    ],
)
def test_measuring_says_what_it_takes(changed, error, message):
    with pytest.raises(error, match=message), measure(**changed):
        pass


def test_sparse_gradients_are_refused_not_miscounted():
    model = nn.Embedding(5, 2, sparse=True)
    with pytest.raises(ValueError, match="only dense tensors"), measure(model):
        model(torch.tensor([1])).sum().backward()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, 1, 8, 2), ValueError, "sequence must be"),
        ((8, 1.5, 8, 2), TypeError, "batch must be"),
        ((8, 1, 8, 3), ValueError, "heads=3 must divide hidden=8"),
        (
            (8, 1, 8, 2, "all"),
            ValueError,
            "must be one of 'nothing', 'attention', 'layer'",
        ),
    ],
)
def test_the_formula_says_what_it_takes(arguments, error, message):
    with pytest.raises(error, match=message):
        activation_formula(*arguments)


def test_the_layer_says_what_it_takes():
    with pytest.raises(ValueError, match="heads=3 must divide hidden=8"):
        transformer_layer(8, 3)
    with pytest.raises(ValueError, match="dropout must be at least 0 and below 1, got 1"):
        transformer_layer(8, 2, dropout=1)
