"""What another machine may do to a lesson's float32 numbers, done to them here.

This runs in a lesson's kernel. A sum or product that float32 can't hold exactly comes out
differently on other hardware, because it is added up in another order; one that it can hold
exactly, such as those of the eight samples, comes out alike everywhere. So every inexact result is
moved to one of its two neighbours. Which one hangs on its digits: a machine is consistent, the same
operation on the same numbers, or on all of them doubled, gives the same twice.

It also notes every product that a GPU may round to TF32, because it is taken outside
``same_on_every_device``.
"""

import linecache
import sys

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

# The operations that multiply float32 numbers in a GPU's tensor cores: the setting that says how,
# and where their factors stand among the arguments.
PRODUCTS = {
    "convolution": (torch.backends.cudnn.conv, slice(0, 2)),
    "convolution_backward": (torch.backends.cudnn.conv, slice(0, 3)),
    "mm": (torch.backends.cuda.matmul, slice(0, 2)),
    "bmm": (torch.backends.cuda.matmul, slice(0, 2)),
    "addmm": (torch.backends.cuda.matmul, slice(1, 3)),
    "baddbmm": (torch.backends.cuda.matmul, slice(1, 3)),
    "_scaled_dot_product_flash_attention_for_cpu": (torch.backends.cuda.matmul, slice(0, 3)),
}
SUMS = {
    *("sum", "mean", "dot", "mv", "addmv", "var_mean", "linalg_vector_norm", "_foreach_norm"),
    *("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"),
    *("native_layer_norm", "native_batch_norm", "native_group_norm", "nll_loss_forward"),
    *("native_layer_norm_backward", "native_batch_norm_backward", "native_group_norm_backward"),
    *("mse_loss", "mse_loss_backward", "exp", "log", "gelu", "gelu_backward", "_linalg_eigh"),
    "_scaled_dot_product_flash_attention_for_cpu_backward",
}
BITS_THAT_TF32_DROPS = 2**13 - 1
EIGHT_SAMPLES = 8


class OtherMachine(TorchDispatchMode):
    """Moves inexact results by one unit in the last place; ``rounded`` lists what TF32 may hit."""

    def __init__(self, seed: int = 0):
        super().__init__()
        self.seed = seed
        self.moved = 0  # how many numbers came out otherwise
        self.rounded: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        result = func(*args, **kwargs)
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if not all(map(_has_numbers, given)):
            return result
        if name in PRODUCTS:
            setting, factors = PRODUCTS[name]
            if setting.fp32_precision != "ieee" and _tf32_may_tell(args[factors]):
                self.rounded.add(f"{name}: {_lesson_line()}")
        if name in PRODUCTS or name in SUMS:
            wide = func(*tree_map(_widened, args), **tree_map(_widened, kwargs))
            for one, exact in zip(tree_leaves(result), tree_leaves(wide), strict=True):
                self._move(one, exact)
        return result

    def _move(self, result: object, exact: object) -> None:
        """Move each float32 number that differs from the exact one to a neighbour, in place."""
        if not isinstance(result, Tensor) or result.dtype != torch.float32:
            return
        inexact = (result.double() != exact) & result.isfinite() & (result != 0)
        bits = result.view(torch.int32)
        digits = (bits & 0x7FFFFF).long()
        up = (digits * 2654435761 + self.seed * 40503 >> 15) & 1
        bits.add_(torch.where(inexact, 2 * up - 1, 0).int())
        self.moved += int(inexact.sum())


def _has_numbers(tensor: Tensor) -> bool:
    """Whether it is an ordinary tensor and no stand-in that knows its shape alone."""
    return type(tensor) in (Tensor, torch.nn.Parameter) and tensor.device.type != "meta"


def _widened(value: object) -> object:
    """The same in float64, be it a tensor or the name of a type."""
    if value is torch.float32:
        return torch.float64
    is_narrow = isinstance(value, Tensor) and value.dtype == torch.float32
    return value.double() if is_narrow else value


def _tf32_may_tell(factors: tuple[Tensor, ...]) -> bool:
    """Whether a factor has digits that TF32 drops; the eight samples' one neuron may have them."""
    narrow = [factor for factor in factors if factor.dtype == torch.float32]
    if all(factor.numel() <= EIGHT_SAMPLES for factor in narrow):
        return False
    return any(bool((f.view(torch.int32) & BITS_THAT_TF32_DROPS).any()) for f in narrow)


def _lesson_line() -> str:
    """The line of the lesson that is running."""
    frame = sys._getframe()
    while frame.f_back and "ipykernel_" not in frame.f_code.co_filename:
        frame = frame.f_back
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
