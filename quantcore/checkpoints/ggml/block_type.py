"""A block type of GGUF: its fields, and how ggml computes values from them.

Every type computes value = level * scale, or level * scale - min (K types), or level * scale + min (Q4_1,
Q5_1), in float32 and in this order, as ggml's `dequantize_row_*` do. A level is what a code stands for: the
code itself minus a constant, an entry of a table, or an element of a row of a grid.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.checkpoints.ggml.fields import BitRange, Bytes, StructField
from quantcore.checkpoints.ggml.levels import Fields, Levels
from quantcore.errors import QuantError
from quantcore.expressions import Expression, run

Floats = npt.NDArray[np.float32]
PACKED = 1 << 17  # elements that are packed at a time: what they become on the way stays in the cache

# elements dequantized at once: few enough to stay in a core's cache, but enough that calls cost little
_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class BlockType:
    """How one of ggml's types stores ``elements`` consecutive elements of a row in ``num_bytes`` bytes.

    ``type_id``: the number in a file.
    ``sub_block``: elements that share one scale.
    ``min_sign``: -1 where the min is subtracted.
    ``scale_of``, ``min_of``: from the fields.
    ``unit``: the value of one level; ggml keeps FP4 levels doubled, and the steps of IQ1 in eighths.
    ``source``: where the layout is defined.
    """

    name: str
    type_id: int
    elements: int
    num_bytes: int
    fields: tuple[StructField, ...]
    sub_block: int
    levels: Levels
    scale_of: Expression
    min_of: Expression | None = None
    min_sign: Literal[-1, 1] = -1
    unit: float = 1.0
    source: str = "ggml-org/ggml d99724f2: src/ggml-common.h (block_*), src/ggml-quants.c (dequantize_row_*)"

    def field(self, name: str) -> StructField:
        """Return the field of that name."""
        return next(field for field in self.fields if field.name == name)

    def unpack(self, data: npt.ArrayLike) -> dict[str, npt.NDArray[Any]]:
        """Return what the blocks hold, by field, [blocks, entries] each.

        Args:
            data: whole blocks, uint8, of any shape.

        Raises:
            QuantError: the bytes are not whole blocks.
        """
        blocks = self._blocks(data)
        return {field.name: field.unpack(blocks) for field in self.fields}

    def pack(self, fields: Fields) -> Bytes:
        """Return the bytes of blocks, [blocks, bytes per block], from what `unpack` returns.

        Raises:
            QuantError: a field is missing or has the wrong shape, or a number does not fit its bits.
        """
        count = self._count(fields)
        blocks = np.zeros((count, self.num_bytes), np.uint8)
        step = max(1, PACKED // self.elements)
        for start in range(0, count, step):
            part = slice(start, start + step)
            for field in self.fields:
                field.pack(np.asarray(fields[field.name])[part], blocks[part])
        return blocks

    @cached_property
    def zero_points(self) -> int:
        """How many zero points a block has, each of a run of elements; 0 if codes are used as they are."""
        found = self.levels.zero_point(self.unpack(np.zeros(self.num_bytes, np.uint8)))
        return 0 if found is None else int(found.shape[1])

    @property
    def runs(self) -> int:
        """Runs per block that share scale and zero point: the shifts of IQ1_M are finer than its scales."""
        return max(self.elements // self.sub_block, self.zero_points)

    def scale(self, fields: Fields) -> Floats:
        """Return the effective scale of each sub-block, [blocks, sub-blocks], float32."""
        with np.errstate(all="ignore"):
            found: Floats = _computed(self.scale_of, fields).numpy()
            return found / np.float32(self.unit)

    def min(self, fields: Fields) -> Floats | None:
        """Return the effective min of each sub-block, as `scale` the scale; None for types without one."""
        return None if self.min_of is None else _computed(self.min_of, fields).numpy()

    def dequantize(self, data: npt.ArrayLike, out: Floats | None = None) -> Floats:
        """Return the values, [blocks, elements], float32, bit for bit those of ggml's `dequantize_row_*`.

        Args:
            data: whole blocks, uint8, of any shape.
            out: a contiguous array to write into.

        Raises:
            QuantError: the bytes are not whole blocks.
        """
        blocks = self._blocks(data)
        values = (
            np.empty((len(blocks), self.elements), np.float32)
            if out is None
            else out.reshape(-1, self.elements)
        )
        step = max(1, _AT_ONCE // self.elements)
        with np.errstate(all="ignore"):  # a scale may be infinite; ggml computes with it too
            for start in range(0, len(blocks), step):
                part = blocks[start : start + step]
                self._values({f.name: f.unpack(part) for f in self.fields}, values[start : start + step])
        return values

    def _values(self, fields: Fields, out: Floats) -> None:
        # torch multiplies bytes by floats without writing the bytes as floats first
        boxes = torch.from_numpy(out).view(len(out), -1, self.sub_block)
        levels = torch.from_numpy(self.levels.levels(fields)).view(boxes.shape)
        torch.mul(levels, _computed(self.scale_of, fields).unsqueeze(-1), out=boxes)
        if self.min_of is not None:
            mins = _computed(self.min_of, fields).unsqueeze(-1)
            (torch.sub if self.min_sign < 0 else torch.add)(boxes, mins, out=boxes)

    def locate(self, field: str, entry: int, bits: range | None = None) -> tuple[BitRange, ...]:
        """Return where in the block the bits of one entry of a field are, the lowest first.

        Args:
            bits: only these consecutive positions of the number.
        """
        found = self.field(field).locate(entry)
        return found if bits is None else tuple(part for piece in found if (part := piece.part(bits)))

    def _blocks(self, data: npt.ArrayLike) -> Bytes:
        given = np.ascontiguousarray(data, np.uint8)
        if given.size % self.num_bytes:
            raise QuantError(
                f"{given.size:,} bytes are not a whole number of {self.name} blocks of {self.num_bytes} "
                "bytes; pass whole rows."
            )
        return given.reshape(-1, self.num_bytes)

    def _count(self, fields: Fields) -> int:
        """Return how many blocks the fields describe, after checking each of them."""
        if missing := [field.name for field in self.fields if field.name not in fields]:
            raise QuantError(
                f"{self.name} blocks need the field {missing[0]!r}; pass all that unpack returns."
            )
        blocks = len(fields[self.fields[0].name])
        for field in self.fields:
            given = np.asarray(fields[field.name])
            if given.shape != (blocks, field.count):
                raise QuantError(
                    f"The field {field.name!r} of {self.name} has shape {given.shape}; "
                    f"it must be ({blocks}, {field.count})."
                )
            if field.kind == "f" or not given.size:
                continue
            low = -(1 << field.bits - 1) if field.kind == "i" else -field.offset
            high = low + (1 << field.bits) - 1
            if bad := [n for n in (int(given.min()), int(given.max())) if not low <= n <= high]:
                raise QuantError(
                    f"The field {field.name!r} of {self.name} takes {low}..{high}, not {bad[0]}."
                )
        return blocks


def _computed(parameter: Expression, fields: Fields) -> Tensor:
    """Return a parameter of the blocks, float32, [blocks, sub-blocks]."""
    given = {name: fields[name] for name in parameter.names}
    one = next(iter(given.values()))
    if len(given) == 1 and one.dtype == np.uint8:
        return torch.from_numpy(_of_bytes(parameter)[one])
    # fewer bits than a float32 holds exactly, and torch computes with two dtypes slowly
    numbers = {name: torch.from_numpy(n.astype(np.float32)) for name, n in given.items()}
    found: Tensor = run(parameter, numbers)
    return found


@cache
def _of_bytes(parameter: Expression) -> Floats:
    """Return a parameter that depends on one byte for each of its values."""
    (name,) = parameter.names
    found: Floats = run(parameter, {name: torch.arange(256, dtype=torch.int32)}).numpy()
    return found
