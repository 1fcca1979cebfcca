"""The formats of codes.

=============================  =========  ==========  =========
format                         text       codes       available
=============================  =========  ==========  =========
``IntFormat(8)``               int8       -128..127   256
``IntFormat(8, narrow=True)``  int8n      -127..127   255
``IntFormat(4, signed=False)`` uint4      0..15       16
``FLOATS["e4m3fn"]``           e4m3fn     0..255      256
``CODEBOOKS["nf4"]``           nf4        0..15       16
=============================  =========  ==========  =========

The codes of a `FloatFormat` are bit patterns; those of a `CodebookFormat` are indices into its table. See
`floating_point` and `codebook`.
"""

import math
import re
from dataclasses import dataclass
from typing import ClassVar

import torch

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.formats.codebook import CODEBOOKS, CodebookFormat, read_codebook
from quantcore.formats.floating_point import FLOATS, FloatFormat, read_float
from quantcore.wording import passed

MIN_BITS, MAX_BITS = 2, 16


@dataclass(frozen=True)
class IntFormat:
    """Integers of ``bits`` bits; ``narrow`` excludes the lowest code, so that signed codes are symmetric.

    Codes are offset by a zero point, and have no table: the value of a code is the code itself.

    Raises:
        QuantError: ``bits`` is not an integer from 2 to 16.
    """

    bits: int = 8
    signed: bool = True
    narrow: bool = False
    has_zero_point: ClassVar[bool] = True
    table: ClassVar[None] = None

    def __post_init__(self) -> None:
        notation.read_numbers(self)
        if not MIN_BITS <= self.bits <= MAX_BITS:
            raise QuantError(
                f"bits={self.bits} is outside {MIN_BITS}..{MAX_BITS}; choose a width in that range."
            )

    @property
    def qmin(self) -> int:
        """The lowest code."""
        return (-(1 << (self.bits - 1)) if self.signed else 0) + self.narrow

    @property
    def qmax(self) -> int:
        """The highest code."""
        return (1 << (self.bits - self.signed)) - 1

    @property
    def middle(self) -> int:
        """The zero point of symmetric schemes: 0 if signed, 2^(bits-1) if unsigned."""
        return 0 if self.signed else 1 << (self.bits - 1)

    @property
    def bounds(self) -> tuple[float, float]:
        """The unclamped values between which an element counts as rounded, not clipped."""
        return self.qmin, self.qmax

    @property
    def symmetric_max(self) -> int:
        """The value to which a symmetric scale maps max|x|: 2^(bits-1) - 1."""
        return (1 << (self.bits - 1)) - 1

    @property
    def symmetric_max_exponent(self) -> int:
        """The exponent of the largest power of two up to `symmetric_max`."""
        return math.frexp(self.symmetric_max)[1] - 1

    @property
    def available(self) -> int:
        """The number of codes."""
        return self.qmax - self.qmin + 1

    @property
    def dtype(self) -> torch.dtype:
        """The smallest of int8, uint8, int16, int32 that holds every code."""
        for dtype in (torch.int8, torch.uint8, torch.int16):
            info = torch.iinfo(dtype)
            if info.min <= self.qmin and self.qmax <= info.max and self.signed == (info.min < 0):
                return dtype
        return torch.int16 if self.qmax <= 32767 else torch.int32

    def __str__(self) -> str:
        return f"{'' if self.signed else 'u'}int{self.bits}{'n' if self.narrow else ''}"


Format = IntFormat | FloatFormat | CodebookFormat

INT2, INT4, INT8, INT16 = IntFormat(2), IntFormat(4), IntFormat(8), IntFormat(16)
UINT2, UINT4, UINT8, UINT16 = (IntFormat(b, signed=False) for b in (2, 4, 8, 16))
FORMATS: dict[str, Format] = notation.NamedRecords(
    {str(f): f for f in (INT2, INT4, INT8, INT16, UINT2, UINT4, UINT8, UINT16)}
)
FORMATS |= FLOATS
FORMATS |= CODEBOOKS
# what libraries and people call formats
_ALIASES = {
    "fp8": "e4m3fn",
    "float8": "e4m3fn",
    "e4m3": "e4m3fn",
    "half": "fp16",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float4_e2m1": "e2m1",
    "float4_e2m1fn": "e2m1",
}


def parse_format(word: str) -> Format:
    """Read ``int4``, ``int8n`` (narrow), ``e4m3fn``, ``float(4, 3, bias=11)``, ``codebook([-1,0,2])``.

    Also in capitals, and as libraries write it: ``fp8``, ``float8_e4m3fn``, ``qint8``.

    >>> parse_format("int4").qmin, parse_format("e4m3fn").max
    (-8, 448.0)

    Raises:
        QuantError: the format is unknown.
    """
    if not isinstance(word, str):
        raise QuantError(f"A format's text is needed, not {passed(word)}; write for example 'int4'.")
    usual = _usual(word)
    for read in (read_float, read_codebook):
        found = read(word) or read(usual)
        if found is not None:
            return found
    match = re.fullmatch(r"(u?)int([0-9]{1,3})(n?)", usual)
    if not match:
        raise QuantError(
            f"{word[:40]!r} is not a format; write for example int4, uint8, int8n (narrow), e4m3fn or nf4."
        )
    return IntFormat(int(match[2]), signed=not match[1], narrow=bool(match[3]))


def _usual(word: str) -> str:
    """Return the name of a format that a word of libraries stands for, in small letters."""
    typed = word.lower()
    if typed.startswith(("fp8_", "float8_")):
        typed = typed.partition("_")[2]
    return _ALIASES.get(typed, typed.removeprefix("q") if typed.startswith(("qint", "quint")) else typed)
