"""From a tensor to the scale and zero_point of every block."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantcore.formats import Format
from quantcore.granularity import block_shape, grid_shape, regions, split_axes, to_blocks
from quantcore.inputs import CHUNK, as_float32, refuse_nonfinite
from quantcore.range_setting import Given, MinMax, Task
from quantcore.scheme import Scheme


@dataclass(frozen=True)
class QParams:
    """Quantization parameters in block form: axis i holds the number of blocks along axis i.

    ``low``, ``high``: the range that led to them (0 included, or made symmetric, where the scheme says
    so); None for `Given`.
    """

    scale: Tensor
    zero_point: Tensor
    low: Tensor | None = None
    high: Tensor | None = None


def choose_qparams(x: Any, scheme: Scheme) -> QParams:
    """Find scale and zero_point of every block.

    Raises:
        QuantError: the scheme does not fit x, or x holds NaN or infinity.
    """
    x = as_float32(x)
    shape = tuple(x.shape)
    block = block_shape(scheme.granularity, shape)
    grid = grid_shape(shape, block)
    setting = scheme.range_setting
    who = f"the {scheme.convention.name} convention"
    if isinstance(setting, Given):
        refuse_nonfinite(x, who)
        return QParams(*setting.parameters(grid, x.device))
    low, high = (torch.empty(grid, device=x.device) for _ in range(2))
    task = Task(scheme.format, scheme.symmetric)
    for region in regions(shape, block, CHUNK, whole_blocks=True):
        values = x[region.elements]
        found = _extremes(values, region.block)
        if not isinstance(setting, MinMax):
            _check_finite(x, *found, who)
            found = setting(to_blocks(values, region.block), task)
        for whole, part in zip((low, high), found, strict=True):
            whole[region.grid].copy_(part.reshape(whole[region.grid].shape))
    # NaN and infinity show in the extremes of MinMax: no pass of its own over x
    _check_finite(x, low, high, who)
    return _symmetric(low, high, scheme.format) if scheme.symmetric else _asymmetric(low, high, scheme.format)


def _extremes(x: Tensor, block: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """What `MinMax` returns of ``to_blocks(x, block)``, without the copy which that takes for boxes."""
    low = high = split_axes(x, block)
    for axis in reversed(range(len(block))):
        if block[axis] > 1:
            low, high = low.amin(2 * axis + 1, keepdim=True), high.amax(2 * axis + 1, keepdim=True)
    return low, high


def _check_finite(x: Tensor, low: Tensor, high: Tensor, who: str) -> None:
    if not (math.isfinite(low.amin()) and math.isfinite(high.amax())):
        refuse_nonfinite(x, who)


def _symmetric(low: Tensor, high: Tensor, fmt: Format) -> QParams:
    high = torch.maximum(low.abs(), high.abs())
    scale = high / ((1 << (fmt.bits - 1)) - 1)
    scale[scale == 0] = 1.0
    zero_point = torch.full(scale.shape, fmt.middle, dtype=torch.int32, device=scale.device)
    return QParams(scale, zero_point, -high, high)


def _asymmetric(low: Tensor, high: Tensor, fmt: Format) -> QParams:
    low, high = low.clamp(max=0.0), high.clamp(min=0.0)
    steps = fmt.qmax - fmt.qmin
    scale = torch.where(torch.isinf(high - low), high / steps - low / steps, (high - low) / steps)
    scale[scale == 0] = 1.0
    zero_point = (fmt.qmin - torch.round(low / scale)).clamp_(fmt.qmin, fmt.qmax)
    return QParams(scale, zero_point.to(torch.int32), low, high)
