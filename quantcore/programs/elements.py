"""The program of an element: from x and the parameters of its block to its code q, and from q to its value x̂.

u is what is rounded, v the code before it is brought into the format. What is given, such as s, is taken in
the dtype that it has, as torch takes a scale of another dtype; each result is rounded to the dtype of its
line.
"""

import math
from collections.abc import Iterator
from functools import lru_cache

import torch

from quantcore.conventions import DECODINGS, DTYPES, KERNELS, Convention, S, X, Z, middle_of
from quantcore.expressions import (
    CLAMP,
    EQUAL,
    IS_FINITE,
    IS_NAN,
    LESS,
    MAGNITUDE,
    MAXIMUM,
    RECIPROCAL,
    WRAP,
    Expression,
    Name,
    Number,
    Where,
    chain,
    renamed,
    rounded,
)
from quantcore.formats import Format
from quantcore.numerics import Rounding, half_even
from quantcore.programs.record import HALF, Program, ProgramLine

U, V, DIVISOR, LOST = (Name(name) for name in ("u", "v", "divisor", "lost"))
_MEAN = Name("mean")
_LEAST_STORED = 2.0**-127  # the smallest scale of e8m0
# Limits of the integer types that v is cast to
CAST_LIMITS = {"none": math.inf, "int32": 2.0**31, "int64": 2.0**63, "low_bits": 2.0**31}
DTYPE = {name: getattr(torch, name) for name in DTYPES}


@lru_cache(maxsize=1024)
def code_program(
    fmt: Format,
    c: Convention,
    *,
    stored: bool = False,
    round_: Rounding = half_even,
    clamped: bool = False,
) -> Program:
    """Return how an element becomes a code, from x, s, z and the mean, and from a stored 1/s.

    Without what its cast does to NaN and large numbers, see `cast_program`.

    Args:
        c: the convention for its granularity and block.
        stored: whether s was quantized itself, so that it may be 0.
        round_: the convention's rule, or how it rounded one element.
        clamped: whether v is clamped to at most 8 bits next, so that rounding it to 16 bits changes no code:
            integers that these bits can't represent are beyond all codes, before and after.
    """
    lines = [*before_code(fmt, c, stored=stored, round_=round_, clamped=clamped), *to_code(fmt, c)]
    return Program(lines, ("x", "s", "z", "mean"), constants_of(fmt, c))


@lru_cache(maxsize=1024)
def cast_program(fmt: Format, c: Convention) -> Program:
    """Return what the library's cast makes of v, or of u for a float or a codebook, from v or u, and z."""
    return Program(cast(fmt, c), ("u", "v", "z"), {})


@lru_cache(maxsize=1024)
def value_program(fmt: Format, c: Convention, decoding: str = "", *, small: bool = False) -> Program:
    """Return how the value q of a code is dequantized, from s and z, and the numbers that a decoding names.

    Args:
        decoding: a key of `DECODINGS`; empty for that of the convention.
        small: whether q - z is an integer that every dtype can represent, so that it is not rounded.
    """
    lines = to_value(c, decoding or decoding_of(c), small)
    return Program(lines, ("q", "s", "z", "1/s", "max|x|", "mean"), constants_of(fmt, c))


def constants_of(fmt: Format, c: Convention) -> dict[str, float]:
    """Return the numbers that the lines of an element have by name."""
    of_max = float(torch.tensor(1.0) / fmt.symmetric_max)
    return {"½": 0.5, "d": c.scale.divisor, "1/max": of_max, "middle": middle_of(fmt)}


def factor_of(program: Program) -> str:
    """Return what x is multiplied or divided by: "1/s", "divisor" or "s"."""
    names = frozenset().union(*(line.of.names for line in program.lines if line.name == "u"))
    return next(name for name in ("1/s", "divisor", "s") if name in names)


def decoding_of(c: Convention) -> str:
    """Return the key of `DECODINGS` of a convention."""
    if c.zero_point.is_middle:
        return "from_middle"
    return "shifted" if c.zero_point.is_min else c.decoding.decoding


def before_code(
    fmt: Format,
    c: Convention,
    *,
    stored: bool = False,
    round_: Rounding = half_even,
    clamped: bool = False,
    has_inverse: bool = False,
) -> Iterator[ProgramLine]:
    """Compute u, and v if the format has a zero point; ``has_inverse``: whether 1/s is known."""
    kernel, dtype = KERNELS[c.coding.kernel], DTYPE[c.coding.coding_dtype]
    source = c.source("kernel")
    if c.scale.center == "mean":
        yield ProgramLine("x", X - _MEAN, dtype, "the mean is subtracted", c.source("center"))
    if c.scale.divisor != 1:
        yield ProgramLine("x", X / Name("d"), dtype, "x is divided first", c.source("divisor"))
    factor = [*_divisor(c, dtype, stored)]
    divisor = DIVISOR if factor else S
    if kernel.inverse and not has_inverse:
        # a float32 s has a float32 1/s in float64 too
        of_inverse = dtype if dtype != torch.float64 else DTYPE[c.scale.scale_dtype]
        factor.append(ProgramLine("1/s", RECIPROCAL(divisor), of_inverse, "", source))
    for at, step in enumerate(chain(c.unrounded)):
        of = step.operation(U if at else X, *step.operands[1:])
        if of.names & {"s", "1/s"}:  # once, since that is one operation
            yield from factor
            factor = []
        yield ProgramLine("u", renamed(of, "s", divisor), dtype, "", source)
    last = U
    if fmt.has_zero_point:
        last = V
        yield ProgramLine("v", rounded(round_)(U), dtype, "", c.source("rounding"))
        if kernel.added is not None:
            of_sum = None if clamped and dtype in HALF else dtype
            yield ProgramLine("v", V + kernel.added, of_sum, "", source)
    if c.coding.clamp_min:
        yield ProgramLine(last.name, MAXIMUM(last, c.coding.clamp_min), dtype, "the smallest x / s")


def cast(fmt: Format, c: Convention) -> Iterator[ProgramLine]:
    """Cast v to an integer, or u for a float or a codebook: NaN, infinity and large numbers change."""
    kind, source = c.nonfinite.cast, c.source("cast")
    if not fmt.has_zero_point:
        if kind == "low_bits":
            of = Where(IS_FINITE(U), 0, Number(0.0), U)
            yield ProgramLine("u", of, None, "NaN and infinity are lost in the cast", source)
    elif kind == "none":
        code = {"qmin": fmt.qmin, "qmax": fmt.qmax}.get(c.nonfinite.nan, 0)
        yield ProgramLine("v", Where(IS_NAN(V), 1, Number(code), V), None, "NaN has no code", c.source("nan"))
    else:
        lost: Expression = Number(0 if kind == "low_bits" else fmt.qmin)
        if kind == "int32":
            lost, of = LOST, Where(LESS(Z, 0.0), 1, Number(fmt.qmax), Number(fmt.qmin))
            yield ProgramLine("lost", of, None, "the lowest integer and a negative z wrap around", source)
        of = Where(LESS(MAGNITUDE(V), CAST_LIMITS[kind]), 0, lost, V)
        yield ProgramLine("v", of, None, "NaN and larger numbers are lost in the cast", source)


def to_code(fmt: Format, c: Convention) -> Iterator[ProgramLine]:
    """Bring v into the format."""
    if fmt.has_zero_point:
        wraps = c.coding.overflow == "wrap"
        of = WRAP(V, fmt.qmin - fmt.narrow, fmt.qmax) if wraps else CLAMP(V, fmt.qmin, fmt.qmax)
        yield ProgramLine("q", of, torch.float32, "codes wrap around" if wraps else "", c.source("overflow"))


def _divisor(c: Convention, dtype: torch.dtype, stored: bool) -> Iterator[ProgramLine]:
    """Compute what stands for s where x is divided, where that is not s."""
    storage, s = c.storage, S
    if storage.zero_scale == "zero_inverse" or (stored and storage.zero_scale == "zero_codes"):
        of = Where(EQUAL(s, 0.0), 1, Number(math.inf), s, "since the scale is stored as 0")
        yield ProgramLine(
            "divisor", of, dtype, "a scale stored as 0 gives the codes of 0", c.source("zero_scale")
        )
        s = DIVISOR
    if storage.min_divisor:
        why = "the smallest divisor"
        yield ProgramLine("divisor", MAXIMUM(s, storage.min_divisor), dtype, why, c.source("min_divisor"))
        s = DIVISOR
    if storage.e8m0_min_as:
        of = Where(EQUAL(s, _LEAST_STORED), 1, Number(storage.e8m0_min_as), s, "since s is 2^-127")
        yield ProgramLine("divisor", of, dtype, "the smallest scale", c.source("e8m0_min_as"))
        s = DIVISOR


def to_value(c: Convention, decoding: str, small: bool = False) -> Iterator[ProgramLine]:
    """Compute x̂ from q; see `value_program`."""
    dtype, last = (DTYPE[name] for name in (c.decoding.decoding_dtype, c.decoding.value_dtype))
    # in float32 one line of a trace, else one for each result that is rounded
    steps = chain(DECODINGS[decoding]) if dtype in HALF else ()
    for at, step in enumerate(steps):
        of = step.operation(Name("x̂") if at else step.operands[0], *step.operands[1:])
        exact = small and decoding == "scaled" and not at
        yield ProgramLine("x̂", of, None if exact else dtype, "", c.source("decoding"))
    if not steps:
        yield ProgramLine("x̂", DECODINGS[decoding], dtype, "", c.source("decoding"))
    if last not in (dtype, torch.float32):
        yield ProgramLine("x̂", Name("x̂"), last, "the value is cast", c.source("value_dtype"))
