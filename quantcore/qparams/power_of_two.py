"""Power-of-two scales, for blocks of small floats (OCP Microscaling Formats 1.0, 6.3).

2^(e - emax), where e is computed from max|x| and 2^emax is the largest power of two of the element's format:

======================  ===========================================================  ==========================
rule                    e                                                            beyond 2^127
======================  ===========================================================  ==========================
``power_floor``         floor(log2(max|x|)), from the bits                           2^127
``power_log2_floor``    the same, with log2 rounded to float32                       NaN
``power_log2_wrapped``  the same; below 2^-128 the exponent's lowest 8 bits are kept
``power_even``          the same for max|x| plus half a step of the mantissa         2^127
``power_rounded``       the same                                                     infinite, as for NaN
``power_rounded_e2m1``  the same, with the mantissa of e2m1 for every element        infinite, as for NaN
``power_ceil``          one more, unless max|x| is a power of two                    2^127
``power_log2_ceil``     e - emax = ceil(log2(max|x| / the format's max)), float32    2^127
======================  ===========================================================  ==========================

The exponent is at least -127, the smallest of e8m0; NaN stays NaN. Integers are read as x.xxx in binary, so
that their scale is 2^(2 - bits) times such a power.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from quantcore.formats import FloatFormat, Format, IntFormat

_MANTISSA, _BIAS, _SMALLEST_NORMAL, _LEAST, _MOST = 23, 127, -126, -127, 127


def _exponent(largest: Tensor) -> Tensor:
    """floor(log2(largest)) from its bits; -127 for zero and subnormal numbers."""
    return ((largest.view(torch.int32) >> _MANTISSA) & 0xFF) - _BIAS


def _floor(largest: Tensor, fmt: Format) -> Tensor:
    return _exponent(largest) - fmt.symmetric_max_exponent


def _log2_floor(largest: Tensor, fmt: Format) -> Tensor:
    """floor(log2(max|x|)), with log2 rounded to float32; 0 counts as the smallest normal number."""
    logarithm = torch.log2(torch.where(largest == 0, 2.0**_SMALLEST_NORMAL, largest))
    floor = logarithm.floor().nan_to_num(nan=0.0, posinf=1000.0)
    return floor.to(torch.int32) - fmt.symmetric_max_exponent


def _even(largest: Tensor, fmt: Format) -> Tensor:
    return _exponent(_raised(largest, _mantissa(fmt))) - fmt.symmetric_max_exponent


def _rounded(largest: Tensor, fmt: Format) -> Tensor:
    return _of_power(_raised(largest, _mantissa(fmt))) - fmt.symmetric_max_exponent


def _rounded_e2m1(largest: Tensor, fmt: Format) -> Tensor:
    return _of_power(_raised(largest, 1)) - fmt.symmetric_max_exponent


def _raised(largest: Tensor, mantissa: int) -> Tensor:
    """Add half a step of the mantissa: a number that rounds up to the next power of two reaches it."""
    return (largest.view(torch.int32) + (1 << (_MANTISSA - mantissa - 1))).view(torch.float32)


def _of_power(largest: Tensor) -> Tensor:
    """`_exponent`, or for infinity and NaN an exponent beyond any scale."""
    return torch.where(largest < torch.inf, _exponent(largest), 1000)


def _ceil(largest: Tensor, fmt: Format) -> Tensor:
    more = (largest.view(torch.int32) & ((1 << _MANTISSA) - 1)) > 0
    return _exponent(largest) + more.to(torch.int32) - fmt.symmetric_max_exponent


def _log2_ceil(largest: Tensor, fmt: Format) -> Tensor:
    """ceil(log2(max|x| / the format's max)), with log2 rounded to float32."""
    exponent = torch.ceil(torch.log2(largest / fmt.symmetric_max)).clamp(_LEAST, _MOST)
    return exponent.nan_to_num(nan=0.0).to(torch.int32)


def _mantissa(fmt: Format) -> int:
    return fmt.mantissa if isinstance(fmt, FloatFormat) else fmt.bits - 2


def _power(exponent_of: Callable[[Tensor, Format], Tensor], beyond: float) -> Callable[..., Any]:
    """Return a rule (low, high, format, convention) -> scale, low, high, as `scale` calls it.

    ``beyond``: the scale if the power exceeds the largest of e8m0.
    """

    def rule(low: Tensor, high: Tensor, fmt: Any, c: Any) -> tuple[Tensor, Tensor, Tensor]:
        largest = torch.maximum(low.abs(), high.abs())
        unit = -fmt.symmetric_max_exponent if isinstance(fmt, IntFormat) else 0
        exponent = exponent_of(largest, fmt)
        scale = power_of_two(exponent.clamp(min=_LEAST + unit))
        scale.masked_fill_(exponent > _MOST + unit, beyond * 2.0**unit)
        if beyond != torch.inf:
            scale.masked_fill_(largest.isnan(), torch.nan)
        return scale, -largest, largest

    return rule


def power_of_two(exponent: Tensor) -> Tensor:
    """2^exponent, float32, infinite beyond 127; ``exponent``: int32, -149 to 1023."""
    # from its bits in float64, where it is a normal number: torch.ldexp takes three times as long
    return ((exponent.to(torch.int64) + 1023) << 52).view(torch.float64).to(torch.float32)


def _wrapped(low: Tensor, high: Tensor, fmt: Any, c: Any) -> tuple[Tensor, Tensor, Tensor]:
    """gguf's byte is the exponent of twice the scale, cast to 8 bits without a clamp; for max|x| = 0 it is 0."""
    largest = torch.maximum(low.abs(), high.abs())
    byte = (_log2_floor(largest, fmt) + 1 - _LEAST) & 0xFF
    exponent = torch.where((largest > 0) & (largest < torch.inf), byte, 0) + _LEAST - 1
    return power_of_two(exponent), -largest, largest


_POWER = 2.0**_MOST
POWERS: dict[str, Callable[..., Any]] = {
    "power_floor": _power(_floor, _POWER),
    "power_log2_floor": _power(_log2_floor, torch.nan),
    "power_log2_wrapped": _wrapped,
    "power_even": _power(_even, _POWER),
    "power_rounded": _power(_rounded, torch.inf),
    "power_rounded_e2m1": _power(_rounded_e2m1, torch.inf),
    "power_ceil": _power(_ceil, _POWER),
    "power_log2_ceil": _power(_log2_ceil, _POWER),
}
