"""One kind of number in a tensor of blocks, as a field of a layout."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from torch import Tensor

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.ggml import Bits, Fields
from quantcore.checkpoints.ggml import Field as Kept
from quantcore.checkpoints.layouts.block_tensor import BlockTensor
from quantcore.checkpoints.protocol.fields import Bits as Unsigned
from quantcore.checkpoints.protocol.fields import Place, Rows
from quantcore.checkpoints.protocol.value import CODES
from quantcore.expressions import Expression, Let


@dataclass(frozen=True)
class BlockField(Unsigned):
    """The numbers of a field of the block type, or the codes, which some types compute from several fields.

    They have the weight's axes; the length of the last is the number of entries of the field in a row.
    """

    tensor: BlockTensor
    name: str

    @property
    def piece(self) -> StoredTensor:
        """The stored tensor."""
        return self.tensor.piece

    @property
    def _count(self) -> int:
        return self.tensor.kind.elements if self.name == CODES else self.tensor.kind.field(self.name).count

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the numbers."""
        return self.tensor.shape_of(self._count)

    @property
    def across_rows(self) -> bool:
        """False: the blocks of a row are contiguous."""
        return False

    def read(self, rows: Rows = None) -> Tensor:
        """Return the numbers of some rows: float32, or integers as they are stored, minus the type's offset."""
        return self.tensor.numbers(rows, self._count, self._make)

    def _make(self, fields: Fields) -> npt.NDArray[Any]:
        if self.name == CODES:
            return self.tensor.kind.codes(fields)
        found = fields[self.name]
        if found.dtype.kind == "f":
            return found.astype(np.float32)
        return found.astype(np.int32) if found.itemsize > 1 else found

    def place(self, index: Sequence[int]) -> Place:
        """Return where one number is."""
        return self.tensor.place(index, self._count, self._bits)

    def _bits(self, entry: int) -> list[Bits]:
        kind = self.tensor.kind
        if self.name != CODES:
            return list(kind.locate(self.name, entry))
        return [
            bits for part in kind.code_parts(entry) for bits in kind.locate(part.field, part.entry, part.bits)
        ]

    def encode(self, numbers: Tensor) -> bytes:
        """Return the bytes of the stored tensor with these numbers, all rows."""
        return self.tensor.encode({self.name: numbers})

    @property
    def _kept(self) -> Kept | None:
        """How a block stores the field; None for codes that are made from several."""
        return next((kept for kept in self.tensor.kind.fields if kept.name == self.name), None)

    @property
    def kept_as(self) -> str:
        """Float16, a signed byte, or bits."""
        return {"f": "F16", "i": "I8"}.get(self._kept.kind, "bits") if self._kept else "bits"

    def meaning(self, bits: Expression, width: int, name: str) -> Expression:
        """Return the stored number without the constant that the type adds."""
        offset = self._kept.offset if self._kept else 0
        return Let(name, bits - offset, "stored with a constant added") if offset else bits

    def in_memory(self) -> Self:
        """Return itself: rows can be read on their own."""
        return self
