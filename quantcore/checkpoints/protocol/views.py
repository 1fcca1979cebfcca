"""Views of the same bytes: a stored tensor with another dtype, numbers in another shape."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.fields import Field, Place, Rows
from quantcore.errors import QuantError
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
class Reshaped:
    """Numbers of a field in another shape, in the same row-major order."""

    field: Field
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

    @property
    def piece(self) -> StoredTensor:
        """The stored tensor."""
        return self.field.piece

    @property
    def across_rows(self) -> bool:
        """Whether the numbers of a row are not contiguous in the file."""
        return self.field.across_rows

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

    def place(self, index: Sequence[int]) -> Place:
        """Return where one number lies."""
        flat = int(np.ravel_multi_index(tuple(index), self.shape)) if self.shape else 0
        return self.field.place([int(i) for i in np.unravel_index(flat, self.field.shape)])

    def encode(self, numbers: Tensor) -> bytes:
        """Return the bytes of the stored tensor."""
        return self.field.encode(numbers.reshape(self.field.shape))


def at_least_1d(piece: StoredTensor) -> StoredTensor:
    """Return a stored number as a tensor of one element, as libraries broadcast it; others as they are."""
    return piece if piece.shape else replace(piece, shape=(1,))
