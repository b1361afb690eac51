"""Where gradients and buffers are written down, and measured many at a time."""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from helpers.recorder.events import PROBED, Reading

BLOCK_ROWS = 64
BLOCK_ELEMENTS = 2**22  # at most this many numbers wait to be measured; larger models don't wait

Rows = dict[int, int | None]  # for each tensor the row in which it stands, None for zeros


class Ledger:
    """Rows with a place for each tensor, filled at one moment, measured many rows at a time.

    The rows of a model too large to wait take each tensor's norm and fingerprint at once.
    """

    def __init__(self, tensors: tuple[Tensor, ...], keep_up_to: int):
        self.tensors = tensors
        self.sizes = [t.numel() for t in tensors]
        dtypes = (t.dtype for t in tensors)
        self.dtype = functools.reduce(torch.promote_types, dtypes, torch.float32)
        self.keep = sum(self.sizes) <= keep_up_to
        self.rows: list[list[Any]] = []
        self.first = self.used = 0  # number of the block's first row, rows taken in it
        self.measured: list[Tensor] = []  # blocks of shape (rows, tensors, 2)
        self.kept: list[Tensor] = []

    def take(self, count: int) -> range:
        """The numbers of ``count`` rows to be filled before the next are taken."""
        if not self.rows:
            self._lay_out()
        if self.used + count > len(self.rows):
            self._measure_block()
        start = self.first + self.used
        self.used += count
        return range(start, start + count)

    def views(self, row: int) -> list[Any]:
        """The places in a row, one for each tensor."""
        return self.rows[row - self.first]

    def write(self, tensors: Iterable[Tensor | None]) -> int:
        """Fill a new row, None as zeros; returns its number."""
        (row,) = self.take(1)
        for view, tensor in zip(self.rows[row - self.first], tensors, strict=True):
            if tensor is None or tensor.numel() == 0:
                view.zero_()
            else:
                view.copy_(plain(tensor))
        return row

    def _lay_out(self) -> None:
        # Late, so that the rows lie where the model lies once the loop has moved it.
        device, dtype, shapes = self.tensors[0].device, self.dtype, [t.shape for t in self.tensors]
        self.patterns = [_pattern(size, i, dtype, device) for i, size in enumerate(self.sizes)]
        fitting = min(BLOCK_ROWS, BLOCK_ELEMENTS // max(1, sum(self.sizes)))
        if self.keep:  # whole vectors are wanted, so they have to be written down
            fitting = max(4, fitting)
        self.block = None
        with torch.inference_mode(False):
            if fitting >= 4:
                self.block = torch.zeros(fitting, sum(self.sizes), dtype=dtype, device=device)
                for row in self.block:
                    parts = zip(row.split(self.sizes), shapes, strict=True)
                    self.rows.append([part.view(shape) for part, shape in parts])
            else:
                strides = map(_stride, self.sizes)
                probes = list(zip(self.patterns, strides, strict=True))
                self.rows = [[_Probe(*probe) for probe in probes] for _ in range(BLOCK_ROWS)]

    @torch.no_grad()
    def _measure_block(self) -> None:
        if self.block is None:
            readings = [probe.reading for row in self.rows[: self.used] for probe in row]
            table = torch.stack(readings).view(self.used, -1, 2)
        else:
            parts = zip(
                self.block[: self.used].split(self.sizes, dim=1), self.patterns, strict=True
            )
            table = torch.stack([_measure(part, pattern) for part, pattern in parts], dim=1)
            if self.keep:
                self.kept.append(self.block[: self.used].clone())
        self.measured.append(table)
        self.first, self.used = self.first + self.used, 0

    def reader(self) -> tuple[Callable[[Rows], Reading], Callable[[Rows], list]]:
        """What to ask about one row (None: zeros) for each tensor: all in one, and one by one."""
        if self.used:
            self._measure_block()
        numbers = [row for table in self.measured for row in table.tolist()]
        vectors = [row.split(self.sizes) for block in self.kept for row in block]

        def each(rows: Rows) -> list[tuple[float, float]]:
            return [(0.0, 0.0) if r is None else numbers[r][i] for i, r in rows.items()]

        def together(rows: Rows) -> Reading:
            norms, fingerprints = zip(*each(rows), strict=True)
            vector = None
            if self.keep:
                parts = (
                    torch.zeros(self.sizes[i], dtype=self.dtype, device=self.tensors[0].device)
                    if row is None
                    else vectors[row][i]
                    for i, row in rows.items()
                )
                vector = torch.cat(list(parts))
            return Reading(math.hypot(*norms), sum(fingerprints), vector)

        return together, each


class _Probe:
    """Stands in for a row's view of one large tensor, and takes its measure instead of a copy."""

    def __init__(self, pattern: Tensor, stride: int):
        self.pattern, self.stride = pattern, stride
        self.zero_()

    def copy_(self, source: Tensor) -> None:
        pattern = self.pattern.to(source.device)
        numbers = source if source.is_floating_point() else source.to(pattern.dtype)
        norm = torch.linalg.vector_norm(numbers, dtype=pattern.dtype)
        # take() reads a transposed gradient in place, where flattening would copy it whole.
        probed = numbers.take(torch.arange(len(pattern), device=source.device) * self.stride)
        fingerprint = (probed.to(pattern.dtype) * pattern).sum()
        self.reading = torch.stack((norm, fingerprint)).to(self.pattern.device)

    def zero_(self) -> None:
        self.reading = self.pattern.new_zeros(2)


def _pattern(size: int, shift: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """What the probed elements of tensor number ``shift`` are multiplied by: cosines, from 1 on."""
    probed = len(range(0, size, _stride(size)))
    return (torch.arange(probed, dtype=torch.float64, device="cpu") + shift).cos().to(device, dtype)


def _measure(flat: Tensor, pattern: Tensor) -> Tensor:
    """Norm and fingerprint of the last dimension of ``flat``, shape (..., 2)."""
    norm = torch.linalg.vector_norm(flat, dim=-1, dtype=pattern.dtype)
    probed = flat[..., :: _stride(flat.shape[-1])].to(pattern.dtype)
    return torch.stack((norm, (probed * pattern).sum(-1)), dim=-1)


def _stride(size: int) -> int:
    return max(1, math.ceil(size / PROBED))


def plain(tensor: Tensor) -> Tensor:
    """The tensor without its graph, dense."""
    tensor = tensor.detach() if tensor.requires_grad else tensor
    return tensor if tensor.layout is torch.strided else tensor.to_dense()
