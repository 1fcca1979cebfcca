"""What a code stands for, and the scales: the parts that block types are made of."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quantcore.checkpoints.ggml.block_type import Fields, Floats, Parameter


@dataclass(frozen=True)
class Offset:
    """level = code - zero_point; the codes are the field of that name."""

    zero_point: int = 0

    def codes(self, fields: Fields) -> npt.NDArray[Any]:
        """The codes as stored, less the field's offset."""
        return fields["codes"]

    def levels(self, fields: Fields) -> npt.NDArray[Any]:
        """code - zero_point."""
        codes = fields["codes"].view(np.int8)  # at most 7 bits, or signed already
        return codes - np.int8(self.zero_point) if self.zero_point else codes

    def code_fields(self, element: int) -> tuple[tuple[str, int], ...]:
        """The element's own code."""
        return (("codes", element),)


@dataclass(frozen=True)
class Table:
    """level = table[code]."""

    table: tuple[int, ...]

    def codes(self, fields: Fields) -> npt.NDArray[Any]:
        """The indices into the table."""
        return fields["codes"]

    def levels(self, fields: Fields) -> npt.NDArray[Any]:
        """The entries of the table."""
        return np.array(self.table, np.int8)[fields["codes"]]

    def code_fields(self, element: int) -> tuple[tuple[str, int], ...]:
        """The element's own code."""
        return (("codes", element),)


def float_of(name: str) -> Parameter:
    """The float16 field ``name`` in float32, one for the block."""

    def parameter(fields: Fields) -> Floats:
        return fields[name].astype(np.float32)

    return parameter


def product(name: str, code: str) -> Parameter:
    """The float16 field ``name`` times the integers of the field ``code``, float32, one for each sub-block."""

    def parameter(fields: Fields) -> Floats:
        return fields[name].astype(np.float32) * fields[code].astype(np.float32)

    return parameter
