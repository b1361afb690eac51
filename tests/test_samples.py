import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.models import one_neuron, small_convnet
from helpers.samples import (
    digits,
    eight_samples,
    equal_sizes,
    micro_batches,
)
from helpers.subjects.training import loss_surface

LOSSES = [1, 1, 9, 1, 4, 4, 16, 4]


def test_the_eight_losses_are_those_of_the_course():
    x, y = eight_samples()
    assert ((one_neuron()(x) - y) ** 2).flatten().tolist() == LOSSES


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_eight_losses_are_exact_in_every_precision(dtype):
    x, y = (tensor.to(dtype) for tensor in eight_samples())
    assert ((one_neuron().to(dtype)(x) - y) ** 2).flatten().tolist() == LOSSES


def test_models_and_data_draw_no_random_number_of_the_caller():
    state = torch.random.get_rng_state()
    one_neuron(), small_convnet(), digits(4)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_convnet_starts_the_same_for_one_seed_and_has_no_batchnorm():
    first, again, other = small_convnet(), small_convnet(), small_convnet(seed=1)
    assert all(map(torch.equal, first.parameters(), again.parameters()))
    assert not torch.equal(next(first.parameters()), next(other.parameters()))
    assert sum(p.numel() for p in first.parameters()) == 1898
    assert list(first.buffers()) == []


def test_digits_are_images_from_0_to_1_with_their_labels():
    images, labels = digits(100)
    assert images.shape == (100, 1, 8, 8)
    assert (images.min(), images.max()) == (0, 1)
    assert labels[:10].tolist() == list(range(10))


def test_the_loss_surface_has_the_loss_and_the_minimum_of_the_eight_samples():
    surface = loss_surface(points=35)
    weight, bias = surface.minimum
    assert (round(weight, 4), round(bias, 4)) == (0.6446, 1.9721)
    x, y = eight_samples()
    for row, column in ((0, 0), (34, 20)):
        w, b = surface.weights[column], surface.biases[row]
        assert surface.losses[row][column] == pytest.approx(((w * x + b - y) ** 2).mean().item())


@given(samples=st.integers(2, 64), steps=st.integers(1, 64))
def test_equal_sizes_make_up_the_batch_or_say_which_steps_would(samples, steps):
    if steps <= samples and samples % steps == 0:
        assert equal_sizes(samples, steps) == (samples // steps,) * steps
    else:
        with pytest.raises(ValueError, match=f"steps.*{steps}"):
            equal_sizes(samples, steps)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8).filter(lambda sizes: sum(sizes) > 1))
def test_micro_batches_are_the_batch_in_order(sizes):
    x = torch.arange(sum(sizes)).float()
    batches = micro_batches(x, -x, sizes)
    assert [len(part) for part, _ in batches] == sizes
    assert torch.equal(torch.cat([part for part, _ in batches]), x)
    assert torch.equal(torch.cat([part for _, part in batches]), -x)


X, Y = eight_samples()


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ((4, 5), ValueError, r"sizes=\(4, 5\) must add up to the batch of 8 samples, not 9"),
        ((), ValueError, "must add up to the batch of 8 samples, not 0"),
        ((8, 0), ValueError, "each of sizes must be a whole number of at least 1, got 0"),
        ((9, -1), ValueError, "each of sizes must be a whole number of at least 1, got -1"),
        ((4.0, 4.0), TypeError, "each of sizes must be a whole number of at least 1, got 4.0"),
        ((True, 7), TypeError, "each of sizes must be .*, got True"),
        (8, TypeError, "sizes must be a sequence of whole numbers, got 8"),
        ("44", TypeError, "sizes must be a sequence of whole numbers, got '44'"),
    ],
)
def test_sizes_that_are_no_micro_batches_are_refused(sizes, error, message):
    with pytest.raises(error, match=message):
        micro_batches(X, Y, sizes)


@pytest.mark.parametrize(
    ("x", "y", "error", "message"),
    [
        (X, Y[:7], ValueError, "as many samples, got 8 and 7"),
        (X[:0], Y[:0], ValueError, r"x must hold at least one sample, got shape \(0, 1\)"),
        (X[0, 0], Y, ValueError, r"x must hold at least one sample, got shape \(\)"),
        ([1.0] * 8, Y, TypeError, "x must be a tensor, got list"),
        (X, Y.to("meta"), ValueError, "on one device, got cpu and meta"),
        (X.log(), Y, ValueError, "x must hold no NaN, got one in sample 0"),
        (X, Y / (X - 4) * (X - 4), ValueError, "y must hold no NaN, got one in sample 4"),
    ],
)
def test_data_that_is_no_batch_is_refused(x, y, error, message):
    with pytest.raises(error, match=message):
        micro_batches(x, y, (4, 4))


def test_a_batch_of_one_leaves_nothing_to_accumulate():
    with pytest.raises(ValueError, match="a batch of 1 sample leaves nothing to accumulate"):
        micro_batches(X[:1], Y[:1], (1,))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: equal_sizes(8, 0), ValueError, "steps must be from 1 to 8, got 0"),
        (lambda: equal_sizes(8, -2), ValueError, "steps must be from 1 to 8, got -2"),
        (lambda: equal_sizes(8, 16), ValueError, "steps must be from 1 to 8, got 16"),
        (lambda: equal_sizes(8, 2.0), TypeError, "steps must be from 1 to 8, got 2.0"),
        (lambda: equal_sizes(8, 3), ValueError, r"steps=3 .* one of \[1, 2, 4, 8\]"),
        (lambda: equal_sizes(1, 1), ValueError, "samples must be .* at least 2, got 1"),
        (lambda: digits(0), ValueError, "samples must be from 1 to 1797, got 0"),
        (lambda: digits(1798), ValueError, "samples must be from 1 to 1797, got 1798"),
        (lambda: loss_surface(1), ValueError, "points must be .* at least 2, got 1"),
    ],
)
def test_numbers_out_of_range_are_named_with_what_is_allowed(call, error, message):
    with pytest.raises(error, match=message):
        call()
