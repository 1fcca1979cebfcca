"""The scale and zero_point of a block from its range, by the choices of a `Convention`.

All tensors are in block form: one number per block.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from quantcore.conventions import Convention, sides_of_grid
from quantcore.formats import Format
from quantcore.qparams.power_of_two import POWERS
from quantcore.qparams.record import QParams

Range = tuple[Tensor, Tensor]
_PRECISION = {"float32": torch.float32, "float64": torch.float64}
# hqq 0.2.8, core/quantize.py: a narrower range has scale 1, and 1/s stays within float16
_HQQ_NARROW, _HQQ_LARGEST_INVERSE = 1e-4, 2e4


def parameters(low: Tensor, high: Tensor, symmetric: bool, fmt: Format, c: Convention) -> QParams:
    """Return scale and zero_point of every block, with the range they are computed from."""
    low, high = (t.to(_PRECISION[c.scale.scale_precision]) for t in (low, high))
    low, high = _widened(*_with_zero(low, high, c), symmetric, fmt, c)
    low, high = _finite(low, high, c)
    inverse = None
    if symmetric:
        raw, low, high = _SYMMETRIC[c.scale.symmetric_scale](low, high, fmt, c)
        if c.scale.inverse == "of_range":
            inverse = _inverse_of_range(high, fmt, c)
    elif c.scale.asymmetric_scale == "inverse_range":
        inverse = inverse_range(low, high, _steps(fmt))
        raw = 1.0 / inverse
    else:
        raw = _asymmetric(low, high, _steps(fmt), c)
    scale, replaced = replaced_scale(raw, c)
    if symmetric:
        zero_point = torch.full(scale.shape, c.zero_point.middle(fmt), dtype=torch.int32, device=scale.device)
    elif c.zero_point.is_min:
        zero_point = low
    elif inverse is not None:
        zero_point = _float_zero_point(low, inverse, c)
    else:
        zero_point = _zero_point(low, raw if c.zero_point.zero_point_scale == "raw" else scale, fmt, c)
    if c.zero_point.replaced_zero_point == "zero" or (
        c.zero_point.replaced_zero_point == "zero_if_asymmetric" and not symmetric
    ):
        zero_point = zero_point.masked_fill(replaced, 0)
    low, high = low.to(torch.float32), high.to(torch.float32)
    return QParams(scale, zero_point, low, high, inverse, replaced)


def _steps(fmt: Format) -> int:
    return fmt.qmax - fmt.qmin


def _with_zero(low: Tensor, high: Tensor, c: Convention) -> Range:
    if c.range.zero_in_range != "no":
        low = low.clamp(max=0.0)
    if c.range.zero_in_range == "both":
        high = high.clamp(min=0.0)
    return low, high


def _widened(low: Tensor, high: Tensor, symmetric: bool, fmt: Format, c: Convention) -> Range:
    """Widen ranges that would give a scale below eps, on both sides if symmetric."""
    if not c.range.widen_to_eps:
        return low, high
    steps = _steps(fmt)
    step = c.scale.eps * ((high - low) / steps < c.scale.eps)
    above, below = (steps // 2, -(-steps // 2)) if symmetric else (steps, 0)
    return low - below * step, high + above * step


def _finite(low: Tensor, high: Tensor, c: Convention) -> Range:
    largest = torch.finfo(torch.float32).max
    return (low.clamp(min=-largest), high.clamp(max=largest)) if c.range.finite_range else (low, high)


def _asymmetric(low: Tensor, high: Tensor, steps: int, c: Convention) -> Tensor:
    width = high - low
    if c.range.min_range:
        width = width.clamp(min=c.range.min_range)
    scale = width / steps
    if c.scale.range_overflow == "split":
        scale = torch.where(torch.isinf(width), high / steps - low / steps, scale)
    return scale


def inverse_range(low: Tensor, high: Tensor, steps: int) -> Tensor:
    """Return 1/s = N · (1/(high - low)), rounded twice, as torch divides a number by a tensor.

    1 for a range of at most 1e-4, and at most 2e4 (hqq 0.2.8, core/quantize.py).
    """
    width = high - low
    inverse = torch.reciprocal(width) * steps
    return torch.where(width.abs() <= _HQQ_NARROW, 1.0, inverse).clamp(max=_HQQ_LARGEST_INVERSE)


def _inverse_of_range(largest: Tensor, fmt: Format, c: Convention) -> Tensor:
    """Return 1/s computed from 1/max|x|: rounded twice, as torch divides a number by a tensor."""
    if c.scale.symmetric_scale == "amax_over_half_codes":
        inverse = torch.reciprocal(2 * largest) * (1 << fmt.bits)
    else:
        inverse = torch.reciprocal(largest) * (fmt.symmetric_max * c.scale.divisor)
    return inverse.nan_to_num(1.0, 1.0, 1.0) if c.scale.bad_inverse == "one" else inverse


def _largest(low: Tensor, high: Tensor, c: Convention) -> Tensor:
    largest = torch.maximum(low.abs(), high.abs())
    return largest.clamp(min=c.range.min_range) if c.range.min_range else largest


Symmetric = Callable[[Tensor, Tensor, Format, Convention], tuple[Tensor, Tensor, Tensor]]


def _over_qmax(low: Tensor, high: Tensor, fmt: Format, c: Convention) -> tuple[Tensor, Tensor, Tensor]:
    largest = _largest(low, high, c)
    return largest / (fmt.symmetric_max * c.scale.divisor), -largest, largest


def _amax(low: Tensor, high: Tensor, fmt: Format, c: Convention) -> tuple[Tensor, Tensor, Tensor]:
    largest = _largest(low, high, c)
    return largest, -largest, largest


def _over_half_codes(low: Tensor, high: Tensor, fmt: Format, c: Convention) -> tuple[Tensor, Tensor, Tensor]:
    largest = _largest(low, high, c)
    return largest / (1 << (fmt.bits - 1)), -largest, largest


def _signed_amax(low: Tensor, high: Tensor, fmt: Format, c: Convention) -> tuple[Tensor, Tensor, Tensor]:
    extreme = torch.where(high > -low, high, low)
    return extreme / -(1 << (fmt.bits - 1)), -extreme.abs(), extreme.abs()


def _over_half_range(low: Tensor, high: Tensor, fmt: Format, c: Convention) -> tuple[Tensor, Tensor, Tensor]:
    largest = _largest(low, high, c)
    return largest / (c.scale.steps(fmt) / 2), -largest, largest


def _full_range(low: Tensor, high: Tensor, fmt: Format, c: Convention) -> tuple[Tensor, Tensor, Tensor]:
    largest = _largest(low, high, c)
    return (largest + largest) / c.scale.steps(fmt), -largest, largest


def _max_of_sides(low: Tensor, high: Tensor, fmt: Format, c: Convention) -> tuple[Tensor, Tensor, Tensor]:
    below, above = low / float(fmt.qmin), high / float(fmt.qmax)
    return torch.where(below > above, below, above), low, high


def _aligned_grid(low: Tensor, high: Tensor, fmt: Format, c: Convention) -> tuple[Tensor, Tensor, Tensor]:
    steps, above, below, divisor = sides_of_grid(fmt)
    step = torch.maximum(high / divisor, -low / below)
    low, high = _finite(-below * step, above * step, c)
    return (high - low) / steps, low, high


_SYMMETRIC: dict[str, Symmetric] = {
    "amax_over_qmax": _over_qmax,
    "amax_over_half_range": _over_half_range,
    "full_range": _full_range,
    "max_of_sides": _max_of_sides,
    "aligned_grid": _aligned_grid,
    "amax": _amax,
    "amax_over_half_codes": _over_half_codes,
    "signed_amax": _signed_amax,
    **POWERS,
}


# the rules that depend on max(|low|, |high|) alone
OF_MAGNITUDE = (
    "amax_over_qmax",
    "amax",
    "amax_over_half_codes",
    "amax_over_half_range",
    "full_range",
    *POWERS,
)


def replaced_scale(raw: Tensor, c: Convention) -> tuple[Tensor, Tensor]:
    """Return the scale as float32, and in which blocks it was too small and was replaced."""
    if bool(raw.abs().amin() >= c.scale.eps):
        return raw.to(torch.float32), torch.zeros_like(raw, dtype=torch.bool)
    small = raw.abs() < c.scale.eps
    return torch.where(small, c.scale.eps_replacement, raw).to(torch.float32), small


def _zero_point(low: Tensor, scale: Tensor, fmt: Format, c: Convention) -> Tensor:
    quotient = low.to(_PRECISION[c.zero_point.zero_point_precision]) / scale.to(
        _PRECISION[c.zero_point.zero_point_precision]
    )
    if c.zero_point.zero_point_order == "round_quotient":
        found = fmt.qmin - torch.round(quotient)
    else:
        found = torch.round(fmt.qmin - quotient)
    bounded = found.clamp(fmt.qmin, fmt.qmax)
    return torch.where(bounded.isnan(), c.zero_point.of_nan(fmt), bounded.to(torch.float64)).to(torch.int32)


def _float_zero_point(low: Tensor, inverse: Tensor, c: Convention) -> Tensor:
    zero_point = -low * inverse
    return zero_point.round() if c.zero_point.zero_point_form == "float_rounded" else zero_point


def is_bad(scale: Tensor, c: Convention) -> bool:
    """Whether the library refuses these scales."""
    if c.scale.bad_scale == "kept" or (math.isfinite(scale.amin()) and math.isfinite(scale.amax())):
        return False
    return c.scale.bad_scale == "nonfinite" or bool(scale.isnan().any())
