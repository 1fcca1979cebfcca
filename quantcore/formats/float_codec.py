"""Conversion between float32 and the bit patterns of a small float, exact and in a few passes.

Encoding divides each number by the power of two just below it, so that rounding to an integer gives the
mantissa. The pattern is that integer plus the exponent field, and a carry increments the exponent. Decoding
is a look-up in the `table` of all codes.
"""

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from quantcore.formats.float_layout import FloatLayout
from quantcore.numerics import (
    BELOW_HALF,
    Rounding,
    half_away_of_sum,
    half_even,
    half_even_of_sum,
    like,
    overflow_stays,
    takes_sum,
)

_EXPONENT, _MANTISSA, _BIAS = 0x7F800000, 23, 127  # of float32: the exponent's bits, the mantissa's width
_LEAST_OF_SUMS = -100  # for smaller exponents, 2^-23 times the deciding digit may be subnormal
_SYMMETRIC = (half_even, half_even_of_sum, half_away_of_sum)  # rules that are symmetric in the sign
_CASTS = (
    (FloatLayout(4, 3, nan="all_ones"), torch.float8_e4m3fn),
    (FloatLayout(5, 2, infinities=True, nan="ieee"), torch.float8_e5m2),
)


@lru_cache(maxsize=64)
def table(layout: FloatLayout) -> Tensor:
    """Return the value of every code, float32, (2^bits,); shared: do not write to it."""
    codes = np.arange(1 << layout.bits)
    pattern = codes & ~layout.sign_bit
    field, mantissa = pattern >> layout.mantissa, pattern & ((1 << layout.mantissa) - 1)
    normal = (field > 0) | (not layout.subnormals)
    significand = mantissa + (normal << layout.mantissa)
    power = np.maximum(field, int(layout.subnormals)) - layout.bias - layout.mantissa
    values = np.ldexp(significand.astype(np.float64), power)
    values[pattern > layout.top] = math.nan
    if layout.infinity is not None:
        values[pattern == layout.infinity] = math.inf
    if layout.sign_bit:
        values = np.copysign(values, np.where(codes & layout.sign_bit, -1.0, 1.0))
    if layout.nan == "negative_zero":
        values[layout.sign_bit] = math.nan
    return torch.from_numpy(values.astype(np.float32))


@lru_cache(maxsize=64)
def finite_values(layout: FloatLayout) -> Tensor:
    """Return the distinct finite values of `table` in ascending order; shared: do not write to it."""
    values = table(layout).numpy()
    return torch.from_numpy(np.unique(values[np.isfinite(values)] + np.float32(0.0)))  # -0 + 0 is 0


def encode_(work: Tensor, out: Tensor, layout: FloatLayout, rule: Rounding = half_even) -> Tensor:
    """Write the codes of ``work``, float32 and contiguous, into ``out``; ``work`` is overwritten."""
    if rule is half_even_of_sum:
        below_half = BELOW_HALF * 2.0 ** (layout.lowest_exponent - layout.mantissa)
        if not takes_sum(torch.abs(work, out=like(work, "magnitude")), below_half):
            rule = half_even
    if rule is half_even and _cast(work, out, layout):
        return out
    sign = _sign(work, layout)
    if layout.sign == "dropped":
        work.abs_()
    nonfinite = work.clone() if _has_nonfinite(work, layout) else None
    if rule in _SYMMETRIC:
        work.abs_()
    by_sums = rule is half_even and layout.lowest_exponent > _LEAST_OF_SUMS
    codes = _patterns_of_sums(work, layout) if by_sums else _patterns(work, layout, rule)
    if nonfinite is not None:
        _resolve(nonfinite, codes, layout, rule)
    if sign is not None:
        if layout.nan == "negative_zero":  # zero has no sign
            sign.mul_(codes.clamp(max=1))
        if nonfinite is not None:  # and neither does a NaN with the pattern of -0
            sign.masked_fill_(codes == layout.sign_bit, 0)
        codes.sub_(sign, alpha=layout.sign_bit)
    return out.copy_(codes)


def round_(work: Tensor, layout: FloatLayout, rule: Rounding = half_even) -> bool:
    """Round float32 numbers in place to the values of their codes; return whether this can do it.

    To add 1.5 times the power of two whose last bit is the mantissa's last rounds half to even.
    """
    most, width = float(table(layout)[layout.top]), _MANTISSA - layout.mantissa
    usual = layout.saturate and layout.subnormals and layout.sign == "bit" and width > 1
    sums_are_normal = layout.lowest_exponent > _LEAST_OF_SUMS and most * 2.0**width <= 2.0**126
    if not usual or rule is not half_even or not sums_are_normal:
        return False
    if bool(work.clamp_(-most, most).amax().isnan()):
        return False
    power = _power(work, layout.lowest_exponent).mul_(1.5 * 2.0**width)
    work.add_(power).sub_(power)
    return True


def _cast(work: Tensor, out: Tensor, layout: FloatLayout) -> bool:
    """Encode with torch's cast, in a third of the time, if a dtype has these codes; return whether it did.

    Not used for NaN, whose pattern differs.
    """
    base, kind = next((pair for pair in _CASTS if _holds(pair[0], layout)), (layout, None))
    if kind is None or work.device.type != "cpu" or bool(work.amax().isnan()):
        return False
    most = float(table(layout)[layout.top])
    out.view(kind).copy_(
        work.clamp_(-most, most).mul_(2.0 ** (base.lowest_exponent - layout.lowest_exponent))
    )
    if layout.bits < base.bits:
        sign = out.bitwise_right_shift(base.bits - layout.bits).bitwise_and_(layout.sign_bit)
        out.bitwise_and_(layout.sign_bit - 1).bitwise_or_(sign)
    return True


def _holds(base: FloatLayout, layout: FloatLayout) -> bool:
    """Return whether the numbers times a power of two are the lowest of ``base``, in the same order."""
    narrower = layout.exponent < base.exponent and layout.mantissa == base.mantissa
    same_rules = (
        layout.saturate and layout.subnormals and layout.sign == "bit" and layout.nan != "negative_zero"
    )
    return vars(base) == vars(layout) or (narrower and same_rules)


def _has_nonfinite(work: Tensor, layout: FloatLayout) -> bool:
    """Return whether some numbers need `_resolve`; if it is enough to saturate, do so here, in place."""
    most = float(table(layout)[layout.top])
    if layout.saturate and layout.sign == "bit":  # clamping needlessly is faster than checking
        return bool(work.clamp_(-most, most).amax().isnan())
    low, high = (float(bound) for bound in work.aminmax())
    least = -most if layout.sign == "bit" else 0.0
    if layout.sign == "nan" and not (low > 0 or (low == 0 and layout.subnormals)):
        return True
    if least <= low and high <= most:
        return False
    if layout.saturate and not (math.isnan(low) or math.isnan(high)):
        work.clamp_(-most, most)
        return False
    return True


def _sign(work: Tensor, layout: FloatLayout) -> Tensor | None:
    """Return -1 for elements with the sign bit set (-0 too), else 0, int32; None without a sign bit."""
    if not layout.sign_bit:
        return None
    return torch.bitwise_right_shift(work.view(torch.int32), 31, out=like(work, "sign", torch.int32))


def _patterns_of_sums(work: Tensor, layout: FloatLayout) -> Tensor:
    """`_patterns` of magnitudes, rounded half to even by a sum into whose last bits they are shifted.

    The addend is the power of two just below each, times 2^(23 - mantissa); both terms are divided by that
    factor.
    """
    width = _MANTISSA - layout.mantissa
    power = _power(work, layout.lowest_exponent)
    total = torch.add(power, work, alpha=2.0**-width, out=work).view(torch.int32)
    field = torch.bitwise_right_shift(power.view(torch.int32), width, out=power.view(torch.int32))
    codes = total.add_(field, alpha=1 - (1 << width))  # minus the power itself, which is field·2^width
    return _without_bias(codes, layout)


def _power(work: Tensor, least: int) -> Tensor:
    """Return the power of two just below each magnitude, at least 2^``least``; infinity if non-finite."""
    mask = torch.tensor(_EXPONENT, dtype=torch.int32, device=work.device)
    power = torch.bitwise_and(work.view(torch.int32), mask, out=like(work, "power", torch.int32))
    return power.view(torch.float32).clamp_min_(2.0**least)


def _without_bias(codes: Tensor, layout: FloatLayout) -> Tensor:
    """Subtract, in place, the exponent of pattern 0 and the implicit leading 1."""
    codes.sub_((layout.lowest_exponent + _BIAS + (not layout.subnormals)) << layout.mantissa)
    return codes if layout.subnormals else codes.clamp_min_(0)


def _patterns(work: Tensor, layout: FloatLayout, rule: Rounding) -> Tensor:
    """Round ``work`` to patterns without a sign, int32; they may exceed the format's largest."""
    lowest = layout.lowest_exponent
    # ml_dtypes and torch give e8m0 float32's exponent field, plus 1 if the mantissa is over half; for
    # subnormals, whose mantissa has no leading 1, everything above 2^-127 thus becomes 2^-126
    least = -126 if lowest == -127 and rule is half_even else lowest
    power = _power(work, least)
    width = _MANTISSA - layout.mantissa
    field = torch.bitwise_right_shift(power.view(torch.int32), width, out=like(work, "field", torch.int32))
    work.div_(power.mul_(2.0**-layout.mantissa))
    # for magnitudes, that rule means adding ½ and truncating
    rounded = work.add_(0.5) if rule is half_away_of_sum else rule(work).abs_()
    codes = power.view(torch.int32).copy_(rounded)
    return _without_bias(codes.add_(field), layout)


def _resolve(nonfinite: Tensor, codes: Tensor, layout: FloatLayout, rule: Rounding) -> None:
    """Set the patterns of numbers beyond the format, NaN, and negatives without a sign bit, in place."""
    over = (codes > layout.top) | nonfinite.isinf()
    beyond = layout.quiet_nan if layout.infinity is None else layout.infinity
    if layout.saturate:
        beyond = layout.top
    else:  # the rule may never round beyond the largest number
        below, above = overflow_stays(rule)
        stays = over & nonfinite.isfinite() & (((nonfinite < 0) & below) | ((nonfinite > 0) & above))
        codes.masked_fill_(stays, layout.top)
        over &= ~stays
    codes.masked_fill_(over, beyond)
    if layout.sign == "nan":
        codes.masked_fill_(nonfinite < 0 if layout.subnormals else nonfinite <= 0, layout.quiet_nan)
    codes.masked_fill_(nonfinite.isnan(), layout.quiet_nan)
