"""Scales that are powers of two, as blocks of small floats have them (OCP Microscaling Formats 1.0, 6.3).

2^(e - emax), where e is found from max|x| and 2^emax is the largest power of two of the element's format.
The exponent never falls below -127, the least that e8m0 stores; NaN stays NaN.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from quantcore.float_format import FloatFormat

_MANTISSA, _BIAS, _LEAST, _MOST = 23, 127, -127, 128


def _exponent(largest: Tensor) -> Tensor:
    """floor(log2(largest)) out of its bits; -127 for zero and what is below the normal numbers."""
    return ((largest.view(torch.int32) >> _MANTISSA) & 0xFF) - _BIAS


def _floor(largest: Tensor, fmt: FloatFormat) -> Tensor:
    return _exponent(largest) - _largest_power(fmt)


def _even(largest: Tensor, fmt: FloatFormat) -> Tensor:
    """Half a step of the element's mantissa is added first: what would round up to the next power counts as it."""
    raised = largest.view(torch.int32) + (1 << (_MANTISSA - fmt.mantissa - 1))
    return _exponent(raised.view(torch.float32)) - _largest_power(fmt)


def _ceil(largest: Tensor, fmt: FloatFormat) -> Tensor:
    more = (largest.view(torch.int32) & ((1 << _MANTISSA) - 1)) > 0
    return _exponent(largest) + more.to(torch.int32) - _largest_power(fmt)


def _log2_ceil(largest: Tensor, fmt: FloatFormat) -> Tensor:
    """ceil(log2(max|x| / format's max)), the logarithm rounded to float32."""
    exponent = torch.ceil(torch.log2(largest / fmt.max)).clamp(_LEAST, _BIAS)
    return exponent.nan_to_num(nan=0.0).to(torch.int32)


def _largest_power(fmt: FloatFormat) -> int:
    return math.frexp(fmt.max)[1] - 1


def _power(exponent_of: Callable[[Tensor, FloatFormat], Tensor]) -> Callable[..., Any]:
    """The rule as `scales` calls it: (low, high, format, convention) -> scale, low, high."""

    def rule(low: Tensor, high: Tensor, fmt: Any, c: Any) -> tuple[Tensor, Tensor, Tensor]:
        largest = torch.maximum(low.abs(), high.abs())
        exponent = exponent_of(largest, fmt).clamp(_LEAST, _MOST)
        scale = torch.ldexp(torch.ones(()), exponent).to(torch.float32)
        return torch.where(largest.isnan(), torch.nan, scale), -largest, largest

    return rule


POWERS: dict[str, Callable[..., Any]] = {
    "power_floor": _power(_floor),
    "power_even": _power(_even),
    "power_ceil": _power(_ceil),
    "power_log2_ceil": _power(_log2_ceil),
}
