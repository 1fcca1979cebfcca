"""Views of the same bytes: a stored tensor with another dtype, numbers in another shape."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.fields import Bits, Field, Place, Rows
from quantcore.errors import QuantError
from quantcore.expressions import Expression
from quantcore.granularity import Shape
from quantcore.tensors import SAFETENSORS_BITS


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
class View(Bits):
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
class Reshaped(View):
    """Numbers of a field in another shape, in the same row-major order."""

    shape: Shape

    def __post_init__(self) -> None:
        """Check that both shapes hold as many numbers.

        Raises:
            QuantError: they don't.
        """
        if math.prod(self.shape) != math.prod(self.field.shape):
            raise QuantError(
                f"{named(self.piece.name)} holds {math.prod(self.field.shape):,} numbers, but a weight of shape "
                f"{self.shape} has {math.prod(self.shape):,}; the file is damaged."
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
class Cut(View):
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
class Selected(View):
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
class Repeated(View):
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
