"""TQ1_0 and TQ2_0 (three levels), MXFP4 and NVFP4 (FP4 E2M1 with 8-bit scales)."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from quantcore.checkpoints.ggml.block_type import BlockType, CodePart, Fields, Floats
from quantcore.checkpoints.ggml.fields import Field, crumbs, half, nibbles
from quantcore.checkpoints.ggml.levels import FloatOf, Offset, Table
from quantcore.checkpoints.ggml.planes import Axis, Plane

# runs of bytes of TQ1_0: (bytes in a run, digits per byte); the first digits of a run are consecutive elements
_RUNS = ((32, 5), (16, 5), (4, 4))
_DIGITS = 5


@dataclass(frozen=True)
class Digits:
    """level = code - 1, where the code is a digit in base 3, five to a byte.

    A byte b holds the fraction b/256; its digits are those of b/256 in base 3, the first element's first. One or two
    bytes stand for each of the 243 numbers, so codes alone do not determine the byte.
    """

    def codes(self, fields: Fields) -> npt.NDArray[np.uint8]:
        """The digits, 0 to 2."""
        stored, found, start, end = fields["digits"], [], 0, 0
        for run, digits in _RUNS:
            end = start + run
            for digit in range(digits):
                # the fraction that is left after the first digits, in 256ths; its thirds give the next digit
                rest = stored[:, start:end] * np.uint8(3**digit)
                found.append((rest > 85).view(np.uint8) + (rest > 170).view(np.uint8))
            start = end
        return np.concatenate(found, axis=1)

    def levels(self, fields: Fields) -> npt.NDArray[np.int8]:
        """The digits minus 1."""
        codes = self.codes(fields).view(np.int8)
        codes -= np.int8(1)
        return codes

    def zero_point(self, fields: Fields) -> npt.NDArray[np.uint8]:
        """1, once per block."""
        return np.ones((len(fields["digits"]), 1), np.uint8)

    def parts(self, element: int) -> tuple[CodePart, ...]:
        """The byte that holds the digit."""
        start = 0
        for run, digits in _RUNS:
            if element < run * digits:
                return (CodePart("digits", start + element % run),)
            element, start = element - run * digits, start + run
        raise IndexError(element)

    def digit(self, element: int) -> int:
        """Which digit of its byte is the element's, 0 the first."""
        for run, digits in _RUNS:
            if element < run * digits:
                return element // run
            element -= run * digits
        raise IndexError(element)


def digits_of(codes: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return the bytes, [blocks, 52], that ggml writes for codes 0 to 2, [blocks, 256], of TQ1_0."""
    found, start = [], 0
    for run, digits in _RUNS:
        part = codes[:, start : start + run * digits].reshape(len(codes), digits, run).astype(np.uint16)
        weights = 3 ** np.arange(_DIGITS - 1, _DIGITS - 1 - digits, -1, dtype=np.uint16)
        number = (part * weights[:, None]).sum(axis=1, dtype=np.uint16)
        found.append((number * 256 + 242) // 243)  # rounded up, so that truncating gives the digits back
        start += run * digits
    return np.concatenate(found, axis=1).astype(np.uint8)


_FP4 = Table((0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12))  # E2M1, doubled: kvalues_mxfp4


@cache
def _half_e8m0() -> Floats:
    """2^(code - 127) / 2 of the 256 codes; in ggml, none of them is NaN (ggml-impl.h, `ggml_e8m0_to_fp32_half`)."""
    return np.ldexp(np.float32(0.5), np.arange(256) - 127).astype(np.float32)


@cache
def _half_e4m3() -> Floats:
    """Half the value of the 256 codes of E4M3, the sign bit ignored; 0x7F is 0 (ggml-impl.h, `ggml_ue4m3_to_fp32`)."""
    codes = np.arange(256)
    exponent, fraction = codes >> 3 & 15, codes & 7
    values = np.where(exponent == 0, np.ldexp(fraction / 8, -6), np.ldexp(1 + fraction / 8, exponent - 7)) / 2
    values[0x7F] = 0
    return values.astype(np.float32)


@dataclass(frozen=True)
class HalfE8m0:
    """Half the value of an E8M0 scale, since ggml keeps FP4 levels doubled; ``nan``: whether 255 is NaN (not in ggml)."""

    nan: bool = False

    def __call__(self, fields: Fields) -> Floats:
        """The scales, [blocks, sub-blocks]."""
        codes = fields["scale_code"]
        found = _half_e8m0()[codes]
        return np.where(codes == 255, np.float32(np.nan), found) if self.nan else found


@dataclass(frozen=True)
class HalfE4m3:
    """Half the value of an unsigned E4M3 scale."""

    def __call__(self, fields: Fields) -> Floats:
        """The scales, [blocks, sub-blocks]."""
        return _half_e4m3()[fields["scale_code"]]


TQ1_0 = BlockType(
    "TQ1_0", 34, 256, 54,
    (Field("digits", 52, (Plane(0, (Axis(52, 1),), 8),)), half("d", 52)),
    256, Digits(), FloatOf("d"),
)  # fmt: skip
TQ2_0 = BlockType(
    "TQ2_0", 35, 256, 66,
    (Field("codes", 256, (crumbs(0),)), half("d", 64)),
    256, Offset(1), FloatOf("d"),
)  # fmt: skip
MXFP4 = BlockType(
    "MXFP4", 39, 32, 17,
    (Field("scale_code", 1, (Plane(0, (Axis(1),), 8),)), Field("codes", 32, (nibbles(1, 16),))),
    32, _FP4, HalfE8m0(), unit=0.5,
)  # fmt: skip
NVFP4 = BlockType(
    "NVFP4", 40, 64, 36,
    (Field("scale_code", 4, (Plane(0, (Axis(4, 1),), 8),)), Field("codes", 64, (nibbles(4, 8, 4),))),
    16, _FP4, HalfE4m3(), unit=0.5,
)  # fmt: skip
