"""Small floats: the value of each bit pattern.

A code is a raw bit pattern: the sign, then ``exponent`` bits E, then ``mantissa`` bits M. Its value is
2^(E - bias) · (1 + M / 2^mantissa), or if E is 0, the subnormal 2^(1 - bias) · M / 2^mantissa.
The formats differ in the patterns that encode infinity and NaN:

============  ====  ======  ==========  ========  ==================  ======================================
format        bias  max     smallest    infinity  NaN                 source
============  ====  ======  ==========  ========  ==================  ======================================
``e4m3fn``    7     448     2^-9        no        ``all_ones``        OCP 8-bit Floating Point (OFP8) 1.0
``e5m2``      15    57344   2^-16       yes       ``ieee``            the same
``e4m3fnuz``  8     240     2^-10       no        ``negative_zero``   Noune et al. 2022, arXiv 2206.02915
``e5m2fnuz``  16    57344   2^-17       no        ``negative_zero``   the same
``e3m4``      3     15.5    2^-6        yes       ``ieee``            ml_dtypes, float8_e3m4
``e2m3``      1     7.5     2^-3        no        ``none``            OCP Microscaling Formats (MX) 1.0, 5.3
``e3m2``      3     28      2^-4        no        ``none``            the same
``e2m1``      1     6       2^-1        no        ``none``            the same
``e8m0``      127   2^127   2^-127      no        ``all_ones``        the same, 5.4: no sign and no zero
``fp16``      15    65504   2^-24       yes       ``ieee``            IEEE 754-2019, binary16
``bf16``      127   3.4e38  2^-133      yes       ``ieee``            the upper half of a float32
============  ====  ======  ==========  ========  ==================  ======================================

Numbers beyond the range saturate here, as in quantizers. Other libraries cast differently:

- ml_dtypes 0.6: ``saturate=False`` throughout.
- torch 2.13: e4m3fn saturates; e5m2, fnuz, fp16 and bf16 do not; e8m0 is ``e8m0(saturate=False,
  sign=dropped)``.
- gfloat 0.5: either. It rounds e8m0's ties, 1.5 · 2^k, to the even exponent; ml_dtypes, torch and this module
  round them to the larger number, as IEEE 754-2019, 4.3.1 specifies if no mantissa is even. Between 2^-127
  and 2^-126 these three always round up, while gfloat rounds to nearest.
"""

import functools
import math
from dataclasses import asdict, dataclass, replace

from torch import Tensor

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.formats import float_codec
from quantcore.formats.float_layout import FloatLayout
from quantcore.formats.lookup_table import TableFormat
from quantcore.numerics import Rounding, half_even


@dataclass(frozen=True)
class Fields:
    """The fields of one code; ``sign`` is None if the format has none.

    ``kind``: zero, subnormal, normal, infinity or nan.
    """

    sign: int | None
    exponent: int
    mantissa: int
    value: float
    kind: str


@dataclass(frozen=True)
class FloatFormat(FloatLayout, TableFormat):
    """A small float, and how other numbers are cast to it; `FLOATS` has the named formats.

    Args:
        exponent, mantissa: bits of each.
        bias: subtracted from the exponent field; by default 2^(exponent-1) - 1, as in IEEE 754.
        infinities: whether the highest pattern other than NaN is infinity.
        nan: which patterns are NaN: "none"; "ieee", the highest exponent with a nonzero mantissa;
            "all_ones"; "negative_zero", so that there is no -0.
        saturate: numbers beyond the largest, including infinity, become the largest. Otherwise numbers that
            round beyond it become infinity, or NaN if there is no infinity. NaN stays NaN; if no pattern is
            NaN, it becomes -0 (as in ml_dtypes).
        sign: "bit"; or no sign bit, and a negative number becomes NaN ("nan") or has its sign "dropped".
        subnormals: whether the exponent field 0 encodes zero and the subnormals, or one more power of two.
            Without a zero, 0 becomes the smallest number, or NaN with sign="nan".

    Raises:
        QuantError: the choices contradict each other, or a value would not be a float32.

    >>> FLOATS["e4m3fn"].max, FloatFormat(4, 3, nan="all_ones") == FLOATS["e4m3fn"]
    (448.0, True)
    """

    @property
    def signed(self) -> bool:
        """Whether there is a sign bit."""
        return bool(self.sign_bit)

    @property
    def reach(self) -> float:
        """Half a step beyond the largest finite value: numbers beyond it are clipped, not rounded."""
        return self.max + 2.0 ** ((self.top >> self.mantissa) - self.bias - self.mantissa - 1)

    @property
    def available(self) -> int:
        """The number of codes, including NaN and infinity."""
        return 1 << self.bits

    @property
    def table(self) -> Tensor:
        """The value of every code, float32, (available,); shared: do not write to it."""
        return float_codec.table(self)

    @property
    def values(self) -> Tensor:
        """The distinct finite values in ascending order, float32; 0 occurs once."""
        return float_codec.finite_values(self).clone()

    @property
    def max(self) -> float:
        """The largest finite value."""
        return float(self.table[self.top])

    @property
    def bounds(self) -> tuple[float, float]:
        """The unclamped values between which an element counts as rounded, not clipped."""
        return -self.reach, self.reach

    @property
    def min(self) -> float:
        """The smallest positive normal value; the next power of two if even the largest is subnormal."""
        return 2.0**self.lowest_exponent

    @property
    def epsilon(self) -> float:
        """The step from 1 to the next value, 2^-mantissa."""
        return 2.0**-self.mantissa

    def fields(self, code: int) -> Fields:
        """Return the fields of a code.

        Raises:
            QuantError: the format has no such code.
        """
        code = notation.integer(code, "The code")
        if not 0 <= code <= self.qmax:
            raise QuantError(f"The code {code} is outside 0..{self.qmax} of {self}.")
        exponent = (code >> self.mantissa) & ((1 << self.exponent) - 1)
        value = float(self.table[code])
        if not math.isfinite(value):
            kind = "nan" if math.isnan(value) else "infinity"
        elif exponent or not self.subnormals:
            kind = "normal"
        else:
            kind = "subnormal" if value else "zero"
        sign = int(bool(code & self.sign_bit)) if self.sign_bit else None
        return Fields(sign, exponent, code & ((1 << self.mantissa) - 1), value, kind)

    def encode_(self, work: Tensor, out: Tensor, rule: Rounding = half_even) -> Tensor:
        """Write the codes of ``work``, float32 and contiguous, into ``out``; ``work`` is overwritten.

        Makes temporaries of the size of ``work``, which should therefore fit the cache.
        """
        return float_codec.encode_(work, out, self, rule) if work.numel() else out

    def round_(self, work: Tensor, rule: Rounding = half_even) -> bool:
        """Round ``work``, float32, in place to the values of its codes; return whether it could."""
        return float_codec.round_(work, self, rule)

    def __str__(self) -> str:
        return _written(self)


CHANGEABLE = ("saturate", "sign")  # for named formats: how numbers are cast to them
FLOATS: dict[str, FloatFormat] = notation.NamedRecords(
    {
        "e4m3fn": FloatFormat(4, 3, nan="all_ones"),
        "e5m2": FloatFormat(5, 2, infinities=True, nan="ieee"),
        "e4m3fnuz": FloatFormat(4, 3, 8, nan="negative_zero"),
        "e5m2fnuz": FloatFormat(5, 2, 16, nan="negative_zero"),
        "e3m4": FloatFormat(3, 4, infinities=True, nan="ieee"),
        "e2m3": FloatFormat(2, 3),
        "e3m2": FloatFormat(3, 2),
        "e2m1": FloatFormat(2, 1),
        "e8m0": FloatFormat(8, 0, nan="all_ones", sign="nan", subnormals=False),
        "fp16": FloatFormat(5, 10, infinities=True, nan="ieee"),
        "bf16": FloatFormat(8, 7, infinities=True, nan="ieee"),
    }
)


@functools.lru_cache(1024)
def _written(fmt: FloatFormat) -> str:
    """Return what `read_float` reads; sweeps write the same formats again and again."""
    own = asdict(fmt)
    for name, known in FLOATS.items():
        changed = {key for key, value in asdict(known).items() if own[key] != value}
        if changed <= set(CHANGEABLE):
            given = [f"{key}={notation.write_value(own[key])}" for key in CHANGEABLE if key in changed]
            return f"{name}({', '.join(given)})" if given else name
    usual = fmt.bias == (1 << (fmt.exponent - 1)) - 1
    return notation.write_call(fmt, "float", skip=("bias",) if usual else ())


def read_float(word: str) -> FloatFormat | None:
    """Read ``e4m3fn``, ``e5m2(saturate=False)`` or ``float(4, 3, bias=11, nan=negative_zero)``.

    Returns None if the word is not a float.

    Raises:
        QuantError: the arguments are not those of a float.
    """
    head = word.partition("(")[0]
    if head not in FLOATS and head != "float":
        return None
    name, arguments, changes = notation.parse_call(word)
    if name == "float":
        return notation.build(FloatFormat, arguments, changes, word)  # type: ignore[no-any-return]
    if arguments or not set(changes) <= set(CHANGEABLE):
        raise QuantError(
            f"{word[:60]!r}: {name} accepts only the named arguments {' and '.join(CHANGEABLE)}."
        )
    return replace(FLOATS[name], **changes)
