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


def fail_inside():
    with same_on_every_device():
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"
        torch.randn(5)
        raise RuntimeError("stop")


@pytest.fixture
def tf32():
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    yield
    torch.backends.cuda.matmul.fp32_precision = before


def test_random_state_and_precision_settings_are_as_before_even_after_an_error(tf32):
    state = torch.random.get_rng_state()
    with pytest.raises(RuntimeError, match="stop"):
        fail_inside()
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    assert torch.equal(torch.random.get_rng_state(), state)
