import pytest
import torch

from helpers.device import DEVICE_VARIABLE, pick_device, same_on_every_device


def test_the_environment_variable_forces_the_device(monkeypatch):
    monkeypatch.setenv(DEVICE_VARIABLE, "cpu")
    assert pick_device() == torch.device("cpu")


def test_cuda_comes_before_mps_and_mps_before_the_cpu(monkeypatch):
    monkeypatch.delenv(DEVICE_VARIABLE, raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device() == torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert pick_device() == torch.device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert pick_device() == torch.device("cpu")


@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_a_gpu_can_be_named_where_there_are_two(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv(DEVICE_VARIABLE, name)
    assert pick_device() == torch.device(name)


@pytest.mark.parametrize("name", ["gpu", "cuda:7", "CPU "])
def test_a_device_that_is_not_here_is_named_in_the_error(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv(DEVICE_VARIABLE, name)
    with pytest.raises(ValueError, match=f"{DEVICE_VARIABLE}='{name.strip()}'.*'cuda:1'.*'cpu'"):
        pick_device()


def test_the_same_seed_draws_the_same_numbers():
    with same_on_every_device(seed=3):
        first = torch.randn(20)
    with same_on_every_device(seed=3):
        assert torch.equal(torch.randn(20), first)
    with same_on_every_device(seed=4):
        assert not torch.equal(torch.randn(20), first)


PRODUCTS = {
    "cuBLAS": torch.backends.cuda.matmul,
    "cuDNN's convolutions": torch.backends.cudnn.conv,
    "oneDNN's products": torch.backends.mkldnn.matmul,
    "oneDNN's convolutions": torch.backends.mkldnn.conv,
}


@pytest.fixture(params=PRODUCTS)
def product(request):
    product = PRODUCTS[request.param]
    before = product.fp32_precision
    yield product
    product.fp32_precision = before


def test_convolutions_round_to_tf32_unless_told_otherwise():
    assert torch.backends.cudnn.conv.fp32_precision == "tf32"


@pytest.mark.parametrize("before", ["tf32", "ieee", "none"])
def test_every_product_is_full_float32_inside_and_as_it_was_afterwards(product, before):
    product.fp32_precision = before
    as_found = product.fp32_precision
    with same_on_every_device():
        assert product.fp32_precision == "ieee"
    assert product.fp32_precision == as_found


@pytest.mark.parametrize("before", [True, False])
def test_algorithms_are_deterministic_inside_and_as_they_were_afterwards(monkeypatch, before):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", before)
    with same_on_every_device():
        assert torch.backends.cudnn.deterministic
    assert torch.backends.cudnn.deterministic is before


def fail_inside():
    with same_on_every_device():
        torch.randn(5)
        raise RuntimeError("stop")


def test_everything_is_as_before_even_after_an_error(product):
    product.fp32_precision = "tf32"
    state = torch.random.get_rng_state()
    with pytest.raises(RuntimeError, match="stop"):
        fail_inside()
    assert product.fp32_precision == "tf32"
    assert not torch.backends.cudnn.deterministic
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.fixture
def gpus(monkeypatch):
    """Stand-ins for the generators of two CUDA devices and of MPS, each somewhere in its draws."""
    stand_ins = [torch.Generator().manual_seed(seed) for seed in (11, 12, 13)]
    for generator in stand_ins:
        torch.randn(3, generator=generator)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "default_generators", tuple(stand_ins[:2]))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "_get_default_mps_generator", lambda: stand_ins[2])
    return stand_ins


def test_every_devices_draws_come_from_the_seed_and_go_on_as_before_afterwards(gpus):
    generators = [torch.random.default_generator, *gpus]
    before = [generator.get_state() for generator in generators]
    from_seed = torch.randn(4, generator=torch.Generator().manual_seed(3))
    with same_on_every_device(seed=3):
        for generator in generators:
            assert torch.equal(torch.randn(4, generator=generator), from_seed)
            generator.manual_seed(99)  # as torch.manual_seed, called inside, would
    after = [generator.get_state() for generator in generators]
    assert all(map(torch.equal, before, after))


def test_a_gpu_that_nobody_uses_is_left_asleep(gpus, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    before = [generator.get_state() for generator in gpus]
    with same_on_every_device(seed=3):
        assert all(map(torch.equal, before, [generator.get_state() for generator in gpus]))
