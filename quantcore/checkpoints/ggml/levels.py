"""What codes stand for, and how scales are computed: the building blocks of block types."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from quantcore.checkpoints.ggml.block_type import CodePart, Fields, Floats


@dataclass(frozen=True)
class Offset:
    """level = code - constant; the codes are the field of that name."""

    constant: int = 0

    def codes(self, fields: Fields) -> npt.NDArray[Any]:
        """The codes as stored, minus the field's offset."""
        return fields["codes"]

    def levels(self, fields: Fields) -> npt.NDArray[Any]:
        """code - constant."""
        codes = fields["codes"].view(np.int8)  # at most 7 bits, or signed already
        return codes - np.int8(self.constant) if self.constant else codes

    def zero_point(self, fields: Fields) -> npt.NDArray[np.uint8] | None:
        """The constant, one for the block; None if it is 0."""
        return np.full((len(fields["codes"]), 1), self.constant, np.uint8) if self.constant else None

    def parts(self, element: int) -> tuple[CodePart, ...]:
        """The element's own code."""
        return (CodePart("codes", element),)


@dataclass(frozen=True)
class Table:
    """level = table[code]."""

    table: tuple[int, ...]

    def codes(self, fields: Fields) -> npt.NDArray[Any]:
        """The indices into the table."""
        return fields["codes"]

    def levels(self, fields: Fields) -> npt.NDArray[Any]:
        """The entries of the table."""
        codes = fields["codes"]
        if len(self.table) < 16:
            return np.take(np.array(self.table, np.int8), codes, mode="clip")
        return np.take(self._pairs, codes.view("<u2"), mode="clip").view(np.int8)

    @cached_property
    def _pairs(self) -> npt.NDArray[Any]:
        """The levels of two codes of 4 bits, by both bytes as one number: half as many look-ups."""
        numbers, levels = np.arange(1 << 12), np.array(self.table, np.int8).view(np.uint8)
        pairs = np.stack([levels[numbers & 15], levels[numbers >> 8]], axis=1)
        return pairs.view("<u2").ravel()

    def zero_point(self, fields: Fields) -> None:
        """None: the table is not shifted."""

    def parts(self, element: int) -> tuple[CodePart, ...]:
        """The element's own code."""
        return (CodePart("codes", element),)


@dataclass(frozen=True)
class FloatOf:
    """The float16 field ``name`` as float32, one per block."""

    name: str

    def __call__(self, fields: Fields) -> Floats:
        """The numbers, [blocks, 1]."""
        return fields[self.name].astype(np.float32)


@dataclass(frozen=True)
class Product:
    """The float16 field ``name`` times the integers of the field ``code``, float32, one per sub-block."""

    name: str
    code: str

    def __call__(self, fields: Fields) -> Floats:
        """The products, [blocks, sub-blocks]."""
        return fields[self.name].astype(np.float32) * fields[self.code].astype(np.float32)


@dataclass(frozen=True)
class Stepped:
    """d * (first + step * scale code) * factor, float32, multiplied in this order."""

    first: float
    step: float
    factor: float = 1.0

    def __call__(self, fields: Fields) -> Floats:
        """The products, [blocks, sub-blocks]."""
        steps = np.float32(self.step) * fields["scale_code"].astype(np.float32) + np.float32(self.first)
        return fields["d"].astype(np.float32) * steps * np.float32(self.factor)
