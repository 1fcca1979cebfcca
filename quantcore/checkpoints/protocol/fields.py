"""One stored tensor as numbers in the weight's own axes: read by rows, located by bit, written back.

A weight has logical axes [out, in]. Its stored tensors may have them swapped (``transposed``), and codes may
be packed into words along either axis. A field hides both; its numbers have the logical axes. Where an
element lies is a `Location`: the places of its code and of its parameters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import TORCH_DTYPES, StoredTensor
from quantcore.expressions import Expression, Let
from quantcore.formats import FLOATS, e8m0, small_float
from quantcore.granularity import Shape

# 8-bit dtypes whose formula is worth a line
SMALL_FLOATS = {
    "F8_E4M3": "e4m3fn", "F8_E5M2": "e5m2", "F8_E4M3FNUZ": "e4m3fnuz", "F8_E5M2FNUZ": "e5m2fnuz",
}  # fmt: skip
Rows = slice | None  # start and stop along axis 0, no step; None for all


@dataclass(frozen=True)
class Place:
    """Where a number lies: file, stored tensor, and (byte of the file, bit of the byte) of each bit.

    The lowest bit of the number comes first; bit 0 of a byte is its lowest.
    """

    file: str
    tensor: str
    bits: tuple[tuple[int, int], ...]

    @property
    def offset(self) -> int:
        """The first byte of the file that holds some of it."""
        return min(byte for byte, _ in self.bits)

    @property
    def runs(self) -> list[tuple[int, int, int]]:
        """(byte, lowest, highest) of bits of a byte that follow one another."""
        found: list[tuple[int, int, int]] = []
        for byte, bit in self.bits:
            if found and found[-1][0] == byte and found[-1][2] == bit - 1:
                found[-1] = (byte, found[-1][1], bit)
            else:
                found.append((byte, bit, bit))
        return found

    def __str__(self) -> str:
        ranges = ", ".join(
            f"byte {byte:,} bit {low}" if low == high else f"byte {byte:,} bits {low}–{high}"
            for byte, low, high in self.runs
        )
        return f"{self.file}, {self.tensor}: {ranges}"


class Field:
    """Numbers of a weight that lie in one stored tensor.

    Unless a field says otherwise, its bits are an unsigned number, and stored are the numbers that are read.
    """

    if TYPE_CHECKING:  # some fields hold these, others compute them

        @property
        def piece(self) -> StoredTensor:
            """The stored tensor."""

        @property
        def shape(self) -> Shape:
            """The logical shape of the numbers."""

    @property
    def across_rows(self) -> bool:
        """Whether the bytes of a row are not contiguous in the file, so that all rows are read at once."""
        return False

    @property
    def kept_as(self) -> str:
        """The dtype of a number as it is stored; "bits" for codes that have no dtype of their own."""
        return "bits"

    def read(self, rows: Rows = None) -> Tensor:
        """Return the numbers, or those of some rows: float32, or integers as they are."""
        raise NotImplementedError

    def stored(self) -> Tensor:
        """Return the numbers of the stored tensor: those of a view may be others than `read` returns."""
        return self.read()

    def place(self, index: Sequence[int]) -> Place:
        """Return where one number lies."""
        raise NotImplementedError

    def meaning(self, bits: Expression, width: int, name: str) -> Expression:
        """Return what stored bits stand for, under a name.

        Args:
            bits: the number of ``width`` bits.
        """
        return bits

    def encode(self, numbers: Tensor) -> bytes:
        """Return the bytes of the stored tensor that hold these numbers, all rows."""
        raise NotImplementedError

    def in_memory(self) -> Self:
        """Return the same field with the bytes of its stored tensor in memory."""
        return replace(self, piece=self.piece.in_memory())  # type: ignore[type-var]


@dataclass(frozen=True)
class Numbers(Field):
    """One number per element of the stored tensor.

    ``raw``: read as the integer of its bits, for scale codes and floats.
    """

    piece: StoredTensor
    transposed: bool = False
    raw: bool = False

    @cached_property
    def shape(self) -> Shape:
        """The logical shape."""
        return self.piece.shape[::-1] if self.transposed else self.piece.shape

    @property
    def across_rows(self) -> bool:
        """Whether the numbers of a row are not contiguous in the file."""
        return self.transposed

    def read(self, rows: Rows = None) -> Tensor:
        """Return the numbers, or those of some rows."""
        box = box_of(self.shape, rows, self.transposed)
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
        return place_of_bits(self.piece, flat, [(0, bit) for bit in range(8 * self.piece.itemsize)])

    def encode(self, numbers: Tensor) -> bytes:
        """Return the bytes of the stored tensor."""
        if not numbers.numel():
            return b""
        numbers = numbers.reshape(self.shape)
        stored = (numbers.mT if self.transposed else numbers).contiguous()
        if self.raw:
            return np.ascontiguousarray(stored.numpy().astype(f"<u{self.piece.itemsize}")).tobytes()
        return stored.to(TORCH_DTYPES[self.piece.dtype]).reshape(-1).view(torch.uint8).numpy().tobytes()

    @property
    def kept_as(self) -> str:
        """The dtype of the stored tensor, unless it is read as bits."""
        return "bits" if self.raw else self.piece.dtype

    def meaning(self, bits: Expression, width: int, name: str) -> Expression:
        """Return small floats and E8M0 from their bits; other numbers are what their dtype says."""
        if self.kept_as in SMALL_FLOATS:
            return Let(name, small_float(FLOATS[SMALL_FLOATS[self.kept_as]])(bits))
        return Let(name, e8m0(nan=True)(bits)) if self.kept_as == "F8_E8M0" else bits


DOUBLE = "double"


@dataclass(frozen=True)
class Doubles(Numbers):
    """Numbers of float64 that are not narrowed to float32."""

    def read(self, rows: Rows = None) -> Tensor:
        """Return the numbers, or those of some rows."""
        return self.piece.numbers(box_of(self.shape, rows, False), widened=False)

    @property
    def kept_as(self) -> str:
        """A dtype of its own, as F64 stands for numbers that are narrowed."""
        return DOUBLE


def box_of(shape: tuple[int, ...], rows: Rows, transposed: bool) -> tuple[slice, ...]:
    """Return the box of a stored tensor that holds some rows of the logical ``shape``."""
    if rows is None:
        return ()
    return (*(slice(0, n) for n in shape[:0:-1]), rows) if transposed else (rows,)


def place_of_bits(piece: StoredTensor, first: int, bits: Sequence[tuple[int, int]]) -> Place:
    """Return the place of bits given as (element of the tensor after ``first``, bit of the element)."""
    size = piece.itemsize
    return Place(
        piece.source.name,
        piece.name,
        tuple((piece.offset + (first + e) * size + bit // 8, bit % 8) for e, bit in bits),
    )


@dataclass(frozen=True)
class Location:
    """Where an element lies: its code, and each parameter that its value is computed from.

    ``parameters``: by the role of the field: "scale", "zero_point", "global_scale", ...
    """

    code: Place
    parameters: Mapping[str, Place]
