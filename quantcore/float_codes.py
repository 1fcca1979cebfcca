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

from quantcore.float_layout import FloatLayout
from quantcore.rounding import BELOW_HALF, Rounding, half_even, half_even_of_sum, overflow_stays, takes_sum
from quantcore.scratch import like

_EXPONENT, _MANTISSA, _BIAS = 0x7F800000, 23, 127  # of float32: the exponent's bits, the mantissa's width
_LEAST_OF_SUMS = -100  # where numbers are smaller, 2^-23 of what decides might be no normal number

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
    cast = _cast_of(work, layout) if rule is half_even else None
    if cast is not None:
        most = float(table(layout)[layout.top])
        out.view(cast).copy_(work.clamp_(-most, most))
        return out
    sign = _sign(work, layout)
    if layout.sign == "dropped":
        work.abs_()
    odd = work.clone() if _has_odd(work, layout) else None
    codes = _patterns_of_sums(work, layout) if _sums_do(work, layout, rule) else _patterns(work, layout, rule)
    if odd is not None:
        _settle(odd, codes, layout, rule)
    if sign is not None:
        if layout.nan == "negative_zero":  # a zero takes no sign
            sign.mul_(codes.clamp(max=1))
        if odd is not None:  # nor does a NaN that has the pattern of -0
            sign.masked_fill_(codes == layout.sign_bit, 0)
        codes.sub_(sign, alpha=layout.sign_bit)
    return out.copy_(codes)


def _cast_of(work: Tensor, layout: FloatLayout) -> torch.dtype | None:
    """Torch's type whose cast gives these codes in a third of the time; not of NaN, whose pattern differs."""
    cast = next((cast for base, cast in _CASTS if vars(base) == vars(layout)), None)
    return None if cast is None or work.device.type != "cpu" or bool(work.amax().isnan()) else cast


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


def _sums_do(work: Tensor, layout: FloatLayout, rule: Rounding) -> bool:
    """Whether `_patterns_of_sums` gives the patterns of this rule."""
    if rule is half_even_of_sum:
        step = 2.0 ** (layout.lowest_exponent - layout.mantissa)
        magnitude = torch.abs(work, out=like(work, "magnitude"))
        return layout.lowest_exponent > _LEAST_OF_SUMS and not takes_sum(magnitude, BELOW_HALF * step)
    return rule is half_even and layout.lowest_exponent > _LEAST_OF_SUMS


def _patterns_of_sums(work: Tensor, layout: FloatLayout) -> Tensor:
    """`_patterns`, rounded half to even by adding: |x| is brought to the last bits of the sum with a power of two.

    That is the one below |x|, times 2^(23 - mantissa); both are left divided by that factor.
    """
    width = _MANTISSA - layout.mantissa
    power = _power(work, layout.lowest_exponent)
    total = torch.add(power, work.abs_(), alpha=2.0**-width, out=work).view(torch.int32)
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
    codes = power.view(torch.int32).copy_(rule(work).abs_())
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
