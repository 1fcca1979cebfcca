"""The usual mistakes, one record each: Match looks for them in codes, Predict in answers, the lessons explain them.

They stand in the order in which answers are explained by them.
"""

import math
from collections.abc import Callable

import torch

from quantcore.mistakes.cell import Cell
from quantcore.mistakes.record import Mistake, Values
from quantcore.numerics import before_rounding, rounding
from quantcore.qparams import wrap
from quantcore.range_setting import MIN_MAX
from quantcore.tracing import number, signed


def _rounded(rule: str, verb: str = "") -> Callable[[Cell], Values]:
    """The code with another rule for rounding; ``verb``: empty for rules that differ in ties only."""

    def values(c: Cell) -> Values:
        v, offset = (c.t.quotient, c.t.zero_point) if c.t.summed is None else (c.t.summed, 0.0)
        tie = math.isfinite(v) and v - math.floor(v) == 0.5
        if not math.isfinite(v) or not (tie or verb):
            return
        integer = int(rounding(rule)(torch.tensor([v], dtype=torch.float32)))
        nearest = f"the scheme rounds it to {number(c.t.rounded)}"
        said = f"is a tie: {nearest}, not {integer}" if tie else f"{verb} {integer}; {nearest}"
        yield c.fit(integer + offset), f"{number(v)} {said}."

    return values


def _low_rounded(rule: Callable[[float], int]) -> Callable[[Cell], Values]:
    """The zero point with low / s rounded in one direction."""

    def values(c: Cell) -> Values:
        if c.steps is not None and not c.t.scheme.symmetric:
            integer = rule(c.steps)
            said = f"{before_rounding(c.steps)} was rounded to {integer}. {c.how_zero_point}"
            yield c.fmt.qmin - integer, said

    return values


def _negated(c: Cell) -> Values:
    if c.t.zero_point:
        z = signed(c.t.zero_point)
        said = f"The zero point {z} was subtracted; it must be added: {number(c.nearest)} + {z}."
        # whoever makes this error may leave out the clamp too
        for value in (c.fit(c.nearest - c.t.zero_point), c.nearest - c.t.zero_point):
            yield value, said


def _negated_zero_point(c: Cell) -> Values:
    if c.steps is not None:
        yield -c.t.zero_point, f"The sign is wrong. {c.how_zero_point}"


def _left_out(symmetric: bool) -> Callable[[Cell], Values]:
    def values(c: Cell) -> Values:
        if c.t.zero_point and c.t.scheme.symmetric == symmetric:
            z = signed(c.t.zero_point)
            for value in (c.fit(c.nearest), c.nearest):
                yield value, f"The zero point {z} is missing: {number(c.nearest)} + {z}."

    return values


def _symmetry_of_scale(c: Cell) -> Values:
    symmetric = c.t.scheme.symmetric
    for scale in c.scale_with(c.elements, symmetric=not symmetric):
        yield scale, f"This scheme is {'symmetric' if symmetric else 'asymmetric'}. {c.how_scale}"


def _symmetry_of_zero_point(c: Cell) -> Values:
    if c.t.scheme.symmetric:
        middle = "Symmetric codes are centered on 0"
        if not c.fmt.signed:
            middle = f"Symmetric unsigned codes are centered on {c.fmt.middle}"
        yield 0 if c.t.zero_point else c.count // 2, f"{middle}: the zero point is {number(c.t.zero_point)}."


def _min_max(c: Cell) -> Values:
    for scale in c.scale_with(c.elements, range_setting=MIN_MAX):
        yield scale, f"That uses the range from min to max. {c.how_scale}"


def _whole_tensor(c: Cell) -> Values:
    for scale in c.scale_with(c.result.x):
        yield scale, f"That is the scale of the whole tensor, not of this block. {c.how_scale}"


def _sign_of_low_in_scale(c: Cell) -> Values:
    if not c.t.scheme.symmetric:
        yield sum(c.ends) / (c.count - 1), f"low must be subtracted from high, not added. {c.how_scale}"


def _sign_of_low(c: Cell) -> Values:
    if c.steps is not None and not c.t.scheme.symmetric:
        value = c.fmt.qmin + round(c.steps)
        for z in (c.clamped(value), value):
            yield z, f"low / s must be subtracted. {c.how_zero_point}"


def _unclamped(c: Cell) -> Values:
    if math.isfinite(c.t.shifted):
        yield c.t.shifted, f"{c.outside}, so the code must be {c.t.code}."


def _unclamped_zero_point(c: Cell) -> Values:
    if c.steps is not None and not c.t.scheme.symmetric:
        yield c.fmt.qmin - round(c.steps), f"It is clamped to {c.fmt.qmin}..{c.fmt.qmax}."


def _wrapped(c: Cell) -> Values:
    if math.isfinite(c.t.shifted):
        clamped = number(c.clamped(c.t.shifted))
        yield c.wrapped(c.t.shifted), f"{c.outside}. This scheme clamps it to {clamped}; it does not wrap."


def _saturated(c: Cell) -> Values:
    if math.isfinite(c.t.shifted):
        wrapped = number(c.wrapped(c.t.shifted))
        yield c.clamped(c.t.shifted), f"{c.outside}. This scheme wraps it to {wrapped}."


def _lowest_forgotten(c: Cell) -> Values:
    if c.steps is not None:
        for value in (-round(c.steps), round(c.steps)):
            yield value, f"low must get the lowest code, {c.fmt.qmin}. {c.how_zero_point}"


def _other_format(c: Cell) -> Values:
    if math.isfinite(c.t.shifted):
        yield min(max(c.t.shifted, c.other.qmin), c.other.qmax), (
            f"That is clamped to {c.other.qmin}..{c.other.qmax}, the codes of {c.other}; "
            f"the codes of {c.fmt} are {c.fmt.qmin}..{c.fmt.qmax}."
        )


def _scale_of_other_format(c: Cell) -> Values:
    for scale in c.scale_with(c.elements, format=c.other):
        yield scale, f"{c.fmt} has the codes {c.fmt.qmin}..{c.fmt.qmax}. {c.how_scale}"


def _zero_point_of_other_format(c: Cell) -> Values:
    if c.steps is not None:
        value = c.t.zero_point + c.other.qmin - c.fmt.qmin
        yield value, f"That is the zero point of {c.other}. {c.how_zero_point}"


def _sign_of_x(c: Cell) -> Values:
    yield c.code(-c.t.quotient), f"The sign is wrong: x is {number(c.t.x)}."


def _multiplied(c: Cell) -> Values:
    said = f"x was multiplied by s; it must be divided: {number(c.t.x)} / {number(c.t.scale)}."
    yield c.code(c.t.x * c.t.scale), said


def _not_scaled(c: Cell) -> Values:
    yield c.code(c.t.x), f"x was not divided by the scale {number(c.t.scale)}."


def _other_block(c: Cell) -> Values:
    for place, scale, zero_point in c.blocks():
        yield c.code(c.t.x / scale if scale else math.inf, zero_point), (
            f"That uses the scale {number(scale)} of block {place}; "
            f"this is block {c.t.block}, whose scale is {number(c.t.scale)}."
        )


def _scale_of_other_block(c: Cell) -> Values:
    for _, scale, _ in c.blocks():
        yield scale, f"That is the scale of another block. {c.how_scale}"


def _divisor(c: Cell) -> Values:
    if not c.t.scheme.symmetric:
        yield c.span / c.count, f"{c.count} codes have {c.count - 1} steps between them. {c.how_scale}"
        return
    above = number(c.fmt.qmax - c.t.zero_point)
    half = c.count // 2
    yield c.size / half, f"Divided by {half}; the highest code is the zero point + {above}. {c.how_scale}"
    yield c.size / (c.count - 1), f"max|x| covers half of the codes, not all of them. {c.how_scale}"


def _absolute_value(c: Cell) -> Values:
    low, high = c.ends
    if c.t.scheme.symmetric and -low > high:
        said = f"max x was used, but |{number(low)}| is larger. {c.how_scale}"
        yield high / (c.count // 2 - 1), said


def _low_forgotten(c: Cell) -> Values:
    if not c.t.scheme.symmetric:
        yield c.ends[1] / (c.count - 1), f"The range starts at low, not at 0. {c.how_scale}"


def _zero_left_out(c: Cell) -> Values:
    low, high = c.ends
    if not c.t.scheme.symmetric and not low <= 0 <= high:
        yield c.span / (c.count - 1), f"The range is widened to include 0. {c.how_scale}"


def _inverse(c: Cell) -> Values:
    yield 1 / c.t.scale, f"That is 1 / s, the number of steps per unit of x. {c.how_scale}"


def _not_divided(c: Cell) -> Values:
    for value in (c.size, c.span):
        yield value, f"The range must be divided into steps. {c.how_scale}"


def _decimal_point(c: Cell) -> Values:
    for factor in (10, 0.1):
        yield c.t.scale * factor, f"The decimal point is off by one place. {c.how_scale}"


def _narrow(c: Cell) -> Values:
    if math.isfinite(c.t.shifted) and c.fmt.signed and c.t.scheme.symmetric:
        said = f"The narrow range leaves out the lowest code, {c.fmt.qmin}; {c.fmt} has it."
        yield max(c.clamped(c.t.shifted), c.fmt.qmin + 1), said


_ALL = (
    Mistake(
        "symmetry", "symmetry", "range", lesson=("zero_point", "choose"),
        scale_of=_symmetry_of_scale, zero_point_of=_symmetry_of_zero_point,
    ),
    Mistake("min_max", "range", "range", lesson=("error", "clipping"), scale_of=_min_max),
    Mistake("whole_tensor", "another block", "block", lesson=("granularity", "rows"), scale_of=_whole_tensor),
    Mistake(
        "sign_of_low", "sign of low", "range", lesson=("zero_point", "asymmetric"),
        scale_of=_sign_of_low_in_scale, zero_point_of=_sign_of_low,
    ),
    Mistake(
        "toward_zero", "rounding", "rounding", "rounded toward zero", "Values are rounded toward zero",
        ("mistakes", "truncated"), {"rounding": "toward_zero"}, code_of=_rounded("toward_zero", "was truncated to"),
    ),
    Mistake(
        "floor", "rounding", "rounding", "rounded down", "Values are rounded down", ("mistakes", "truncated"),
        {"rounding": "floor"}, code_of=_rounded("floor", "was rounded down to"), zero_point_of=_low_rounded(math.floor),
    ),
    Mistake(
        "ceil", "rounding", "rounding", lesson=("scale", "code"),
        code_of=_rounded("ceil", "was rounded up to"), zero_point_of=_low_rounded(math.ceil),
    ),
    Mistake(
        "half_away", "rounding", "rounding", "ties rounded away from zero", "Ties are rounded away from zero",
        ("scale", "code"), choices={"rounding": "half_away"}, code_of=_rounded("half_away"),
    ),
    Mistake(
        "half_up", "rounding", "rounding", "ties rounded up", "Ties are rounded up", ("scale", "code"),
        choices={"rounding": "half_up"}, code_of=_rounded("half_up"),
    ),
    Mistake(
        "zero_point_negated", "sign of zero point", "zero point", "zero_point with the opposite sign",
        "The zero point has the opposite sign", ("zero_point", ""),
        zero_point=torch.neg, code_of=_negated, zero_point_of=_negated_zero_point,
    ),
    Mistake(
        "zero_point_left_out", "zero point forgotten", "zero point", "asymmetric scale, zero_point omitted",
        "The scale is asymmetric, but the zero point is omitted", ("mistakes", "zero-point-left-at-zero"),
        zero_point=torch.zeros_like, code_of=_left_out(symmetric=False),
    ),
    Mistake(
        "middle_left_out", "zero point forgotten", "zero point", "unsigned codes for a symmetric range, zero_point omitted",
        "The codes are unsigned, but the zero point that shifts a symmetric range is omitted",
        ("mistakes", "negatives-lost"), zero_point=torch.zeros_like, code_of=_left_out(symmetric=True),
    ),
    Mistake(
        "unclamped", "not clamped", "overflow", "not clamped: codes outside the format kept",
        "Codes are not clamped: some lie outside the format", ("mistakes", "cast-without-clamp"),
        fit=lambda values, fmt: values, code_of=_unclamped, zero_point_of=_unclamped_zero_point,
    ),
    Mistake(
        "wrapped", "wrapped", "overflow", "cast without a clamp: codes out of range wrapped around",
        "The cast has no clamp: codes out of range wrap around", ("mistakes", "cast-without-clamp"),
        {"overflow": "wrap"}, fit=lambda values, fmt: wrap(values, fmt).to(values.dtype), code_of=_wrapped,
    ),
    Mistake("saturated", "clamped", "overflow", lesson=("scale", "range"), code_of=_saturated),
    Mistake(
        "lowest_code_forgotten", "lowest code forgotten", "zero point", lesson=("zero_point", "asymmetric"), zero_point_of=_lowest_forgotten
    ),
    Mistake(
        "other_format", "codes of another format", "overflow", lesson=("mistakes", "clamp-of-another-type"),
        code_of=_other_format, scale_of=_scale_of_other_format, zero_point_of=_zero_point_of_other_format,
    ),
    Mistake("sign_of_x", "sign of x", "x", lesson=("scale", "code"), code_of=_sign_of_x),
    Mistake("multiplied", "multiplied", "x", lesson=("scale", "code"), code_of=_multiplied),
    Mistake("not_scaled", "not scaled", "x", lesson=("scale", "code"), code_of=_not_scaled),
    Mistake(
        "other_block", "another block", "block", lesson=("granularity", "rows"), code_of=_other_block, scale_of=_scale_of_other_block
    ),
    Mistake("divisor", "divisor", "scale", lesson=("scale", "bits"), scale_of=_divisor),
    Mistake(
        "absolute_value", "absolute value", "range", lesson=("zero_point", "symmetric"), scale_of=_absolute_value
    ),
    Mistake("low_forgotten", "low forgotten", "range", lesson=("zero_point", "asymmetric"), scale_of=_low_forgotten),
    Mistake("zero_left_out", "zero left out", "range", lesson=("zero_point", "zero"), scale_of=_zero_left_out),
    Mistake("inverse", "inverse", "scale", lesson=("scale", "marks"), scale_of=_inverse),
    Mistake("not_divided", "not divided", "scale", lesson=("scale", "marks"), scale_of=_not_divided),
    Mistake("decimal_point", "decimal point", "scale", scale_of=_decimal_point),
    Mistake(
        "other_axis", "another block", "block", "per-channel scales applied along the wrong axis",
        "The scales of one axis are applied along another", ("granularity", ""),
    ),
    Mistake(
        "narrow", "narrow range", "overflow", "clamped to the narrow range", "Codes are clamped to the narrow range",
        ("scale", "range"), fit=lambda values, fmt: values.clamp(fmt.qmin + 1, fmt.qmax), code_of=_narrow,
    ),
    Mistake(
        "scale_float16", "float16", "scale", "scale rounded to float16", "The scale is rounded to float16",
        ("mistakes", "scale-in-float16"), scale=lambda s: s.to(torch.float16).to(torch.float32),
    ),
    Mistake(
        "range_from_zero", "range", "range", "range 0 to max |x| instead of min to max",
        "The range goes from 0 to max |x| instead of min to max", ("mistakes", "range-without-minimum"),
    ),
    Mistake(
        "signed_percentile", "range", "range", "percentile of x instead of |x|", "The percentile is that of x instead of |x|",
        ("mistakes", "percentile-of-signed-values"),
    ),
    Mistake(
        "quantized_twice", "quantized twice", "x", "quantized twice, to 8 bits first",
        "The values were quantized twice, to 8 bits first", ("mistakes", "quantized-twice"),
    ),
)  # fmt: skip
MISTAKES = {mistake.name: mistake for mistake in _ALL}
