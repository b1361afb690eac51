"""What can be recorded: a model whose parameters and buffers hold numbers that can be read."""

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

SHARDED = {"DTensor", "ShardedTensor", "FlatParameter"}  # of FSDP and tensor parallelism


def check_model(model: nn.Module) -> None:
    """Refuse what can't be recorded.

    Raises:
        TypeError: ``model`` is no module, or a parameter or buffer is of a type without a number
            for each element.
        ValueError: nothing is trainable, or a parameter or buffer is not there as a whole.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    trainable = {n: p for n, p in model.named_parameters() if p.requires_grad}
    if not trainable:
        raise ValueError(
            f"model must have a parameter that requires a gradient, got {type(model).__name__} "
            "with none"
        )
    for name, parameter in trainable.items():
        _check_tensor(f"parameter {name!r}", parameter)
    for name, buffer in model.named_buffers():
        _check_tensor(f"buffer {name!r}", buffer)


def check_limit(keep_vectors_up_to: int) -> None:
    """Refuse what counts no elements.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is negative.
    """
    if isinstance(keep_vectors_up_to, bool) or not isinstance(keep_vectors_up_to, int):
        raise TypeError(f"keep_vectors_up_to must be a whole number, got {keep_vectors_up_to!r}")
    if keep_vectors_up_to < 0:
        raise ValueError(f"keep_vectors_up_to must be at least 0, got {keep_vectors_up_to}")


def _check_tensor(what: str, tensor: Tensor) -> None:
    if SHARDED & {kind.__name__ for kind in type(tensor).__mro__}:
        raise ValueError(
            f"{what} is sharded ({type(tensor).__name__}): this process holds a part of it only; "
            "record the model before it is sharded, or under DistributedDataParallel"
        )
    if is_lazy(tensor):
        raise ValueError(f"{what} has no shape yet: call the model once before recording it")
    if tensor.is_meta:
        raise ValueError(
            f"{what} is on the meta device and holds no numbers: load the model before recording it"
        )
    if tensor.is_nested:
        raise TypeError(f"{what} is a nested tensor, which has no one shape")
    if not _readable(tensor.dtype):
        raise TypeError(f"{what} is {tensor.dtype}, whose elements PyTorch can't turn into numbers")


def _readable(dtype: torch.dtype) -> bool:
    """Whether elements of this type can be copied into a float32 tensor."""
    try:
        if dtype in (torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4):
            return True  # by dequantize()
        if dtype.is_complex:
            return True  # by view_as_real()
        torch.zeros(1).copy_(torch.empty(1, dtype=dtype))
    except (NotImplementedError, RuntimeError):
        return False
    return True
