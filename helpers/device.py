"""Where the lessons compute, and how they compute the same everywhere."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

DEVICE_VARIABLE = "GA_DEVICE"


def pick_device() -> torch.device:
    """The device the lessons run on: CUDA where there is one, else MPS, else the CPU.

    The environment variable ``GA_DEVICE`` (``cpu``, ``cuda``, ``cuda:1``, ``mps``) forces one.

    Raises:
        ValueError: ``GA_DEVICE`` names no device, or one that this machine lacks.
    """
    wanted = os.environ.get(DEVICE_VARIABLE, "").strip()
    here = _devices_here()
    if not wanted:
        return torch.device(here[0].split(":")[0])
    if wanted not in here and f"{wanted}:0" not in here:
        raise ValueError(f"{DEVICE_VARIABLE}={wanted!r} is not one of the devices here: {here}")
    return torch.device(wanted)


def _devices_here() -> list[str]:
    """Every device of this machine, the preferred first."""
    cuda = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    mps = ["mps"] if torch.backends.mps.is_available() else []
    return [*cuda, *mps, "cpu"]


@contextmanager
def same_on_every_device(seed: int = 0) -> Iterator[None]:
    """Random draws from ``seed`` and full float32 products inside, all as before afterwards.

    TF32, which cuDNN uses for convolutions unless told otherwise, keeps 10 bits of the 23, so a CPU
    and a GPU would differ in the fourth digit. Draw random numbers on the CPU and move them:
    generators of different devices give different numbers for one seed. The generators of all
    devices in use are seeded, and put back also where the code inside seeds them anew.
    """
    products = (
        torch.backends.cuda.matmul,
        torch.backends.cudnn.conv,
        torch.backends.mkldnn.matmul,
        torch.backends.mkldnn.conv,
    )
    precisions = [product.fp32_precision for product in products]
    deterministic = torch.backends.cudnn.deterministic
    random_states = [(generator, generator.get_state()) for generator in _generators()]
    try:
        for product in products:
            product.fp32_precision = "ieee"
        torch.backends.cudnn.deterministic = True
        for generator, _ in random_states:
            generator.manual_seed(seed)
        yield
    finally:
        for product, precision in zip(products, precisions, strict=True):
            product.fp32_precision = precision
        torch.backends.cudnn.deterministic = deterministic
        for generator, state in random_states:
            generator.set_state(state)


def _generators() -> list[torch.Generator]:
    """Those that ``torch.manual_seed`` would seed: the CPU's, and of each device in use."""
    # Asking a GPU that nobody uses yet for its generator would start it up.
    cuda = list(torch.cuda.default_generators) if torch.cuda.is_initialized() else []
    mps = [torch.mps._get_default_mps_generator()] if torch.backends.mps.is_available() else []
    return [torch.random.default_generator, *cuda, *mps]
