"""Between float32 and the bit patterns of a small float, exactly and in a few passes.

Encoding divides by the power of two below each number, so that the format's mantissa is a whole number
to be rounded; the pattern is that number plus the exponent field, and a carry runs into the next
exponent by itself. Decoding is a look-up in the `table` of every code.
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
_LEAST_OF_SUMS = -100  # where numbers are smaller, 2^-23 of what decides might be no normal number
_SYMMETRIC = (half_even, half_even_of_sum, half_away_of_sum)  # rules that treat a number as its negative
_CASTS = (
    (FloatLayout(4, 3, nan="all_ones"), torch.float8_e4m3fn),
    (FloatLayout(5, 2, infinities=True, nan="ieee"), torch.float8_e5m2),
)


@lru_cache(maxsize=64)
def table(layout: FloatLayout) -> Tensor:
    """Return the value of every code, float32, (2^bits,); shared, so not to be written to."""
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


def encode_(work: Tensor, out: Tensor, layout: FloatLayout, rule: Rounding = half_even) -> Tensor:
    """Write the codes of ``work``, float32 and contiguous, into ``out``; ``work`` is used up."""
    if rule is half_even_of_sum:
        below_half = BELOW_HALF * 2.0 ** (layout.lowest_exponent - layout.mantissa)
        if not takes_sum(torch.abs(work, out=like(work, "magnitude")), below_half):
            rule = half_even
    if rule is half_even and _cast(work, out, layout):
        return out
    sign = _sign(work, layout)
    if layout.sign == "dropped":
        work.abs_()
    odd = work.clone() if _has_odd(work, layout) else None
    if rule in _SYMMETRIC:
        work.abs_()
    by_sums = rule is half_even and layout.lowest_exponent > _LEAST_OF_SUMS
    codes = _patterns_of_sums(work, layout) if by_sums else _patterns(work, layout, rule)
    if odd is not None:
        _settle(odd, codes, layout, rule)
    if sign is not None:
        if layout.nan == "negative_zero":  # a zero takes no sign
            sign.mul_(codes.clamp(max=1))
        if odd is not None:  # nor does a NaN that has the pattern of -0
            sign.masked_fill_(codes == layout.sign_bit, 0)
        codes.sub_(sign, alpha=layout.sign_bit)
    return out.copy_(codes)


def _cast(work: Tensor, out: Tensor, layout: FloatLayout) -> bool:
    """Whether a type of torch's has these codes, in whose cast they come in a third of the time: then do it.

    Not of NaN, whose pattern differs.
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
    """Whether the numbers of ``layout``, times a power of two, are the lowest of ``base``, in the same order."""
    narrower = layout.exponent < base.exponent and layout.mantissa == base.mantissa
    same_rules = (
        layout.saturate and layout.subnormals and layout.sign == "bit" and layout.nan != "negative_zero"
    )
    return vars(base) == vars(layout) or (narrower and same_rules)


def _has_odd(work: Tensor, layout: FloatLayout) -> bool:
    """Whether some number needs a second look; if saturating is all they need, do it here, in place."""
    most = float(table(layout)[layout.top])
    if layout.saturate and layout.sign == "bit":  # to clamp what need not be takes less time than to look
        return bool(work.clamp_(-most, most).amax().isnan())
    low, high = (float(end) for end in work.aminmax())
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
    """-1 for the elements with a sign, -0 too, int32; None where the format has none."""
    if not layout.sign_bit:
        return None
    return torch.bitwise_right_shift(work.view(torch.int32), 31, out=like(work, "sign", torch.int32))


def _patterns_of_sums(work: Tensor, layout: FloatLayout) -> Tensor:
    """`_patterns` of magnitudes, rounded half to even by adding: they are brought to the last bits of a sum.

    What is added is the power of two below each, times 2^(23 - mantissa); both are left divided by that factor.
    """
    width = _MANTISSA - layout.mantissa
    power = _power(work, layout.lowest_exponent)
    total = torch.add(power, work, alpha=2.0**-width, out=work).view(torch.int32)
    field = torch.bitwise_right_shift(power.view(torch.int32), width, out=power.view(torch.int32))
    codes = total.add_(field, alpha=1 - (1 << width))  # less the power itself, which is field·2^width
    return _without_bias(codes, layout)


def _power(work: Tensor, least: int) -> Tensor:
    """The power of two below each magnitude, but at least 2^``least``; of what is not finite infinity."""
    mask = torch.tensor(_EXPONENT, dtype=torch.int32, device=work.device)
    power = torch.bitwise_and(work.view(torch.int32), mask, out=like(work, "power", torch.int32))
    return power.view(torch.float32).clamp_min_(2.0**least)


def _without_bias(codes: Tensor, layout: FloatLayout) -> Tensor:
    """Take off, in place, the exponent that patterns begin with, and the leading 1 that they leave out."""
    codes.sub_((layout.lowest_exponent + _BIAS + (not layout.subnormals)) << layout.mantissa)
    return codes if layout.subnormals else codes.clamp_min_(0)


def _patterns(work: Tensor, layout: FloatLayout, rule: Rounding) -> Tensor:
    """Round ``work`` to patterns without a sign, int32; they run on above the format's largest."""
    lowest = layout.lowest_exponent
    # ml_dtypes and torch give e8m0 float32's exponent field, plus 1 if the mantissa is over its half; below
    # the normal numbers, where the mantissa has no leading 1, all beyond 2^-127 so come to 2^-126
    least = -126 if lowest == -127 and rule is half_even else lowest
    power = _power(work, least)
    width = _MANTISSA - layout.mantissa
    field = torch.bitwise_right_shift(power.view(torch.int32), width, out=like(work, "field", torch.int32))
    work.div_(power.mul_(2.0**-layout.mantissa))
    # of magnitudes to add ½ and cut off is the whole of that rule
    rounded = work.add_(0.5) if rule is half_away_of_sum else rule(work).abs_()
    codes = power.view(torch.int32).copy_(rounded)
    return _without_bias(codes.add_(field), layout)


def _settle(odd: Tensor, codes: Tensor, layout: FloatLayout, rule: Rounding) -> None:
    """Give what is beyond the format, no number, or has a sign too many its pattern, in place."""
    over = (codes > layout.top) | odd.isinf()
    beyond = layout.quiet_nan if layout.infinity is None else layout.infinity
    if layout.saturate:
        beyond = layout.top
    else:  # the largest number may be as far as the rule goes
        below, above = overflow_stays(rule)
        stays = over & odd.isfinite() & (((odd < 0) & below) | ((odd > 0) & above))
        codes.masked_fill_(stays, layout.top)
        over &= ~stays
    codes.masked_fill_(over, beyond)
    if layout.sign == "nan":
        codes.masked_fill_(odd < 0 if layout.subnormals else odd <= 0, layout.quiet_nan)
    codes.masked_fill_(odd.isnan(), layout.quiet_nan)
