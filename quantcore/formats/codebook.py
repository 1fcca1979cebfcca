"""Codebooks: a code is an index into a table of values, and a number rounds to the nearest value.

====================  ======  =====  =======================================================================
format                values  ties   source
====================  ======  =====  =======================================================================
``nf4``               16      lower  Dettmers et al. 2023 (QLoRA), arXiv 2305.14314; bitsandbytes 0.50
``nf4_torchao``       16      first  the same, rounded to four decimals as in torchao 0.18
``fp4_bitsandbytes``  16      lower  bitsandbytes 0.50: a sign bit and eight magnitudes, 0 twice
``dynamic8``          256     grid   Dettmers et al. 2022, arXiv 2110.02861, 2.1; bitsandbytes 0.50,
                                     ``create_dynamic_map``
``iq4_nl``            16      upper  llama.cpp, ``kvalues_iq4nl`` and ``best_index_int8``
``mxfp4_gguf``        16      first  gguf 0.19, ``kvalues`` of MXFP4: twice the values of e2m1
``ternary``           3       away   -1, 0, 1; gguf's TQ1_0 and TQ2_0
``binary``            2       upper  -1, 1, and 0 becomes 1; Courbariaux et al. 2016, arXiv 1602.02830
``log2_4``            15      away   0 and ±2^0 .. ±2^-6; Zhou et al. 2017 (INQ), arXiv 1702.03044; any width
====================  ======  =====  =======================================================================

If a number lies halfway between two values, the tie rule decides: the ``lower`` or ``upper`` value (halfway
is the float32 (a + b) / 2, as in bitsandbytes' bucketize), the one ``away`` from zero, or the ``first`` in
the table (nearest by float32 distances, as with argmin for numbers within the table). With ``grid``, numbers
are first brought to the nearest of 65,536 points from -1 to 1, as bitsandbytes does on a CPU, and the code is
that of the point, ties to the lower value: codes whose values lie closer than the points may never be used.
"""

import math
import re
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.formats import codebook_codec
from quantcore.formats.codebook_codec import TIES
from quantcore.formats.lookup_table import TableFormat
from quantcore.numerics import Rounding, half_even

MAX_VALUES = 256
_NEAREST = {"grid": "by the nearest of 65,536 points of −1..1, ties: lower"}
LOG2_BITS = range(2, 9)


@dataclass(frozen=True)
class CodebookFormat(TableFormat):
    """A table of values, one per code from code 0 on, in any order.

    Values may repeat, as in libraries' tables.

    Args:
        values: 2 to 256 numbers, which are rounded to float32.
        name: a word that identifies it; `CODEBOOKS` has the named ones.
        tie: ``lower``, ``upper``, ``away``, ``first`` or ``grid``.

    Raises:
        QuantError: too few or too many values, fewer than two distinct values, a value that is not a finite
            float32, a name that is not a word, or an unknown tie rule.
    """

    values: tuple[float, ...]
    name: str = ""
    tie: str = "lower"

    def __post_init__(self) -> None:
        given = self.values.tolist() if isinstance(self.values, Tensor | np.ndarray) else self.values
        if not isinstance(given, tuple | list) or not 2 <= len(given) <= MAX_VALUES:
            raise QuantError(f"A codebook needs a list of 2 to {MAX_VALUES} values.")
        values = tuple(_as_float32(v, place) for place, v in enumerate(given))
        if len(set(values)) < 2:
            raise QuantError(f"A codebook needs two different values; all {len(values)} are {values[0]:g}.")
        if self.tie not in TIES:
            raise QuantError(f"tie must be one of {', '.join(TIES)}, not {str(self.tie)[:40]!r}.")
        if not isinstance(self.name, str) or not re.fullmatch(
            r"(?!(?i:true|false)$)([A-Za-z]\w{0,39})?", self.name, re.A
        ):
            raise QuantError(f"The name {str(self.name)[:40]!r} must be a word of letters, digits and _.")
        object.__setattr__(self, "values", values)

    @property
    def bits(self) -> int:
        """Bits per code."""
        return (len(self.values) - 1).bit_length()

    @property
    def available(self) -> int:
        """The number of codes."""
        return len(self.values)

    @property
    def table(self) -> Tensor:
        """The value of every code, float32, (available,)."""
        return torch.tensor(self.values, dtype=torch.float32)

    @property
    def max(self) -> float:
        """The largest magnitude, to which scales map the largest magnitude of a block."""
        return max(abs(v) for v in self.values)

    @property
    def bounds(self) -> tuple[float, float]:
        """The unclamped values between which an element counts as rounded, not clipped."""
        values = sorted(set(self.values))
        return values[0] - (values[1] - values[0]) / 2, values[-1] + (values[-1] - values[-2]) / 2

    @property
    def nearest(self) -> str:
        """Which value a number takes, in words."""
        return _NEAREST.get(self.tie, f"ties: {self.tie}")

    @property
    def signed(self) -> bool:
        """Whether some value is negative."""
        return min(self.values) < 0

    def encode_(self, work: Tensor, out: Tensor, rule: Rounding = half_even) -> Tensor:
        """Write the codes of ``work``, float32, into ``out``; makes temporaries of the size of ``work``.

        Numbers beyond the table round to the outermost value. NaN gets the code of the highest value, as in
        torch.bucketize, or code 0 with the tie rules ``first``, as in argmin, and ``grid``.

        Raises:
            QuantError: a rounding other than half_even, here the nearest value with ties by ``tie``.
        """
        if rule is not half_even:
            raise QuantError(
                "A codebook rounds to the nearest value; choose rounding=half_even, and set the format's tie."
            )
        return codebook_codec.encode_(work, out, (self.values, self.tie)) if work.numel() else out

    def __str__(self) -> str:
        known = CODEBOOKS.get(self.name) or (log2_codebook(self.name) if self.name else None)
        if known is not None and self == replace(known, tie=self.tie):
            return self.name if self == known else f"{self.name}(tie={self.tie})"
        return notation.write_call(self, "codebook")


def _as_float32(value: object, place: int) -> float:
    number = notation.finite(value, f"Value {place} of the codebook")
    with np.errstate(over="ignore"):
        rounded = float(np.float32(number))
    if math.isinf(rounded):
        raise QuantError(f"Value {place} of the codebook, {number:g}, is beyond the largest float32, 3.4e38.")
    return rounded


def powers_of_two(bits: int) -> CodebookFormat:
    """0 and ±2^0, ±2^-1, …: the 2^bits - 1 values of ``log2_<bits>``.

    Raises:
        QuantError: ``bits`` is not from 2 to 8.
    """
    bits = notation.integer(bits, "bits")
    if bits not in LOG2_BITS:
        raise QuantError(
            f"bits={bits} is outside {LOG2_BITS[0]}..{LOG2_BITS[-1]}, the widths of log2 codebooks; choose "
            "one of them."
        )
    rising = [2.0**-k for k in reversed(range((1 << (bits - 1)) - 1))]
    return CodebookFormat((*(-v for v in reversed(rising)), 0.0, *rising), f"log2_{bits}", "away")


def log2_codebook(name: str) -> CodebookFormat | None:
    """Return the powers of two of that name, such as ``log2_5``; None for other names."""
    match = re.fullmatch(r"log2_([2-8])", name)
    return powers_of_two(int(match[1])) if match else None


def _dynamic8() -> tuple[float, ...]:
    """Return 0, 1, and of both signs, for i = 0..6, the middles of 2^i parts of 0.1..1, times 10^(i - 6)."""
    values = [0.0, 1.0]
    for i in range(7):
        ends = torch.linspace(0.1, 1, 2**i + 1)
        middles = 10.0 ** (i - 6) * ((ends[:-1] + ends[1:]) / 2)
        values += [*middles.tolist(), *(-middles).tolist()]
    return tuple(sorted(values))


_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
    -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
    0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
_NF4_TORCHAO = tuple(round(v, 4) for v in _NF4)
_FP4 = (0.0, 0.0052083334885537624, 2 / 3, 1.0, 1 / 3, 0.5, 1 / 6, 0.25)
_IQ4_NL = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_MXFP4 = (0, 1, 2, 3, 4, 6, 8, 12)
CODEBOOKS: dict[str, CodebookFormat] = notation.NamedRecords(
    {
        book.name: book
        for book in (
            CodebookFormat(_NF4, "nf4"),
            CodebookFormat(_NF4_TORCHAO, "nf4_torchao", "first"),
            CodebookFormat((*_FP4, *(0.0 - v for v in _FP4)), "fp4_bitsandbytes"),
            CodebookFormat(_dynamic8(), "dynamic8", "grid"),
            CodebookFormat(_IQ4_NL, "iq4_nl", "upper"),
            CodebookFormat((*_MXFP4, *(-v for v in _MXFP4)), "mxfp4_gguf", "first"),
            CodebookFormat((-1.0, 0.0, 1.0), "ternary", "away"),
            CodebookFormat((-1.0, 1.0), "binary", "upper"),
            powers_of_two(3),
            powers_of_two(4),
        )
    }
)


def read_codebook(word: str) -> CodebookFormat | None:
    """Read ``nf4``, ``log2_5``, ``nf4(tie=upper)`` or ``codebook([-1,0,2], name=mine)``.

    Returns None if the word is not a codebook.

    Raises:
        QuantError: the arguments are not those of a codebook.
    """
    head = word.partition("(")[0]
    known = CODEBOOKS.get(head) or log2_codebook(head)
    if known is None and head != "codebook":
        return None
    _, arguments, changes = notation.parse_call(word)
    if known is None:
        return notation.build(CodebookFormat, arguments, changes, word)  # type: ignore[no-any-return]
    if arguments or not set(changes) <= {"tie"}:
        raise QuantError(f"{word[:60]!r}: {head} accepts only the named argument tie.")
    return replace(known, **changes)
