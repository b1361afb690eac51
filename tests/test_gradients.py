import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from helpers.gradients import (
    SCALINGS,
    accumulate,
    accumulated_gradient,
    compare,
    flat_gradient,
    flat_weights,
    full_batch_gradient,
    per_sample_gradients,
    scale_factors,
)
from helpers.models import one_neuron, small_convnet
from helpers.samples import digits, eight_samples, micro_batches
from helpers.subjects.training import train

X, Y = eight_samples()
MSE = nn.MSELoss()
FULL = torch.tensor([1.0, -3.5])
EACH = [(4, -2), (6, 2), (6, -6), (-4, -2), (-16, -4), (-4, -4), (16, -8), (0, -4)]


def cut(sizes, scaling="steps"):
    return accumulated_gradient(one_neuron(), MSE, X, Y, sizes, scaling)


def every_cut_of_eight():
    for cuts in itertools.product((False, True), repeat=7):
        edges = [0, *(i for i, here in enumerate(cuts, start=1) if here), 8]
        yield tuple(end - start for start, end in itertools.pairwise(edges))


CUTS = list(every_cut_of_eight())


def test_there_are_128_ways_to_cut_eight_samples():
    assert len(set(CUTS)) == 128


def test_the_full_batch_gradient_is_1_and_minus_3_5():
    assert torch.equal(full_batch_gradient(one_neuron(), MSE, X, Y), FULL)


def test_each_sample_has_the_gradient_of_the_course():
    gradients = per_sample_gradients(one_neuron(), MSE, X, Y)
    assert [tuple(row) for row in gradients.tolist()] == EACH


def test_two_halves_add_up_to_the_full_batch():
    first = accumulated_gradient(one_neuron(), MSE, X[:4], Y[:4], (4,)) / 2
    second = accumulated_gradient(one_neuron(), MSE, X[4:], Y[4:], (4,)) / 2
    assert (first.tolist(), second.tolist()) == ([1.5, -1], [-0.5, -2.5])
    assert torch.equal(first + second, FULL)


@pytest.mark.parametrize("sizes", CUTS, ids=str)
def test_weighted_by_samples_every_cut_gives_the_full_batch_to_the_bit(sizes):
    assert torch.equal(cut(sizes, "samples"), FULL)


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_divided_by_steps_equal_cuts_give_the_full_batch_to_the_bit(k):
    assert torch.equal(cut((8 // k,) * k), FULL)


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_unscaled_gradient_is_k_times_as_long(k):
    assert torch.equal(cut((8 // k,) * k, "none"), k * FULL)


@pytest.mark.parametrize("sizes", CUTS, ids=str)
def test_divided_by_steps_every_cut_gives_the_mean_of_means(sizes):
    means = [torch.tensor(part).mean(0) for part in _parts(sizes)]
    assert torch.allclose(cut(sizes), torch.stack(means).mean(0), rtol=1e-6, atol=1e-6)
    assert torch.allclose(cut(sizes, "none"), torch.stack(means).sum(0), rtol=1e-6, atol=1e-6)


def _parts(sizes):
    rows = iter(EACH)
    return [[tuple(map(float, next(rows))) for _ in range(size)] for size in sizes]


def test_cut_into_5_and_3_the_mean_of_means_is_wrong():
    assert [round(g, 4) for g in cut((5, 3)).tolist()] == [1.6, -3.8667]


dyadic = st.integers(-64, 64).map(lambda n: n / 8)


@given(
    batch=st.lists(st.tuples(dyadic, dyadic), min_size=2, max_size=16),
    data=st.data(),
)
def test_for_dyadic_data_the_weighted_gradient_is_exact_for_powers_of_two(batch, data):
    x, y = torch.tensor(batch).split(1, dim=1)
    count = 2 ** int(math.log2(len(x)))
    cuts = data.draw(st.sets(st.integers(1, count - 1)))
    edges = [0, *sorted(cuts), count]
    sizes = [end - start for start, end in itertools.pairwise(edges)]
    model = one_neuron()
    weighted = accumulated_gradient(
        model, _sum_of_squares_mean, x[:count], y[:count], sizes, "samples"
    )
    full = full_batch_gradient(model, _sum_of_squares_mean, x[:count], y[:count])
    # 1/size rounds for sizes such as 3, so the mean is exact only up to that rounding.
    assert compare(weighted, full).largest_difference <= 1e-5 * (1 + full.abs().max().item())
    if all(size & (size - 1) == 0 for size in sizes):
        assert torch.equal(weighted, full)


def _sum_of_squares_mean(outputs, targets):
    return (outputs - targets).square().mean()


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5).filter(lambda sizes: sum(sizes) > 1),
    scaling=st.sampled_from(SCALINGS),
)
def test_on_a_real_net_every_scaling_is_what_its_factors_say(sizes, scaling):
    x, y = digits(sum(sizes))
    model, loss_fn = small_convnet(), nn.CrossEntropyLoss()
    batches = micro_batches(x, y, sizes)
    own = [full_batch_gradient(model, loss_fn, *batch) for batch in batches]
    expected = sum(g * f for g, f in zip(own, scale_factors(sizes, scaling), strict=True))
    gradient = accumulated_gradient(model, loss_fn, x, y, sizes, scaling)
    assert compare(gradient, expected).relative_difference < 1e-5
    if scaling == "samples":
        full = full_batch_gradient(model, loss_fn, x, y)
        assert compare(gradient, full).relative_difference < 1e-5


def test_factors_of_the_three_scalings():
    assert scale_factors((5, 3), "none") == (1, 1)
    assert scale_factors((5, 3), "steps") == (0.5, 0.5)
    assert scale_factors((5, 3), "samples") == (0.625, 0.375)


def test_per_sample_gradients_average_to_the_full_batch_of_a_convnet():
    x, y = digits(12)
    model, loss_fn = small_convnet(), nn.CrossEntropyLoss()
    gradients = per_sample_gradients(model, loss_fn, x, y)
    assert gradients.shape == (12, 1898)
    full = full_batch_gradient(model, loss_fn, x, y)
    assert compare(gradients.mean(0), full).relative_difference < 1e-5


def test_measuring_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Linear(1, 3), nn.BatchNorm1d(3), nn.Dropout(), nn.Linear(3, 1))
    model(X).sum().backward()
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    gradients = [(p.grad, p.grad.clone()) for p in model.parameters()]
    state = torch.random.get_rng_state()
    full_batch_gradient(model, MSE, X, Y)
    accumulated_gradient(model, MSE, X, Y, (4, 4))
    assert all(torch.equal(kept[name], tensor) for name, tensor in model.state_dict().items())
    for parameter, (gradient, value) in zip(model.parameters(), gradients, strict=True):
        assert parameter.grad is gradient
        assert torch.equal(gradient, value)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_of_several_losses_the_broken_one_is_told():
    model = one_neuron()

    def broken_from_the_third(outputs, targets):
        third = outputs.numel() == 2 and outputs[0] == X[4]
        return outputs.sum() * (float("nan") if third else 1.0)

    with pytest.raises(ValueError, match="loss must be a finite number, got nan"):
        accumulated_gradient(model, broken_from_the_third, X, Y, (2, 2, 2, 2))


def test_measuring_leaves_the_model_as_it_was_after_an_error_too():
    model = one_neuron()
    with pytest.raises(ValueError, match="loss must be a finite number, got inf"):
        full_batch_gradient(model, lambda outputs, targets: outputs.exp().exp().sum() * 3e38, X, Y)
    assert model.weight.grad is None


def test_frozen_parameters_stay_out_of_the_gradient():
    model = one_neuron()
    model.bias.requires_grad_(False)
    assert full_batch_gradient(model, MSE, X, Y).tolist() == [1.0]
    assert per_sample_gradients(model, MSE, X, Y).shape == (8, 1)


def test_a_parameter_without_gradient_counts_as_zero():
    assert flat_gradient(one_neuron()).tolist() == [0.0, 0.0]


# training


def run(k, scaling, lr=1 / 16, updates=1):
    model = one_neuron()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return train(model, optimizer, MSE, [(X, Y)] * updates, k, scaling, keep_weights=True), model


def test_one_scaled_update_leaves_the_full_batch_weights_to_the_bit():
    for k in (1, 2, 4, 8):
        (update,), model = run(k, "steps")
        assert update.weights.tolist() == [0.9375, 0.21875]
        assert torch.equal(flat_weights(model), update.weights)


def test_the_reported_loss_is_the_unscaled_mean():
    for scaling in SCALINGS:
        (update,), _ = run(2, scaling)
        assert update.loss == 5.0


def test_the_gradient_norm_is_what_the_optimizer_saw():
    assert run(1, "none")[0][0].gradient_norm == pytest.approx(math.sqrt(13.25))
    assert run(4, "none")[0][0].gradient_norm == pytest.approx(4 * math.sqrt(13.25))


def test_unscaled_two_steps_converge_faster_and_four_diverge():
    full, two, four = (run(k, "none", updates=30)[0][-1].loss for k in (1, 2, 4))
    assert two < full < 5 < four


def test_gradients_of_an_earlier_window_are_cleared():
    first, second = run(2, "steps", lr=0.0, updates=2)[0]
    assert first.gradient_norm == second.gradient_norm


# comparing


def test_a_comparison_says_exact_or_how_far():
    assert str(compare(FULL, FULL.clone())) == "equal to the bit"
    twice = compare(2 * FULL, FULL)
    assert (twice.exact, twice.largest_difference, twice.length_ratio) == (False, 3.5, 2.0)
    assert str(twice) == "different: largest difference 3.5, 100 % of its length; 2 times as long"


def test_one_bit_apart_is_not_exact():
    near = torch.nextafter(FULL, torch.tensor(10.0))
    assert not compare(near, FULL).exact
    assert compare(near, FULL).largest_difference > 0


def test_zero_against_zero_is_exact_and_anything_else_infinitely_far():
    zero = torch.zeros(2)
    assert compare(zero, zero).exact
    assert compare(FULL, zero).relative_difference == math.inf


# bad input

NO_GRAD = one_neuron().requires_grad_(False)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: cut((4, 4), "mean"),
            ValueError,
            "scaling must be one of 'none', 'steps', 'samples', got",
        ),
        (lambda: cut((4, 3)), ValueError, "must add up to the batch of 8"),
        (lambda: scale_factors((4, 0), "steps"), ValueError, "each of sizes .* at least 1, got 0"),
        (
            lambda: full_batch_gradient(NO_GRAD, MSE, X, Y),
            ValueError,
            "model must have trainable parameters",
        ),
        (
            lambda: full_batch_gradient(one_neuron(), nn.MSELoss(reduction="none"), X, Y),
            ValueError,
            r"loss_fn must return a scalar tensor .*, got shape \(8, 1\)",
        ),
        (
            lambda: full_batch_gradient(one_neuron(), lambda outputs, targets: 5.0, X, Y),
            ValueError,
            "loss_fn must return a scalar tensor .*, got float",
        ),
        (
            lambda: full_batch_gradient(one_neuron(), MSE, X.to("meta"), Y.to("meta")),
            ValueError,
            "model is on cpu but x is on meta",
        ),
        (
            lambda: full_batch_gradient(one_neuron(), MSE, X.sqrt(), Y),
            ValueError,
            "x must hold no NaN",
        ),
        (lambda: compare(FULL, torch.zeros(3)), ValueError, r"one shape, got \(2,\) and \(3,\)"),
        (lambda: compare(FULL, FULL.to("meta")), ValueError, "one device, got cpu and meta"),
        (lambda: run(0, "none"), ValueError, "accumulation_steps must be .* at least 1, got 0"),
        (lambda: run(-2, "none"), ValueError, "accumulation_steps must be .* at least 1, got -2"),
        (lambda: run(2.5, "none"), TypeError, "accumulation_steps must be .*, got 2.5"),
        (lambda: run(3, "none"), ValueError, "accumulation_steps=3 must divide each batch, got 8"),
        (
            lambda: run(16, "none"),
            ValueError,
            "accumulation_steps=16 must divide each batch, got 8",
        ),
        (lambda: run(2, "half"), ValueError, "scaling must be one of"),
        (lambda: run(2, "none", updates=0), ValueError, "batches .* got an empty loader"),
    ],
)
def test_bad_input_is_named_with_what_is_allowed(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_loss_that_breaks_in_training_leaves_the_last_good_weights():
    model, x = one_neuron(), X.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=1 / 16)
    broken = torch.full_like(X, 3e38)
    with pytest.raises(ValueError, match="loss must be a finite number, got inf"):
        train(model, optimizer, MSE, [(x, Y), (broken, Y)], 2)
    assert flat_weights(model).tolist() == [0.9375, 0.21875]


def test_accumulate_adds_to_what_is_there():
    model = one_neuron()
    for _ in range(2):
        accumulate(model, MSE, micro_batches(X, Y, (4, 4)), (0.5, 0.5))
    assert torch.equal(flat_gradient(model), 2 * FULL)
