"""Likely errors in predicting a code, a scale or a zero point, each with the wrong answer it gives.

A wrong step that gives the right answer anyway is left out.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import PER_TENSOR, block_bounds
from quantcore.numerics import before_rounding
from quantcore.qparams import choose_qparams, wrap
from quantcore.quantization import Quantized
from quantcore.range_setting import MIN_MAX
from quantcore.tracing import Trace, number, scale_formula, signed

MAX_BLOCKS = 4096  # blocks whose parameters are tried in place of the right one's


class LikelyError(NamedTuple):
    """One wrong step: its kind, the answer it gives, and the sentence that explains it."""

    kind: str
    value: float
    sentence: str


LikelyErrors = Iterator[LikelyError]


def wrong_codes(t: Trace, result: Quantized) -> LikelyErrors:
    """Yield the codes that one wrong step gives."""
    for error in (*_wrong_roundings(t), *_wrong_zero_points_in(t), *_out_of_range(t), *_others(t, result)):
        if math.isfinite(error.value) and error.value != t.code:
            yield error


def _integers(t: Trace) -> IntFormat:
    assert isinstance(t.scheme.format, IntFormat)  # `grade` rejects other formats
    return t.scheme.format


def _fit(value: float, t: Trace) -> float:
    """The value clamped or wrapped as the scheme does."""
    fmt = _integers(t)
    if not math.isfinite(value):
        return math.nan
    if t.scheme.convention.coding.overflow == "wrap":
        return float(wrap(torch.tensor(value, dtype=torch.float64), fmt))
    return float(min(max(value, fmt.qmin), fmt.qmax))


def _wrong_roundings(t: Trace) -> LikelyErrors:
    v = t.quotient if t.summed is None else t.summed
    offset = t.zero_point if t.summed is None else 0.0
    if not math.isfinite(v):
        return
    nearest = f"the scheme rounds it to {number(t.rounded)}"
    tries = [
        (math.trunc(v), f"{number(v)} was truncated to {math.trunc(v)}; {nearest}."),
        (math.floor(v), f"{number(v)} was rounded down to {math.floor(v)}; {nearest}."),
        (math.ceil(v), f"{number(v)} was rounded up to {math.ceil(v)}; {nearest}."),
    ]
    if v - math.floor(v) == 0.5:
        tie = f"{number(v)} is a tie: {nearest}, not {{}}."
        tries = [(integer, tie.format(integer)) for integer in (math.floor(v), math.ceil(v))]
    for integer, sentence in tries:
        yield LikelyError("rounding", _fit(integer + offset, t), sentence)


def _wrong_zero_points_in(t: Trace) -> LikelyErrors:
    """The zero point with the wrong sign, or left out."""
    if not t.zero_point:
        return
    nearest = t.rounded if t.summed is None else round(t.quotient)
    z, right_sum = signed(t.zero_point), f"{number(nearest)} + {signed(t.zero_point)}"
    sign = f"The zero point {z} was subtracted; it must be added: {right_sum}."
    # whoever makes this error may leave out the clamp too
    for value in (_fit(nearest - t.zero_point, t), nearest - t.zero_point):
        yield LikelyError("sign of zero point", value, sign)
    for value in (_fit(nearest, t), nearest):
        yield LikelyError("zero point forgotten", value, f"The zero point {z} is missing: {right_sum}.")


def _out_of_range(t: Trace) -> LikelyErrors:
    """Wrong handling of a value that does not fit the format."""
    fmt = _integers(t)
    if not math.isfinite(t.shifted):
        return
    before, clamped = number(t.shifted), min(max(t.shifted, fmt.qmin), fmt.qmax)
    wrapped = float(wrap(torch.tensor(t.shifted, dtype=torch.float64), fmt))
    outside = f"{before} is outside {fmt.qmin}..{fmt.qmax}"
    yield LikelyError("not clamped", t.shifted, f"{outside}, so the code must be {t.code}.")
    yield LikelyError(
        "wrapped", wrapped, f"{outside}. This scheme clamps it to {number(clamped)}; it does not wrap."
    )
    yield LikelyError("clamped", clamped, f"{outside}. This scheme wraps it to {number(wrapped)}.")
    other = dataclasses.replace(fmt, signed=not fmt.signed)
    sentence = (
        f"That is clamped to {other.qmin}..{other.qmax}, the codes of {other}; "
        f"the codes of {fmt} are {fmt.qmin}..{fmt.qmax}."
    )
    yield LikelyError("codes of another format", min(max(t.shifted, other.qmin), other.qmax), sentence)


def _others(t: Trace, result: Quantized) -> LikelyErrors:
    z = t.zero_point
    yield LikelyError("sign of x", _code(-t.quotient, z, t), f"The sign is wrong: x is {number(t.x)}.")
    product = f"x was multiplied by s; it must be divided: {number(t.x)} / {number(t.scale)}."
    yield LikelyError("multiplied", _code(t.x * t.scale, z, t), product)
    yield LikelyError("not scaled", _code(t.x, z, t), f"x was not divided by the scale {number(t.scale)}.")
    if 1 < result.scale.numel() <= MAX_BLOCKS:
        grid = result.scale.shape
        places = [tuple(int(i) for i in p) for p in torch.ones(grid).nonzero()]
        for place in sorted(places, key=lambda p: sum(abs(a - b) for a, b in zip(p, t.block, strict=True))):
            scale, zero = float(result.scale[place]), float(result.params.zero_point[place])
            sentence = (
                f"That uses the scale {number(scale)} of block {place}; "
                f"this is block {t.block}, whose scale is {number(t.scale)}."
            )
            yield LikelyError("another block", _code(t.x / scale if scale else math.inf, zero, t), sentence)


def _code(quotient: float, zero_point: float, t: Trace) -> float:
    return _fit(round(quotient) + zero_point, t) if math.isfinite(quotient) else math.nan


def wrong_scales(t: Trace, result: Quantized, block: tuple[int, ...]) -> LikelyErrors:
    """Yield the scales that one wrong step gives; ``t`` traces any element of the block."""
    for error in (*_other_schemes(t, result, block), *_other_divisors(t, result, block)):
        if math.isfinite(error.value) and error.value != t.scale:
            yield error


def _elements(result: Quantized, block: tuple[int, ...]) -> torch.Tensor:
    bounds = block_bounds(result.blocked_shape, result.block, block)
    return result.x.reshape(result.blocked_shape)[tuple(slice(*b) for b in bounds)]


def _other_schemes(t: Trace, result: Quantized, block: tuple[int, ...]) -> LikelyErrors:
    """The scale of another scheme, of the whole tensor, or of another block."""
    scheme, fmt = result.scheme, _integers(t)
    own, how = _elements(result, block), f"It is {scale_formula(t)}."
    kind = "symmetric" if scheme.symmetric else "asymmetric"
    tries: list[tuple[torch.Tensor, dict[str, Any], str, str]] = [
        (own, {"symmetric": not scheme.symmetric}, "symmetry", f"This scheme is {kind}."),
        (own, {"range_setting": MIN_MAX}, "range", "That uses the range from min to max."),
        (result.x, {}, "another block", "That is the scale of the whole tensor, not of this block."),
        (own, {"format": dataclasses.replace(fmt, signed=not fmt.signed)}, "codes of another format",
         f"{fmt} has the codes {fmt.qmin}..{fmt.qmax}."),
    ]  # fmt: skip
    for x, changes, wrong, sentence in tries:
        other = dataclasses.replace(scheme, granularity=PER_TENSOR, scales=None, **changes)
        try:
            scale = choose_qparams(x, other).scale
        except QuantError:  # the library or the range setting does not support it
            continue
        yield LikelyError(wrong, float(scale.flatten()[0]), f"{sentence} {how}")
    if 1 < result.scale.numel() <= MAX_BLOCKS:
        for scale in result.scale.flatten().tolist():
            yield LikelyError("another block", scale, f"That is the scale of another block. {how}")


def _other_divisors(t: Trace, result: Quantized, block: tuple[int, ...]) -> LikelyErrors:
    fmt, own, how = _integers(t), _elements(result, block), f"It is {scale_formula(t)}."
    low, high = float(own.min()), float(own.max())
    size, span, codes = max(abs(low), abs(high)), high - low, 1 << fmt.bits
    if t.scheme.symmetric:
        half, divisor = codes // 2, codes // 2 - 1
        above = number(fmt.qmax - t.zero_point)
        yield LikelyError(
            "divisor", size / half, f"Divided by {half}; the highest code is the zero point + {above}. {how}"
        )
        yield LikelyError(
            "divisor", size / (codes - 1), f"max|x| covers half of the codes, not all of them. {how}"
        )
        if -low > high:
            yield LikelyError(
                "absolute value", high / divisor, f"max x was used, but |{number(low)}| is larger. {how}"
            )
    else:
        yield LikelyError(
            "divisor", span / codes, f"{codes} codes have {codes - 1} steps between them. {how}"
        )
        yield LikelyError("low forgotten", high / (codes - 1), f"The range starts at low, not at 0. {how}")
        yield LikelyError(
            "sign of low", (high + low) / (codes - 1), f"low must be subtracted from high, not added. {how}"
        )
        if not low <= 0 <= high:
            yield LikelyError(
                "zero left out", span / (codes - 1), f"The range is widened to include 0. {how}"
            )
    yield LikelyError("inverse", 1 / t.scale, f"That is 1 / s, the number of steps per unit of x. {how}")
    for value in (size, span):
        yield LikelyError("not divided", value, f"The range must be divided into steps. {how}")
    for factor in (10, 0.1):
        yield LikelyError("decimal point", t.scale * factor, f"The decimal point is off by one place. {how}")


def wrong_zero_points(t: Trace) -> LikelyErrors:
    """Yield the zero points that one wrong step gives."""
    for error in _zero_points_by_one_error(t):
        if math.isfinite(error.value) and error.value != t.zero_point:
            yield error


def _zero_points_by_one_error(t: Trace) -> LikelyErrors:
    fmt = _integers(t)
    middle = (
        "Symmetric codes are centered on 0"
        if fmt.signed
        else f"Symmetric unsigned codes are centered on {fmt.middle}"
    )
    if t.scheme.symmetric:
        sentence = f"{middle}: the zero point is {number(t.zero_point)}."
        yield LikelyError("symmetry", 0 if t.zero_point else 1 << (fmt.bits - 1), sentence)
    if t.low is None or not t.scale:
        return
    steps = _low_in_steps(t, t.low)
    how = f"It is qmin - round(low / s) = {fmt.qmin} - round({before_rounding(steps)})."
    if not t.scheme.symmetric:
        yield LikelyError(
            "sign of low", _clamp(fmt.qmin + round(steps), fmt), f"low / s must be subtracted. {how}"
        )
        yield LikelyError("sign of low", fmt.qmin + round(steps), f"low / s must be subtracted. {how}")
        for integer in (math.floor(steps), math.ceil(steps)):
            sentence = f"{before_rounding(steps)} was rounded to {integer}. {how}"
            yield LikelyError("rounding", fmt.qmin - integer, sentence)
        yield LikelyError("not clamped", fmt.qmin - round(steps), f"It is clamped to {fmt.qmin}..{fmt.qmax}.")
    for value in (-round(steps), round(steps)):
        yield LikelyError("lowest code forgotten", value, f"low must get the lowest code, {fmt.qmin}. {how}")
    yield LikelyError("sign of zero point", -t.zero_point, f"The sign is wrong. {how}")
    other = dataclasses.replace(fmt, signed=not fmt.signed)
    moved = t.zero_point + other.qmin - fmt.qmin
    yield LikelyError("codes of another format", moved, f"That is the zero point of {other}. {how}")


def _low_in_steps(t: Trace, low: float) -> float:
    """low / s in the library's precision, with s before it is stored."""
    precision = getattr(torch, t.scheme.convention.zero_point.zero_point_precision)
    scale = t.scale if t.raw_scale is None else t.raw_scale
    return float(torch.tensor(low, dtype=precision) / torch.tensor(scale, dtype=precision))


def _clamp(value: float, fmt: IntFormat) -> float:
    return min(max(value, fmt.qmin), fmt.qmax)
