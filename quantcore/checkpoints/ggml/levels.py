"""What codes stand for, and how scales are computed: the building blocks of block types."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from quantcore.checkpoints.ggml.block_type import CodePart, Fields
from quantcore.expressions import Expression, Let, Name, Number, entry

CODE = Name("codes")  # what a block stores for an element: its code, or what that is made from


@dataclass(frozen=True)
class Offset:
    """level = code - constant; the codes are the field of that name."""

    constant: int = 0
    symbol: ClassVar[str] = "q"

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

    def expression(self, element: int) -> Expression:
        """code - constant."""
        return CODE - self.constant if self.constant else CODE


@dataclass(frozen=True)
class Table:
    """level = table[code]."""

    table: tuple[int, ...]
    symbol: ClassVar[str] = "q"

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

    def expression(self, element: int) -> Expression:
        """The entry of the table."""
        return Let("level", entry(self.table)(CODE), "ggml's table")


def product(name: str, code: str, of: str) -> Expression:
    """Return the float16 field ``name`` times the integers of the field ``code``: one number per sub-block."""
    return Let(of, Name(name) * Name(code), "of the sub-block")


def stepped(first: float, step: int, factor: float = 1.0) -> Expression:
    """Return d * (first + step * scale code) * factor, multiplied in this order: one number per sub-block."""
    code = Name("scale_code")
    found = D * ((code if step == 1 else Number(step) * code) + first)
    return Let("s", found if factor == 1 else found * factor, after=(code,))


D = Name("d")
