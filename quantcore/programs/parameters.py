"""The program of a scheme's parameters: the range, the scale, the zero point, each from lines before it."""

from collections.abc import Iterator
from functools import lru_cache

import torch

from quantcore.conventions import (
    AMAX,
    HIGH,
    INVERSE,
    LOW,
    OF_RANGE,
    SPLIT,
    WIDTH,
    ZERO_POINTS,
    Convention,
    N,
    middle_of,
)
from quantcore.expressions import (
    CLAMP,
    IS_FINITE,
    IS_INFINITE,
    IS_NAN,
    LESS,
    MAGNITUDE,
    MAXIMUM,
    MINIMUM,
    NEGATIVE,
    Expression,
    Name,
    Number,
    Where,
    renamed,
    written,
)
from quantcore.formats import Format
from quantcore.numerics import decimal
from quantcore.programs.elements import DTYPE
from quantcore.programs.libraries import aimet, hqq, torchao
from quantcore.programs.record import Program, ProgramLine
from quantcore.scheme import Scheme

# raw: the scale as the range gives it; replaced: whether it is too small
RAW, REPLACED, Z = Name("raw"), Name("replaced"), Name("z")


def range_program(scheme: Scheme) -> Program:
    """Return what a scheme's library computes from the range of a block: its scale and zero point."""
    found: Program | None = scheme.kept.get("range_program")
    if found is None:  # finding it by its parts takes longer than running it on a small tensor
        found = parameters_program(scheme.symmetric, scheme.format, scheme.rules)
        scheme.kept["range_program"] = found
    return found


@lru_cache(maxsize=1024)
def parameters_program(symmetric: bool, fmt: Format, c: Convention) -> Program:
    """`range_program` of a scheme's parts; ``c``: the convention for its granularity."""
    lines = [] if symmetric and _of_magnitude(fmt, c) else [*_range(symmetric, fmt, c)]
    lines += _symmetric_scale(fmt, c) if symmetric else _scale(c)
    lines += _replaced(c)
    lines += _middle(fmt, c) if symmetric else _zero_point(fmt, c)
    is_code = symmetric or not (c.zero_point.is_value or c.scale.asymmetric_scale == "inverse_range")
    parts = fmt.available - 1 if symmetric else c.scale.parts(fmt)
    constants = {"N": float(parts), "qmin": float(fmt.qmin), "middle": middle_of(fmt)}
    return Program(lines, ("low", "high"), constants, ("z",) if is_code else ())


def _of_magnitude(fmt: Format, c: Convention) -> bool:
    """Whether only max|x| of a range is read, which is the same with 0 in the range."""
    rule, changes = c.scale.rule(fmt, c.range.finite_range), c.range.widen_to_eps or c.range.finite_range
    return rule.scale.names == {"max|x|"} and rule.step is None and rule.low is not LOW and not changes


def _range(symmetric: bool, fmt: Format, c: Convention) -> Iterator[ProgramLine]:
    dtype, source = DTYPE[c.scale.scale_precision], c.source("zero_in_range")
    low: Expression = LOW if c.range.zero_in_range == "no" else MINIMUM(LOW, 0.0)
    high: Expression = MAXIMUM(HIGH, 0.0) if c.range.zero_in_range == "both" else HIGH
    yield ProgramLine("low", low, dtype, "" if low is LOW else "the range includes 0", source)
    yield ProgramLine("high", high, dtype, "" if high is HIGH else "the range includes 0", source)
    if c.range.widen_to_eps:
        yield from aimet.widened(symmetric, fmt.available - 1, c.scale.eps, dtype)
    if c.range.finite_range:
        yield from aimet.finite(dtype)


def _symmetric_scale(fmt: Format, c: Convention) -> Iterator[ProgramLine]:
    """Compute the scale of the largest magnitude, and the range that it is for."""
    dtype, rule = DTYPE[c.scale.scale_precision], c.scale.rule(fmt, c.range.finite_range)
    yield ProgramLine("max|x|", MAXIMUM(MAGNITUDE(LOW), MAGNITUDE(HIGH)), dtype)
    if c.range.min_range and not c.scale.is_power:
        yield ProgramLine(
            "max|x|",
            MAXIMUM(AMAX, c.range.min_range),
            DTYPE.get(c.range.width_dtype, dtype),
            "the smallest range",
            c.source("min_range"),
        )
    if "extreme" in rule.scale.names:
        yield ProgramLine(
            "extreme",
            Where(LESS(NEGATIVE(LOW), HIGH), 1, HIGH, LOW),
            dtype,
            "the end of the largest magnitude",
        )
    if rule.step is not None:
        yield from aimet.on_grid(rule, dtype)
    else:
        yield ProgramLine("raw", rule.scale, dtype, rule.note, c.source("symmetric_scale"))
        if rule.low is not LOW:
            yield ProgramLine("low", rule.low, dtype, "the range of the symmetric codes")
            yield ProgramLine("high", rule.high, dtype, "the range of the symmetric codes")
    if c.scale.inverse == "of_range":
        yield ProgramLine("max|x|", HIGH, dtype)
        why, source = "1/s is computed from the range, not from s", c.source("inverse")
        inverse = c.scale.inverse_of_range(fmt)
        yield ProgramLine("1/s", inverse, dtype, why, source)
        if c.scale.bad_inverse == "one":
            note = f"since {written(inverse)} is not finite"
            finite = Where(IS_FINITE(INVERSE), 0, Number(1.0), INVERSE, note)
            yield ProgramLine("1/s", finite, dtype, "1 if it is not finite", c.source("bad_inverse"))


def _scale(c: Convention) -> Iterator[ProgramLine]:
    """Compute the scale of the range."""
    dtype, least = DTYPE[c.scale.scale_precision], c.range.min_range
    of_width = DTYPE.get(c.range.width_dtype, dtype)
    if c.scale.asymmetric_scale == "inverse_range":
        yield from hqq.scales(dtype)
        return
    if least:
        note = f"since high - low is less than {decimal(least)}"
        width = Where(LESS(WIDTH, least), 1, Number(least), WIDTH, note)
        yield ProgramLine("width", width, of_width, "the smallest range", c.source("min_range"))
    yield ProgramLine("raw", Name("width") / N if least else OF_RANGE, dtype)
    if c.scale.range_overflow == "split":
        yield ProgramLine("raw", Where(IS_INFINITE(RAW), 1, SPLIT, RAW), dtype, "high - low may overflow")


def _replaced(c: Convention) -> Iterator[ProgramLine]:
    """Replace a scale that is too small, and cast it."""
    dtype = DTYPE[c.scale.scale_dtype]
    eps, source = c.scale.eps, c.source("eps")
    yield ProgramLine("replaced", LESS(MAGNITUDE(RAW), eps), None, "the scale is too small", source)
    instead = Number(c.scale.eps_replacement)
    yield ProgramLine("s", Where(REPLACED, 1, instead, RAW) if eps else RAW, dtype, "", source)


def _middle(fmt: Format, c: Convention) -> Iterator[ProgramLine]:
    z = Number(c.zero_point.middle(fmt))
    yield ProgramLine("z", z, None, "symmetric", c.source("unsigned_symmetric_zero_point"))
    if c.zero_point.replaced_zero_point == "zero":
        yield _of_replaced(c, None)


def _zero_point(fmt: Format, c: Convention) -> Iterator[ProgramLine]:
    """Compute the zero point of a range."""
    rules, dtype = c.zero_point, DTYPE[c.scale.scale_precision]
    if rules.is_min:
        yield ProgramLine(
            "z", LOW, dtype, "the block's minimum is stored instead", c.source("zero_point_form")
        )
    elif rules.is_middle:
        yield torchao.zero_point(DTYPE[rules.zero_point_precision])
    elif c.scale.asymmetric_scale == "inverse_range":
        yield from hqq.zero_point(rules.float_form, dtype)
    else:
        dtype = DTYPE[rules.zero_point_precision]
        found, why = ZERO_POINTS[rules.zero_point_order], ""
        if rules.zero_point_scale == "raw":
            found, why = renamed(found, "s", RAW), "s before it is cast or replaced"
        yield ProgramLine("z", found, dtype, why, c.source("zero_point_order"))
        yield ProgramLine("z", CLAMP(Z, fmt.qmin, fmt.qmax), dtype, "it is a code")
        found = Where(IS_NAN(Z), 1, Number(rules.of_nan(fmt)), Z, "since low / s is NaN")
        yield ProgramLine("z", found, dtype, "NaN has no code", c.source("nan_zero_point"))
    if rules.replaced_zero_point != "computed":
        yield _of_replaced(c, dtype)


def _of_replaced(c: Convention, dtype: torch.dtype | None) -> ProgramLine:
    why = "the scale was replaced"
    return ProgramLine(
        "z", Where(REPLACED, 1, Number(0), Z, f"since {why}"), dtype, why, c.source("replaced_zero_point")
    )
