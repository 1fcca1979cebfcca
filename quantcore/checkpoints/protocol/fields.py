"""One stored tensor of a weight as numbers in the weight's own axes: read by rows, found bit by bit, written back.

A weight has logical axes [out, in]. Its stored tensors may have them the other way round (``transposed``), and codes
may be packed into words along either. A field hides both; its numbers have the logical axes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import TORCH_DTYPES, StoredTensor
from quantcore.checkpoints.packing import Order, pack, unpack
from quantcore.errors import QuantError
from quantcore.granularity import Shape
from quantcore.tensors import short

Rows = slice | None  # start and stop along axis 0, no step; None for all


@dataclass(frozen=True)
class Place:
    """Where a number lies: the file, the stored tensor, and (byte of the file, bit of the byte) of each of its bits.

    The lowest bit of the number comes first; bit 0 of a byte is its lowest.
    """

    file: str
    tensor: str
    bits: tuple[tuple[int, int], ...]

    @property
    def offset(self) -> int:
        """The first byte of the file that holds some of it."""
        return min(byte for byte, _ in self.bits)

    def __str__(self) -> str:
        ranges = ", ".join(
            f"byte {byte:,} bit {low}" if low == high else f"byte {byte:,} bits {low}–{high}"
            for byte, low, high in _ranges(self.bits)
        )
        return f"{self.file}, {self.tensor}: {ranges}"


def _ranges(bits: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Join bits of a byte that follow one another into (byte, lowest, highest)."""
    found: list[tuple[int, int, int]] = []
    for byte, bit in bits:
        if found and found[-1][0] == byte and found[-1][2] == bit - 1:
            found[-1] = (byte, found[-1][1], bit)
        else:
            found.append((byte, bit, bit))
    return found


class Field(Protocol):
    """Numbers of a weight that lie in one stored tensor.

    ``shape``: of the numbers, in logical axes.
    """

    @property
    def piece(self) -> StoredTensor:
        """The stored tensor."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape of the numbers."""

    @property
    def across_rows(self) -> bool:
        """Whether the bytes of a row do not lie together in the file, so that it is read whole."""

    def read(self, rows: Rows = None) -> Tensor:
        """Return the numbers, or those of some rows: float32, or integers as they are."""

    def place(self, index: Sequence[int]) -> Place:
        """Return where one number lies."""

    def encode(self, numbers: Tensor) -> bytes:
        """Return the bytes of the stored tensor that hold these numbers, all rows."""


@dataclass(frozen=True)
class Numbers:
    """One element of the stored tensor a number; ``raw``: its bits as an integer, for codes of scales and floats."""

    piece: StoredTensor
    transposed: bool = False
    raw: bool = False

    @cached_property
    def shape(self) -> Shape:
        """The logical shape."""
        return self.piece.shape[::-1] if self.transposed else self.piece.shape

    @property
    def across_rows(self) -> bool:
        """Whether the numbers of a row do not lie together in the file."""
        return self.transposed

    def read(self, rows: Rows = None) -> Tensor:
        """Return the numbers, or those of some rows."""
        box = _box(self.shape, rows, self.transposed)
        if self.raw:
            bits = self.piece.bits(box)
            found = torch.from_numpy(bits if bits.itemsize == 1 else bits.view(f"<i{bits.itemsize}"))
        else:
            found = self.piece.numbers(box)
        return found.mT.contiguous() if self.transposed else found

    def place(self, index: Sequence[int]) -> Place:
        """Return where one number lies."""
        stored = tuple(index)[::-1] if self.transposed else tuple(index)
        flat = int(np.ravel_multi_index(stored, self.piece.shape)) if stored else 0
        return _place(self.piece, flat, [(0, bit) for bit in range(8 * self.piece.itemsize)])

    def encode(self, numbers: Tensor) -> bytes:
        """Return the bytes of the stored tensor."""
        if not numbers.numel():
            return b""
        numbers = numbers.reshape(self.shape)
        stored = (numbers.mT if self.transposed else numbers).contiguous()
        if self.raw:
            return np.ascontiguousarray(stored.numpy().astype(f"<u{self.piece.itemsize}")).tobytes()
        return stored.to(TORCH_DTYPES[self.piece.dtype]).reshape(-1).view(torch.uint8).numpy().tobytes()


@dataclass(frozen=True)
class Packed:
    """Codes in words along one axis.

    ``shape``: of the codes, in logical axes; ``axis``: the logical axis along which words run. ``offset``: stored bits
    = (code + offset) modulo 2^bits; a function, if it must be read. ``signed``: whether codes are -2^(bits-1) ..
    2^(bits-1)-1, else they are 0 .. 2^bits-1. ``fill``: the bits that fill the last word up, where the library writes
    others than 0.
    """

    piece: StoredTensor
    order: Order
    shape: tuple[int, ...]
    axis: int = -1
    transposed: bool = False
    offset: int | Callable[[], int] = 0
    signed: bool = False
    fill: int = 0

    def __post_init__(self) -> None:
        """Check that the stored tensor has room for the codes.

        Raises:
            QuantError: its dtype or shape does not fit the order and the codes.
        """
        if 8 * self.piece.itemsize != self.order.word_bits:
            raise QuantError(
                f"{short(self.piece.name, 120)} is {self.piece.dtype}, but its codes are packed into words of "
                f"{self.order.word_bits} bits; the file does not fit its config."
            )
        words = list(self.shape)
        words[self._axis] = self.order.words_of(self.shape[self._axis])
        expected = tuple(words[::-1] if self.transposed else words)
        if self.piece.shape != expected:
            raise QuantError(
                f"{short(self.piece.name, 120)} has shape {self.piece.shape}, but {self.order.bits}-bit codes of shape "
                f"{self.shape} take {expected}; the file does not fit its config."
            )

    @property
    def across_rows(self) -> bool:
        """Whether the words of a row do not lie together in the file."""
        return self.transposed or (self.axis % len(self.shape) == 0 and self.order.in_parts)

    @property
    def _axis(self) -> int:
        return self.axis % len(self.shape)

    def read(self, rows: Rows = None) -> Tensor:
        """Return the codes, or those of some rows: uint8 or int8."""
        first, last = (0, self.shape[0]) if rows is None else (rows.start, rows.stop)
        if rows is not None and self._axis == 0 and self.order.in_parts and not self.transposed:
            return self._read_parts(first, last)
        n, skip, words = self.shape[self._axis], 0, slice(first, last)
        if self._axis == 0:
            words, skip, n = self._words_of_rows(first, last)
        bits = self._words(_box(self._words_shape, words, self.transposed))
        if self.transposed:
            bits = np.ascontiguousarray(bits.T)
        codes = unpack(bits, self.order, n, self._axis)
        return self._decode(codes[skip : skip + last - first] if self._axis == 0 else codes)

    def _words(self, box: tuple[slice, ...]) -> npt.NDArray[Any]:
        """Return the words of a box of the stored tensor."""
        return self.piece.bits(box)

    def _read_parts(self, first: int, last: int) -> Tensor:
        """Read some rows from the words that hold them; each part is a run of rows."""
        periods, found = max(1, self.order.periods(self.shape[0])), []
        for j in range(first // periods, -(-last // periods)):
            start, stop = (min(max(row - j * periods, 0), periods) for row in (first, last))
            words = self.piece.bits((slice(start * self.order.words, stop * self.order.words),))
            only = replace(self.order, codes=(self.order.codes[j],), in_parts=False)
            found.append(self._decode(unpack(words, only, stop - start, 0)))
        return found[0] if len(found) == 1 else torch.cat(found) if found else self.read()[:0]

    def _words_of_rows(self, first: int, last: int) -> tuple[slice, int, int]:
        """Return the words that hold some rows, how many of their codes come before, and how many are needed."""
        n = self.shape[0]
        if self.order.in_parts:
            return slice(0, self.order.words_of(n)), first, n
        start = first // self.order.count
        words = slice(start * self.order.words, self.order.words_of(last))
        return words, first - start * self.order.count, last - start * self.order.count

    @cached_property
    def _words_shape(self) -> tuple[int, ...]:
        return self.piece.shape[::-1] if self.transposed else self.piece.shape

    @cached_property
    def _offset(self) -> int:
        return self.offset() if callable(self.offset) else self.offset

    def _decode(self, codes: npt.NDArray[Any]) -> Tensor:
        mask, half = (1 << self.order.bits) - 1, (1 << (self.order.bits - 1)) if self.signed else 0
        if (half - self._offset) & mask:
            codes = (codes + codes.dtype.type((half - self._offset) & mask)) & codes.dtype.type(mask)
        if self.signed:
            codes = codes.view(f"i{codes.itemsize}") - codes.dtype.type(half).view(f"i{codes.itemsize}")
        return torch.from_numpy(codes)

    def place(self, index: Sequence[int]) -> Place:
        """Return where one code lies."""
        at = list(index)
        n = self.shape[self._axis]
        found: list[tuple[int, int]] = []
        for word, bit in self.order.place(at[self._axis], n):
            stored = [word if i == self._axis else k for i, k in enumerate(at)]
            flat = int(np.ravel_multi_index(stored[::-1] if self.transposed else stored, self.piece.shape))
            found.append((flat, bit))
        return _place(self.piece, 0, found)

    def encode(self, numbers: Tensor) -> bytes:
        """Return the bytes of the stored tensor; bits that belong to no code are 0, or ``fill``."""
        mask = (1 << self.order.bits) - 1
        codes = (numbers.reshape(self.shape).to(torch.int32).numpy() + self._offset) & mask
        missing = -codes.shape[self._axis] % self.order.count
        if self.fill and missing:
            widths = [(0, missing if i == self._axis else 0) for i in range(codes.ndim)]
            codes = np.pad(codes, widths, constant_values=self.fill)
        words = pack(codes.astype(np.uint8 if self.order.bits <= 8 else np.uint16), self.order, self._axis)
        return np.ascontiguousarray(words.T if self.transposed else words).tobytes()


def _box(shape: tuple[int, ...], rows: Rows, transposed: bool) -> tuple[slice, ...]:
    """Return the box of a stored tensor that holds some rows of the logical ``shape``."""
    if rows is None:
        return ()
    return (*(slice(0, n) for n in shape[:0:-1]), rows) if transposed else (rows,)


def _place(piece: StoredTensor, first: int, bits: Sequence[tuple[int, int]]) -> Place:
    """Return the place of bits given as (element of the stored tensor after ``first``, bit of the element)."""
    size = piece.itemsize
    return Place(
        piece.source.name,
        piece.name,
        tuple((piece.offset + (first + e) * size + bit // 8, bit % 8) for e, bit in bits),
    )


def e8m0(bits: Tensor, nan: bool) -> Tensor:
    """Return 2^(bits - 127) of uint8, float32.

    Args:
        nan: whether 255 is NaN, as OCP Microscaling Formats 1.0 has it; some libraries compute 2^128 there, infinity.
    """
    exponents = bits.to(torch.int32)
    # 2^-127 is a subnormal of float32
    values = torch.where(exponents == 0, 1 << 22, exponents << 23).view(torch.float32)
    return values.masked_fill(exponents == 255, torch.nan) if nan else values
