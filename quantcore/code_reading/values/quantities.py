"""Values computed from the tensor: its extremes, scales, zero points, codes.

============= ===================================== =======================================
value         in units of                           for example
============= ===================================== =======================================
`Data`        x                                     ``x``, ``x.abs()``, ``x.clamp(-1, 1)``
`Real`        x, from extremes of the data          ``x.max()``, ``(high - low) / 255``
`Inverse`     1 / x                                 ``127 / x.abs().max()``
`Steps`       codes, from extremes over a scale     ``-128 - torch.round(low / scale)``
`Codes`       codes, one for each element           ``torch.round(x / scale) + z``
`Dequantized` x, one for each element               ``(codes - z) * scale``
============= ===================================== =======================================
"""

from dataclasses import dataclass, field
from typing import Any

from quantcore.code_reading.values.python import DType, Value, line_field

Axes = tuple[int, ...] | None


@dataclass(frozen=True)
class Data(Value):
    """The tensor, or an elementwise function of it.

    ``root``: its name; ``layout``: how it was reshaped or sliced; ``low``, ``high``: what it was clamped to, in units
    of x; ``one_sided``: no value is below 0; ``caller``: the caller's own tensor, not a copy; ``shift``: extremes
    added to it, with their factors; ``twice``: the dequantized values that it holds.
    """

    root: str
    absolute: bool = False
    one_sided: bool = False
    layout: tuple[Any, ...] = ()
    low: float | None = None
    high: float | None = None
    shift: tuple[tuple[Any, float], ...] = ()
    caller: bool = field(default=False, compare=False)
    twice: Any = field(default=None, compare=False)
    rank: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Stat(Value):
    """An extreme of the data: ``end`` max or min, of |x| if ``absolute``, or a percentile ``p``.

    ``axes``: the reduced axes, None for all; ``keepdim``: whether they are kept with length 1;
    ``placed``: how it was reshaped afterwards; ``zero``: the range was widened to include 0.
    """

    end: str
    absolute: bool
    data: Data
    axes: Axes = None
    keepdim: bool = field(default=False, compare=False)
    placed: str = field(default="", compare=False)
    p: float | None = None
    zero: bool = field(default=False, compare=False)
    line: int = line_field()


@dataclass(frozen=True)
class Real(Value):
    """A weighted sum of extremes plus a constant; a scale if x is divided by it.

    ``known``: whether the factors are known; ``divided``: the line where it was divided by a number of codes, or 0;
    ``guard``: it can't be 0; ``half``: the line where it was cast to float16, or 0.
    """

    terms: tuple[tuple[Stat, float], ...]
    const: float = 0.0
    known: bool = True
    divided: int = line_field()
    guard: bool = field(default=False, compare=False)
    half: int = line_field()


@dataclass(frozen=True)
class Inverse(Value):
    """1 / scale, or -1 / scale if ``sign`` is -1."""

    scale: Value
    sign: int = 1


@dataclass(frozen=True)
class Steps(Value):
    """A weighted sum of extremes in units of a scale, plus a constant: a zero point.

    ``rounding``: as in `Codes`, "" if there was none; ``dtype``: the dtype, None for a float tensor;
    ``python``: whether it is a Python number; ``clamped``: whether it was clamped.
    """

    terms: tuple[tuple[Stat, float], ...]
    scale: Value
    const: float = 0.0
    known: bool = True
    rounding: str = field(default="", compare=False)
    clamped: bool = field(default=False, compare=False)
    dtype: DType | None = field(default=None, compare=False)
    python: bool = field(default=False, compare=False)
    line: int = line_field()


@dataclass(frozen=True)
class Op:
    """One step of computing codes. ``name``: divide, floor_divide, add, round, clamp, cast or other."""

    name: str
    line: int
    value: Any = None
    sign: int = 1


@dataclass(frozen=True, eq=False)
class Codes(Value):
    """x / scale, and the steps applied since.

    ``multiplied``: x was multiplied by the scale instead; ``inverse``: it was multiplied by 1 / scale;
    ``obscured``: something unknown was added.
    """

    data: Data
    scale: Value
    ops: tuple[Op, ...]
    multiplied: bool = False
    inverse: bool = False
    obscured: bool = False

    def of(self, name: str) -> list[Op]:
        """The steps of this name."""
        return [op for op in self.ops if op.name == name]

    @property
    def rounding(self) -> str:
        """The rule of the first rounding, including a cast to an integer; "" if there is none."""
        found = self.of("round")
        return str(found[0].value) if found else ""

    @property
    def dtype(self) -> DType | None:
        """The current integer type; None for floats."""
        casts = self.of("cast")
        dtype = casts[-1].value if casts else None
        return dtype if dtype is not None and not dtype.floating else None


@dataclass(frozen=True, eq=False)
class Dequantized(Value):
    """Codes times their scale.

    ``left``: how much of the zero point is still in it, as factors by source; ``loose``: what was added after
    scaling, in units of codes.
    """

    codes: Codes
    line: int
    left: tuple[tuple[Any, float], ...] = ()
    loose: tuple[tuple[Value, int, int], ...] = ()
