"""Weights of GGUF files that are stored in ggml's blocks; types that store plain values have other layouts.

The types, their bytes and ggml's arithmetic are in `quantcore.checkpoints.ggml`.

====================  ==============================================================  =============================
types                 code                                                            value
====================  ==============================================================  =============================
Q4_0 Q5_0 TQ Q2_0     stored number                                                   scale * (code - zero_point)
Q8_0 Q3_K Q6_K        stored number, signed                                           scale * code
Q4_1 Q5_1             stored number                                                   scale * code + min
Q2_K Q4_K Q5_K        stored number                                                   scale * code - min
IQ4 Q1_0 MXFP4 NVFP4  index into a table, or the bits of an FP4 E2M1                  scale * table[code]
IQ2 IQ3               signed element of a row of a grid; one row for 8 or 4 elements  scale * code
IQ1                   element of a row of a grid: -1, 0, 1                            scale * (code - zero_point)
====================  ==============================================================  =============================
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.ggml import BLOCK_TYPES, BlockType, Fields
from quantcore.checkpoints.layouts.gguf.block_field import BlockField
from quantcore.checkpoints.layouts.gguf.block_tensor import BlockTensor
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.fields import Field, Place, Rows
from quantcore.checkpoints.protocol.layout import CODES, Layout
from quantcore.checkpoints.protocol.location import Location
from quantcore.checkpoints.statement import Statement
from quantcore.formats import CODEBOOKS, FLOATS, Format, IntFormat
from quantcore.granularity import Granularity, PerGroup

# what a code is, if it is not an unsigned integer with the bits of the field
_ELEMENTS: dict[str, Format] = {
    "Q8_0": IntFormat(8), "Q3_K": IntFormat(3), "Q6_K": IntFormat(6), "Q1_0": CODEBOOKS["binary"],
    "IQ4_NL": CODEBOOKS["iq4_nl"], "IQ4_XS": CODEBOOKS["iq4_nl"],
    "MXFP4": FLOATS["e2m1"], "NVFP4": FLOATS["e2m1"], "TQ1_0": IntFormat(2, signed=False),
    "IQ2_XXS": IntFormat(7), "IQ2_XS": IntFormat(7), "IQ2_S": IntFormat(7), "IQ3_XXS": IntFormat(7),
    "IQ3_S": IntFormat(5), "IQ1_S": IntFormat(2), "IQ1_M": IntFormat(2),
}  # fmt: skip


@dataclass(frozen=True)
class BlockLocation(Location):
    """Where an element of a block is; ``shared``: how many elements, including itself, depend on bits of its code."""

    shared: int = 1

    @property
    def scale(self) -> tuple[Place, ...]:
        """The code of the sub-block's scale, and d; or only one of the two."""
        return tuple(self.parameters[role] for role in ("scale_code", "d") if role in self.parameters)

    @property
    def min(self) -> Place | None:
        """The code of the sub-block's min, which dmin multiplies; or the min itself."""
        return self.parameters.get("min_code", self.parameters.get("m"))


@dataclass(frozen=True, eq=False)
class Gguf(Layout):
    """A tensor in blocks. ``output_scale``: a tensor by which llama.cpp multiplies products with this weight."""

    output_scale: StoredTensor | None = None

    @property
    def piece(self) -> StoredTensor:
        """Its only stored tensor."""
        return self.pieces[""]

    @property
    def kind(self) -> BlockType:
        """Its block type."""
        return BLOCK_TYPES[self.piece.dtype]

    @property
    def tensor(self) -> BlockTensor:
        """The stored tensor by blocks."""
        return BlockTensor(self.piece, self.kind)

    @property
    def storage(self) -> str:
        """``gguf Q4_K super-blocks of 256``."""
        blocks = "super-blocks" if self.kind.sub_block < self.kind.elements else "blocks"
        return f"gguf {self.kind.name} {blocks} of {self.kind.elements}"

    @property
    def element(self) -> Format:
        """Integers, FP4, or indices into a table."""
        return _ELEMENTS.get(self.kind.name) or IntFormat(self.kind.field(CODES).bits, signed=False)

    @property
    def symmetric(self) -> bool:
        """Whether there is neither a min nor a shift."""
        return self.kind.min_of is None and not self.kind.name.startswith("IQ1")

    @property
    def granularity(self) -> Granularity:
        """Sub-blocks along the row."""
        return PerGroup(self.kind.elements // self._runs)

    @cached_property
    def _zeros(self) -> dict[str, npt.NDArray[Any]]:
        return self.kind.unpack(np.zeros(self.kind.num_bytes, np.uint8))

    @cached_property
    def _runs(self) -> int:
        """Runs per block that share scale and zero point: the shifts of IQ1_M are finer than its scales."""
        zero_point = self.kind.zero_point(self._zeros)
        return max(
            self.kind.elements // self.kind.sub_block, 1 if zero_point is None else zero_point.shape[1]
        )

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """The fields of the blocks, by name, and the codes, which some types compute from several fields."""
        names = dict.fromkeys((CODES, *(field.name for field in self.kind.fields)))
        return {name: BlockField(self.tensor, name) for name in names}

    def codes(self, rows: Rows = None) -> Tensor:
        """Return the codes of some rows, uint8 or int8."""
        return self.tensor.numbers(rows, self.kind.elements, self.kind.codes)

    def scale(self, rows: Rows = None) -> Tensor:
        """Return the effective scales: d, times the code of the sub-block's scale if the type has one."""
        return self._parameter(rows, self.kind.scale)

    def zero_point(self, rows: Rows = None) -> Tensor | None:
        """Return what is subtracted from codes: the constant of Q4_0, Q5_0, Q2_0 and TQ, or the shift of IQ1."""
        absent = self.kind.zero_point(self._zeros) is None
        return None if absent else self._parameter(rows, self.kind.zero_point)

    def min(self, rows: Rows = None) -> Tensor | None:
        """Return the effective mins: subtracted for K types, added for Q4_1 and Q5_1 (`min_sign`)."""
        return None if self.kind.min_of is None else self._parameter(rows, self.kind.min)

    @property
    def min_sign(self) -> int:
        """-1 if the min is subtracted, else 1."""
        return self.kind.min_sign

    def _parameter(self, rows: Rows, make: Callable[[Fields], npt.NDArray[Any] | None]) -> Tensor:
        def spread(fields: Fields) -> npt.NDArray[Any]:
            found = make(fields)
            assert found is not None
            return np.repeat(found, self._runs // found.shape[1], axis=1)

        return self.tensor.numbers(rows, self._runs, spread)

    def values(self, rows: Rows = None, out: Tensor | None = None, rounded: bool = True) -> Tensor:
        """Return the values of some rows, float32, as ggml's `dequantize_row_*` compute them."""
        found = self.tensor.values(rows, out)
        return found.copy_(found.to(self.dtype)) if rounded and self.dtype != torch.float32 else found

    def statements(self) -> tuple[Statement, ...]:
        """Return a statement on the scale that the values leave out, if there is one."""
        if self.output_scale is None:
            return ()
        words = (
            "{has} products that llama.cpp multiplies by {scale}; the values here do not include this scale, as in "
            "ggml's dequantization."
        )
        facts = {"scale": named(self.output_scale.name)}
        return (Statement("stored_apart", "note", words, facts),)

    def locate(self, index: Sequence[int]) -> BlockLocation:
        """Return where an element's code is, and the parameters of its sub-block and block."""
        element = index[-1] % self.kind.elements
        mine = self._code_bits(element)
        shared = sum(not mine.isdisjoint(self._code_bits(e)) for e in range(self.kind.elements))
        decides = {field for field, _, _ in mine}
        places = {}
        for field in self.kind.fields:
            if field.name not in decides:
                run = self.kind.elements // field.count
                places[field.name] = self.fields[field.name].place((*index[:-1], index[-1] // run))
        return BlockLocation(self.fields[CODES].place(index), places, shared)

    def _code_bits(self, element: int) -> set[tuple[str, int, int]]:
        """The bits that determine an element's code: field, entry, bit of the number."""
        parts = self.kind.code_parts(element)
        return {
            (part.field, part.entry, bit)
            for part in parts
            for bit in part.bits or range(self.kind.field(part.field).bits)
        }

    def encode(self, numbers: Mapping[str, Tensor] | None = None) -> dict[str, bytes]:
        """Return the bytes of the blocks.

        Args:
            numbers: by field or "codes"; other fields are read from the file.

        Raises:
            QuantError: the blocks can't hold a number.
        """
        return {self.piece.name: self.tensor.encode(numbers or {})}

    def loaded(self) -> Self:
        """Return itself: rows can be read on their own."""
        return self
