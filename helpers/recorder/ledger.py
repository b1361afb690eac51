"""Where gradients and buffers are written down, and measured many at a time."""

import math
from collections.abc import Callable, Sequence
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
        with torch.no_grad():
            self.shapes = [plain(t).shape for t in tensors]
        self.sizes = [shape.numel() for shape in self.shapes]
        double = any(t.dtype in (torch.float64, torch.complex128) for t in tensors)
        self.dtype = torch.float64 if double else torch.float32
        self.keep = sum(self.sizes) <= keep_up_to
        # Whole vectors have to be written down, so they wait, however many they are.
        fitting = min(BLOCK_ROWS, BLOCK_ELEMENTS // max(1, sum(self.sizes)))
        self.waits = self.keep or fitting >= 4
        self.fitting = max(4, fitting) if self.waits else BLOCK_ROWS
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

    def places(self, row: int) -> list[Any]:
        """The places in a row, one for each tensor."""
        return self.rows[row - self.first]

    def write(self, tensors: Sequence[Tensor | None]) -> int:
        """Fill a new row, None as zeros; returns its number."""
        (row,) = self.take(1)
        places = self.places(row)
        there = [i for i, tensor in enumerate(tensors) if tensor is not None]
        if len(there) < len(tensors):
            for place in places:
                place.zero_()
        copy_into([places[i] for i in there], [tensors[i] for i in there])
        return row

    def _lay_out(self) -> None:
        # Late, so that the rows lie where the model lies once the loop has moved it.
        device = self.tensors[0].device
        self.patterns = [_pattern(size, i, self.dtype, device) for i, size in enumerate(self.sizes)]
        with torch.inference_mode(False):
            if self.waits:
                shape = self.fitting + 1, sum(self.sizes)
                self.block = torch.zeros(shape, dtype=self.dtype, device=device)
                for row in self.block:
                    parts = zip(row.split(self.sizes), self.shapes, strict=True)
                    self.rows.append([part.view(shape) for part, shape in parts])
                self.spare = self.rows.pop()  # never measured: for what to subtract from a row
            else:
                strides = map(_stride, self.sizes)
                probes = list(zip(self.patterns, strides, self.shapes, strict=True))
                self.rows = [[_Probe(*probe) for probe in probes] for _ in range(self.fitting)]

    @torch.no_grad()
    def _measure_block(self) -> None:
        if not self.waits:
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

    def __init__(self, pattern: Tensor, stride: int, shape: torch.Size):
        self.pattern, self.stride, self.shape = pattern, stride, shape
        self.zero_()

    def copy_(self, source: Tensor) -> None:
        pattern = self.pattern.to(source.device)
        # Few operations know the narrow types; the wide ones are read where they lie.
        wide = source.dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
        numbers = source if wide else source.to(pattern.dtype)
        norm = torch.linalg.vector_norm(numbers, dtype=pattern.dtype)
        # take() reads a transposed gradient in place, where flattening would copy it whole.
        probed = numbers.take(torch.arange(len(pattern), device=source.device) * self.stride)
        fingerprint = (probed.to(pattern.dtype) * pattern).sum()
        self.reading = torch.stack((norm, fingerprint)).to(self.pattern.device)

    def zero_(self) -> None:
        self.fill_(0.0)

    def fill_(self, value: float) -> None:
        self.reading = self.pattern.new_full((2,), value)


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


def copy_into(places: Sequence[Any], tensors: Sequence[Tensor]) -> None:
    """Copy each tensor into its place; one that no longer has its shape reads nan."""
    if not places:
        return
    if isinstance(places[0], Tensor) and not any(map(torch.is_complex, tensors)):
        try:
            with torch.no_grad():
                torch._foreach_copy_(places, tensors)
            return
        except RuntimeError:  # sparse, quantized, or of another shape than the recording began with
            pass
    for place, tensor in zip(places, tensors, strict=True):
        source = plain(tensor)
        if place.shape == source.shape:
            place.copy_(source)
        else:
            place.fill_(torch.nan)


def plain(tensor: Tensor) -> Tensor:
    """The tensor without its graph, dense, as real numbers: of a complex one, two for each."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.dequantize() if tensor.is_quantized else tensor


def same_vector(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether two (norm, fingerprint) are one vector's, but for the order of summation."""
    nearby = 1e-6 * abs(a[0]) if math.isfinite(a[0]) else 0.0
    pairs = zip(a, b, strict=True)
    return all(x == y or abs(x - y) <= nearby or (x != x and y != y) for x, y in pairs)


def roughness(dtype: torch.dtype) -> float:
    """How far, relative to their norms, a sum of gradients may be off by rounding alone."""
    return max(1e-4, 2 * torch.finfo(dtype).eps)
