"""The kinds of fields besides numbers: codes that are packed into words, and views of the same bytes.

Codes are unpacked by rows, located by bit, and packed again. Two codes of 4 bits in a byte can be looked up
at once. A view reads a stored tensor as another dtype, or numbers in another shape.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.packing import PackingOrder, dense, high_first, pack, unpack
from quantcore.checkpoints.protocol.fields import Field, Place, Rows, box_of, place_of_bits
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError
from quantcore.expressions import Expression, Let
from quantcore.formats import CodebookFormat, FloatFormat
from quantcore.granularity import Shape
from quantcore.numerics import like
from quantcore.tensors import SAFETENSORS_BITS

LOW_FIRST, HIGH_FIRST = dense(4, 8), high_first(4, 8)


def viewed(piece: StoredTensor, dtype: str, shape: Shape) -> StoredTensor:
    """Return a stored tensor with its bytes read as another dtype and shape.

    Raises:
        QuantError: the new dtype and shape take another number of bytes.
    """
    if math.prod(shape) * SAFETENSORS_BITS[dtype] != 8 * piece.num_bytes:
        raise QuantError(
            f"{named(piece.name)} has {piece.num_bytes:,} bytes, which are not {dtype} of shape {shape}; "
            "the file does not fit its config."
        )
    return replace(piece, dtype=dtype, shape=shape)


@dataclass(frozen=True)
class FieldView(Field):
    """A field through another: its bytes are those of ``field``."""

    field: Field

    @property
    def piece(self) -> StoredTensor:
        """The stored tensor."""
        return self.field.piece

    @property
    def across_rows(self) -> bool:
        """Whether the numbers of a row are not contiguous in the file."""
        return self.field.across_rows

    @property
    def kept_as(self) -> str:
        """The dtype of a stored number."""
        return self.field.kept_as

    def stored(self) -> Tensor:
        """Return the numbers of the stored tensor."""
        return self.field.stored()

    def encode(self, numbers: Tensor) -> bytes:
        """Return the bytes of the stored tensor."""
        return self.field.encode(numbers.reshape(self.field.shape))

    def meaning(self, bits: Expression, width: int, name: str) -> Expression:
        """Return what stored bits stand for."""
        return self.field.meaning(bits, width, name)

    def in_memory(self) -> Self:
        """Return the same view of bytes in memory."""
        return replace(self, field=self.field.in_memory())


@dataclass(frozen=True)
class Reshaped(FieldView):
    """Numbers of a field in another shape, in the same row-major order."""

    shape: Shape

    def __post_init__(self) -> None:
        """Check that both shapes hold as many numbers.

        Raises:
            QuantError: they don't.
        """
        if math.prod(self.shape) != math.prod(self.field.shape):
            raise QuantError(
                f"{named(self.piece.name)} holds {math.prod(self.field.shape):,} numbers, but a weight of "
                f"shape {self.shape} has {math.prod(self.shape):,}; the file is damaged."
            )

    def read(self, rows: Rows = None) -> Tensor:
        """Return the numbers, or those of some rows; only the field's rows that hold them are read."""
        if rows is None or not self.field.shape:
            found = self.field.read().reshape(self.shape)
            return found if rows is None else found[rows]
        inner, width = math.prod(self.shape[1:]), math.prod(self.field.shape[1:])
        start, stop = rows.start * inner, rows.stop * inner
        first = start // max(1, width)
        found = self.field.read(slice(first, max(first, -(-stop // max(1, width))))).reshape(-1)
        return found[start - first * width : stop - first * width].reshape(-1, *self.shape[1:])

    def stored(self) -> Tensor:
        """Return the numbers in the shape of the view."""
        return self.read()

    def place(self, index: Sequence[int]) -> Place:
        """Return where one number lies."""
        flat = int(np.ravel_multi_index(tuple(index), self.shape)) if self.shape else 0
        return self.field.place([int(i) for i in np.unravel_index(flat, self.field.shape)])


@dataclass(frozen=True)
class Cut(FieldView):
    """The first numbers of each row of a field, whose rows are padded."""

    shape: Shape

    def read(self, rows: Rows = None) -> Tensor:
        """Return the numbers, or those of some rows."""
        return self.field.read(rows)[..., : self.shape[-1]].contiguous()

    def encode(self, numbers: Tensor) -> bytes:
        """Return the bytes of the stored tensor; the padding stays as it is."""
        if numbers.numel() == math.prod(self.field.shape):
            return super().encode(numbers)
        padded = self.field.read().clone()
        padded[..., : self.shape[-1]] = numbers.reshape(self.shape)
        return super().encode(padded)

    def place(self, index: Sequence[int]) -> Place:
        """Return where one number lies."""
        return self.field.place(index)


@dataclass(frozen=True)
class Selected(FieldView):
    """Entries of a stored table, selected by the codes of another field, in their shape."""

    codes: Field

    @property
    def shape(self) -> Shape:
        """That of the codes."""
        return self.codes.shape

    def read(self, rows: Rows = None) -> Tensor:
        """Return the entries, or those of some rows."""
        codes = self.codes.read(rows)
        return self.field.read().index_select(0, codes.reshape(-1).to(torch.int32)).view(codes.shape)

    def in_memory(self) -> Self:
        """Return the same entries in memory, and the codes."""
        return replace(super().in_memory(), codes=self.codes.in_memory())

    def place(self, index: Sequence[int]) -> Place:
        """Return where the entry lies that a code selects."""
        row = index[0]
        code = self.codes.read(slice(row, row + 1))[(0, *index[1:])]
        return self.field.place((int(code),))


@dataclass(frozen=True)
class Repeated(FieldView):
    """Numbers that ``size`` blocks share each; the last may be shared by fewer of all ``count``."""

    size: int
    count: int

    @property
    def shape(self) -> Shape:
        """One for each block."""
        return (self.count,)

    def read(self, rows: Rows = None) -> Tensor:
        """Return one number for each block, or for some of them."""
        first, last = (0, self.count) if rows is None else (rows.start, rows.stop)
        group, skip = divmod(first, self.size)
        found = self.field.read(slice(group, max(group, -(-last // self.size))))
        return found.repeat_interleave(self.size)[skip : skip + last - first]

    def place(self, index: Sequence[int]) -> Place:
        """Return where the number of a block lies."""
        return self.field.place((index[0] // self.size,))


def at_least_1d(piece: StoredTensor) -> StoredTensor:
    """Return a stored number as a tensor of one element, as libraries broadcast it; others as they are."""
    return piece if piece.shape else replace(piece, shape=(1,))


@dataclass(frozen=True)
class Packed(Field):
    """Codes in words along one axis.

    ``shape``: of the codes, in logical axes;
    ``axis``: the logical axis along which words run.
    ``offset``: stored bits = (code + offset) modulo 2^bits; a function, if it must be read.
    ``signed``: whether codes are -2^(bits-1) .. 2^(bits-1)-1, else they are 0 .. 2^bits-1.
    ``fill``: the stored bits that pad the last word, if the library does not pad with 0.
    """

    piece: StoredTensor
    order: PackingOrder
    shape: tuple[int, ...]
    axis: int = -1
    transposed: bool = False
    offset: int | Callable[[], int] = 0
    signed: bool = False
    fill: int = 0

    def __post_init__(self) -> None:
        """Check that the stored tensor has the shape that the codes need.

        Raises:
            QuantError: its dtype or shape does not fit the order and the codes.
        """
        if 8 * self.piece.itemsize != self.order.word_bits:
            raise QuantError(
                f"{named(self.piece.name)} is {self.piece.dtype}, but its codes are packed into words of "
                f"{self.order.word_bits} bits; the file does not fit its config."
            )
        words = list(self.shape)
        words[self._axis] = self.order.words_of(self.shape[self._axis])
        expected = tuple(words[::-1] if self.transposed else words)
        if self.piece.shape != expected:
            raise QuantError(
                f"{named(self.piece.name)} has shape {self.piece.shape}, but {self.order.bits}-bit codes of "
                f"shape {self.shape} take {expected}; the file does not fit its config."
            )

    @property
    def across_rows(self) -> bool:
        """Whether the words of a row are not contiguous in the file."""
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
        shape = self.piece.shape[::-1] if self.transposed else self.piece.shape
        bits = self._words(box_of(shape, words, self.transposed))
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
        """Return the words that hold some rows, the number of codes before these, and that of all needed."""
        n = self.shape[0]
        if self.order.in_parts:
            return slice(0, self.order.words_of(n)), first, n
        start = first // self.order.count
        words = slice(start * self.order.words, self.order.words_of(last))
        return words, first - start * self.order.count, last - start * self.order.count

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
        return place_of_bits(self.piece, 0, found)

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

    def meaning(self, bits: Expression, width: int, name: str) -> Expression:
        """Return a stored code minus its offset, modulo 2^bits; signed codes in two's complement."""
        offset = self._offset
        half, count = (1 << width - 1) if self.signed else 0, 1 << width
        if half == offset:
            return Let(name, bits - half, "stored with the middle of the codes added") if half else bits
        note = ""
        if half and not offset:
            note = "two's complement"
        elif offset == -1:
            note = "stored with 1 subtracted"
        wrapped = (bits + (half - offset)) % count
        return Let(name, wrapped - half if half else wrapped, note)


def look_up_pairs(codes: Field, element: FloatFormat | CodebookFormat, start: int, out: Tensor) -> bool:
    """Write what codes of 4 bits stand for, two of a byte at once; False where there are no such pairs.

    Args:
        start: the first code, in the order of the flat weight.
        out: float32, one number for each of the codes from there.
    """
    base = codes.field if isinstance(codes, Reshaped) else codes
    if not isinstance(base, Packed) or base.transposed or base.axis % len(base.shape) != len(base.shape) - 1:
        return False
    if base.order not in (LOW_FIRST, HIGH_FIRST) or (len(base.shape) > 1 and base.shape[-1] % 2):
        return False
    if start % 2 or out.numel() % 2 or out.storage_offset() % 2 or not out.is_contiguous():
        return False
    span = slice(start // 2, (start + out.numel()) // 2)
    packed = viewed(base.piece, "U8", (base.piece.num_bytes,)).bits((span,))
    index = like(torch.from_numpy(packed), "pairs", torch.int32).copy_(torch.from_numpy(packed))
    pairs = _pairs(element, base.order == LOW_FIRST)
    torch.index_select(pairs, 0, index, out=out.view(-1).view(torch.float64))
    return True


@lru_cache(maxsize=64)
def _pairs(element: FloatFormat | CodebookFormat, low_first: bool) -> Tensor:
    """Return the two numbers of each byte as one of 8 bytes, (256,)."""
    first, second = element.table.repeat(16), element.table.repeat_interleave(16)
    return torch.stack([first, second] if low_first else [second, first], 1).view(torch.float64).view(-1)
