"""From a tensor to the scale and zero_point of every block."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.granularity import (
    PerFlatGroup,
    block_shape,
    extremes,
    first_extreme,
    grid_shape,
    laid_shape,
    magnitude,
    regions,
    to_blocks,
)
from quantcore.numerics import CHUNK, as_float32, refuse_nonfinite
from quantcore.qparams.scale import OF_MAGNITUDE, is_bad, parameters
from quantcore.qparams.squared_error import BlockErrors
from quantcore.range_setting import Given, HalfQuadratic, MinMax, MinMse, Task
from quantcore.scheme import Scheme, full_name, refuse


@dataclass(frozen=True)
class QParams:
    """Quantization parameters in block form: axis i holds the number of blocks along axis i.

    ``low``, ``high``: the range that led to them (0 included, or made symmetric, where the scheme says
    so); None for `Given`. ``inverse``: 1/scale as the library keeps it (hqq), else None.
    ``center``: the mean that was taken off, one number, where the convention does so.
    ``replaced``: whether the range gave a scale that the convention does not use. ``raw``: the scales
    before they were quantized themselves, None where they were not.
    """

    scale: Tensor
    zero_point: Tensor
    low: Tensor | None = None
    high: Tensor | None = None
    inverse: Tensor | None = None
    replaced: Tensor | None = None
    raw: Tensor | None = None
    center: Tensor | None = None


def choose_qparams(x: Any, scheme: Scheme) -> QParams:
    """Find scale and zero_point of every block; the scales are not yet quantized themselves.

    Raises:
        QuantError: the scheme does not fit x, its library can't do it, or x holds NaN or infinity and
            the convention (or a range setting other than `MinMax`) refuses that.
    """
    x = as_float32(x)
    shape = tuple(x.shape)
    refuse(scheme, shape)
    center = x.mean() if scheme.convention.scale.center == "mean" else None
    x = x if center is None else x - center
    block = block_shape(scheme.granularity, shape)
    shape = laid_shape(scheme.granularity, shape)
    laid = x.reshape(shape)
    grid = grid_shape(shape, block)
    setting, convention = scheme.range_setting, scheme.rules
    refuses = convention.refuses_nonfinite
    who = f"the {convention.name} convention" if refuses else "this range setting"
    if isinstance(setting, Given):
        if refuses:
            refuse_nonfinite(x, who)
        return QParams(*setting.parameters(grid, x.device), center=center)
    low, high = _range(x, scheme, who)
    if refuses:  # NaN and infinity show in the extremes of MinMax: no pass of its own over x
        _check_finite(x, low, high, who)
    params = QParams(*parameters(low, high, scheme.symmetric, scheme.format, convention), center=center)
    flat = scheme.granularity
    if convention.coding.short_block == "divided" and isinstance(flat, PerFlatGroup) and shape[0] % flat.size:
        params.scale[-1:].clamp_(min=convention.storage.min_divisor)
    if is_bad(params.scale, convention):
        raise QuantError(
            f"{full_name(convention)} refuses a scale that is not a finite "
            "number; replace NaN and infinity in x, or scale it down."
        )
    if isinstance(setting, HalfQuadratic):
        assert params.inverse is not None  # as `refuse` has seen to
        blocks, task = to_blocks(laid, block), Task(scheme.format, scheme.symmetric)
        inverse, zero_point = (p.reshape(-1) for p in (params.inverse, params.zero_point))
        moved = setting.zero_point(blocks, inverse, zero_point, task)
        params = dataclasses.replace(params, zero_point=moved.reshape(grid))
    return params


def _range(x: Tensor, scheme: Scheme, who: str) -> tuple[Tensor, Tensor]:
    """What the range setting finds of every block, in block form."""
    shape = laid_shape(scheme.granularity, tuple(x.shape))
    block, laid = block_shape(scheme.granularity, tuple(x.shape)), x.reshape(shape)
    setting, rule = scheme.range_setting, scheme.rules.scale.symmetric_scale
    assert not isinstance(setting, Given)  # which has no range
    grid = grid_shape(shape, block)
    low, high = (torch.empty(grid, device=x.device) for _ in range(2))
    either = scheme.symmetric and isinstance(setting, MinMax) and rule in OF_MAGNITUDE
    # a search goes over its blocks many times, ever fewer of them: the more it has, the less its calls cost
    room = 4 * CHUNK if isinstance(setting, MinMse) else CHUNK
    for region in regions(shape, block, room, whole_blocks=True):
        values = laid[region.elements]
        found = (magnitude(values, region.block) if either else None) or extremes(values, region.block)
        if not isinstance(setting, MinMax):
            _check_finite(x, *found, who)
            blocks = to_blocks(values, region.block)
            task = Task(scheme.format, scheme.symmetric, BlockErrors(blocks, scheme), math.prod(grid))
            found = setting(blocks, task)
        elif rule == "signed_amax":
            found = first_extreme(values, region.block, *found)
        for whole, part in zip((low, high), found, strict=True):
            whole[region.grid].copy_(part.reshape(whole[region.grid].shape))
    return low, high


def _check_finite(x: Tensor, low: Tensor, high: Tensor, who: str) -> None:
    if not (math.isfinite(low.amin()) and math.isfinite(high.amax())):
        refuse_nonfinite(x, who)
