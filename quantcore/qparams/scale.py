"""Quantization parameters: the scale and zero_point of a block from its range, by the choices of a `Convention`.

All tensors are in block form: one number per block.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.conventions import (
    INVERSE_OF_RANGE,
    LARGEST_INVERSE,
    NARROW,
    SPLIT,
    ZERO_POINTS,
    Convention,
    of_range,
)
from quantcore.expressions import run
from quantcore.formats import Format

Range = tuple[Tensor, Tensor]
_PRECISION = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class QParams:
    """Quantization parameters in block form: axis i has one entry per block along axis i of the tensor.

    ``low``, ``high``: the range they were computed from (extended to 0 or made symmetric as the scheme says); None
    for `Given`. ``inverse``: 1/scale if the library stores it (hqq), else None. ``replaced``: whether the
    convention replaced the scale that the range gave. ``raw``: the scales before they were quantized
    themselves, None if they were not. ``center``: the mean that was subtracted, one number, None if none was.
    ``coded``: the scale that codes are computed with, if it is neither the stored one nor `raw`. After a search,
    until the codes are written: ``searched``, its codes in the shape of x, and ``weights``, the sum of the weights
    in each block.
    """

    scale: Tensor
    zero_point: Tensor
    low: Tensor | None = None
    high: Tensor | None = None
    inverse: Tensor | None = None
    replaced: Tensor | None = None
    raw: Tensor | None = None
    center: Tensor | None = None
    coded: Tensor | None = None
    searched: Tensor | None = None
    weights: Tensor | None = None

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """low and high, for parameters computed from a range."""
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high


def parameters(low: Tensor, high: Tensor, symmetric: bool, fmt: Format, c: Convention) -> QParams:
    """Return scale and zero_point of every block, with the range they are computed from."""
    low, high = (t.to(_PRECISION[c.scale.scale_precision]) for t in (low, high))
    if c.range.zero_in_range != "no":
        low = low.clamp(max=0.0)
    if c.range.zero_in_range == "both":
        high = high.clamp(min=0.0)
    if c.range.widen_to_eps:
        low, high = _widened(low, high, symmetric, fmt, c)
    if c.range.finite_range:
        largest = torch.finfo(torch.float32).max
        low, high = low.clamp(min=-largest), high.clamp(max=largest)
    inverse = None
    if symmetric:
        raw, low, high = _symmetric(low, high, fmt, c)
        if c.scale.inverse == "of_range":
            inverse = run(c.scale.inverse_of_range(fmt), {"max|x|": high})
            if c.scale.bad_inverse == "one":
                inverse = inverse.nan_to_num(1.0, 1.0, 1.0)
    elif c.scale.asymmetric_scale == "inverse_range":
        inverse = inverse_range(low, high, fmt.available - 1)
        raw = 1.0 / inverse
    else:
        raw = _asymmetric(low, high, fmt.available - 1, c)
    scale, replaced = replaced_scale(raw, c)
    if symmetric:
        zero_point = torch.full(scale.shape, c.zero_point.middle(fmt), dtype=torch.int32, device=scale.device)
    elif c.zero_point.is_min:
        zero_point = low
    elif inverse is not None:
        zero_point = run(ZERO_POINTS[c.zero_point.float_form], {"-low": -low, "1/s": inverse})
    else:
        zero_point = _zero_point(low, raw if c.zero_point.zero_point_scale == "raw" else scale, fmt, c)
    of_replaced = c.zero_point.replaced_zero_point
    if of_replaced == "zero" or (of_replaced == "zero_if_asymmetric" and not symmetric):
        zero_point = zero_point.masked_fill(replaced, 0)
    low, high = low.to(torch.float32), high.to(torch.float32)
    return QParams(scale, zero_point, low, high, inverse, replaced)


def _widened(low: Tensor, high: Tensor, symmetric: bool, fmt: Format, c: Convention) -> Range:
    """Widen ranges that would give a scale below eps, on both sides if symmetric."""
    steps = fmt.available - 1
    step = c.scale.eps * ((high - low) / steps < c.scale.eps)
    above, below = (steps // 2, -(-steps // 2)) if symmetric else (steps, 0)
    return low - below * step, high + above * step


def _asymmetric(low: Tensor, high: Tensor, steps: int, c: Convention) -> Tensor:
    numbers: dict[str, Tensor | float | None] = {"low": low, "high": high, "N": float(steps)}
    scale: Tensor = run(of_range(c.range.min_range), numbers)
    if c.scale.range_overflow == "split":
        scale = torch.where(torch.isinf(scale), run(SPLIT, numbers), scale)
    return scale


def inverse_range(low: Tensor, high: Tensor, steps: int) -> Tensor:
    """Return 1/s as hqq computes it: rounded twice, and bounded."""
    inverse = run(INVERSE_OF_RANGE, {"low": low, "high": high, "N": float(steps)})
    return torch.where((high - low).abs() <= NARROW, 1.0, inverse).clamp(max=LARGEST_INVERSE)


def _symmetric(low: Tensor, high: Tensor, fmt: Format, c: Convention) -> tuple[Tensor, Tensor, Tensor]:
    """Return the scale, and the range that it is for."""
    rule = c.scale.rule(fmt, c.range.finite_range)
    largest = torch.maximum(low.abs(), high.abs())
    if c.range.min_range and not c.scale.is_power:
        largest = largest.clamp(min=c.range.min_range)
    numbers = {"low": low, "high": high, "max|x|": largest}
    if "extreme" in rule.scale.names:
        numbers["extreme"] = torch.where(high > -low, high, low)
    return run(rule.scale, numbers), run(rule.low, numbers), run(rule.high, numbers)


def replaced_scale(raw: Tensor, c: Convention) -> tuple[Tensor, Tensor]:
    """Return the scale as float32, and in which blocks it was too small and was replaced."""
    if bool(raw.abs().amin() >= c.scale.eps):
        return raw.to(torch.float32), torch.zeros_like(raw, dtype=torch.bool)
    small = raw.abs() < c.scale.eps
    return torch.where(small, c.scale.eps_replacement, raw).to(torch.float32), small


def _zero_point(low: Tensor, scale: Tensor, fmt: Format, c: Convention) -> Tensor:
    low, scale = (t.to(_PRECISION[c.zero_point.zero_point_precision]) for t in (low, scale))
    found = run(ZERO_POINTS[c.zero_point.zero_point_order], {"low": low, "s": scale, "qmin": float(fmt.qmin)})
    bounded = found.clamp(fmt.qmin, fmt.qmax)
    return torch.where(bounded.isnan(), c.zero_point.of_nan(fmt), bounded.to(torch.float64)).to(torch.int32)


def is_bad(scale: Tensor, c: Convention) -> bool:
    """Whether the library refuses these scales."""
    if c.scale.bad_scale == "kept" or (math.isfinite(scale.amin()) and math.isfinite(scale.amax())):
        return False
    return c.scale.bad_scale == "nonfinite" or bool(scale.isnan().any())
