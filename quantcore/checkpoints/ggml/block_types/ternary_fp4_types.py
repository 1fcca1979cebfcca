"""TQ1_0 and TQ2_0 (three levels), MXFP4 and NVFP4 (FP4 E2M1 with 8-bit scales)."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.checkpoints.ggml.block_type import BlockType, CodePart, Fields
from quantcore.checkpoints.ggml.fields import Field, crumbs, half, nibbles
from quantcore.checkpoints.ggml.levels import CODE, D, Offset, Table
from quantcore.checkpoints.ggml.planes import Axis, Plane
from quantcore.expressions import (
    POWER_OF_TWO,
    Explained,
    Expression,
    Let,
    Name,
    Number,
    Operation,
    Term,
    Where,
)

# runs of bytes of TQ1_0: (bytes in a run, digits per byte); the first digits of a run are consecutive elements
_RUNS = ((32, 5), (16, 5), (4, 4))
_DIGITS = 5


@dataclass(frozen=True)
class Digits:
    """level = code - 1, where the code is a digit in base 3, five to a byte.

    A byte b holds the fraction b/256; its digits are those of b/256 in base 3, the first element's first. One or two
    bytes stand for each of the 243 numbers, so codes alone do not determine the byte.
    """

    symbol: ClassVar[str] = "byte"

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

    def expression(self, element: int) -> Expression:
        """The digit minus 1."""
        digit = self.digit(element)
        fraction = (CODE * 3**digit) % 256
        return Let("q", (fraction * 3) >> 8, f"base-3 digit {digit} of the byte, as a fraction of 256") - 1

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


CODED = Name("scale_code")
HALF_E8M0 = Let("s", POWER_OF_TWO(CODED - 128), "E8M0, halved: levels are doubled")


def e8m0_as_nan(scale: Expression) -> Expression:
    """Return an E8M0 scale of which 255 is NaN, which ggml does not know."""
    return Where(CODED, 255, Let("s", Number(math.nan), "E8M0 255 is NaN"), scale)


def _half_e4m3(code: int) -> np.float32:
    """Half the value of a code of E4M3, the sign bit ignored; 0x7F is 0 (ggml-impl.h, `ggml_ue4m3_to_fp32`)."""
    exponent, mantissa = code >> 3 & 15, code & 7
    if code == 0x7F:
        return np.float32(0)
    return np.float32(np.ldexp(1 + mantissa / 8, exponent - 8) if exponent else np.ldexp(mantissa / 8, -7))


def _explained(bits: Term) -> Explained:
    code = int(bits.value)
    exponent, mantissa = code >> 3 & 15, code & 7
    if code == 0x7F:
        return Explained("0", "0", "ggml reads 0x7F as 0", "0")
    numbers, formula = f"{mantissa} / 8 · 2^(-7)", "m / 8 · 2^(-7)"
    if exponent:
        numbers, formula = f"(1 + {mantissa} / 8) · 2^({exponent} - 8)", "(1 + m / 8) · 2^(e - 8)"
    note = f"e4m3 without its sign, halved: exponent e = {exponent:04b}, mantissa m = {mantissa:03b}"
    return Explained(formula, numbers, note)


@cache
def _all_e4m3() -> Tensor:
    return torch.tensor([float(_half_e4m3(code)) for code in range(256)])


E4M3 = Operation(
    "e4m3({0}) / 2", "e4m3({0}) / 2", "small_float({0} & 127, 4, 3, 7) / 2",
    lambda code, out=None: _all_e4m3()[code.long()], lambda code: _half_e4m3(int(code)), explain=_explained,
)  # fmt: skip


TQ1_0 = BlockType(
    "TQ1_0", 34, 256, 54,
    (Field("digits", 52, (Plane(0, (Axis(52, 1),), 8),)), half("d", 52)),
    256, Digits(), D,
)  # fmt: skip
TQ2_0 = BlockType(
    "TQ2_0", 35, 256, 66,
    (Field("codes", 256, (crumbs(0),)), half("d", 64)),
    256, Offset(1), D,
)  # fmt: skip
MXFP4 = BlockType(
    "MXFP4", 39, 32, 17,
    (Field("scale_code", 1, (Plane(0, (Axis(1),), 8),)), Field("codes", 32, (nibbles(1, 16),))),
    32, _FP4, HALF_E8M0, unit=0.5,
)  # fmt: skip
NVFP4 = BlockType(
    "NVFP4", 40, 64, 36,
    (Field("scale_code", 4, (Plane(0, (Axis(4, 1),), 8),)), Field("codes", 64, (nibbles(4, 8, 4),))),
    16, _FP4, Let("s", E4M3(CODED)), unit=0.5,
)  # fmt: skip
