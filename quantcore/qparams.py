"""From a tensor to the scale and zero_point of every block."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.granularity import PerFlatGroup, block_shape, grid_shape, laid_shape, split_axes, to_blocks
from quantcore.inputs import CHUNK, as_float32, refuse_nonfinite
from quantcore.range_half_quadratic import HalfQuadratic
from quantcore.range_setting import Given, MinMax
from quantcore.range_task import Task
from quantcore.refusal import full_name, refuse
from quantcore.regions import regions
from quantcore.scales import OF_MAGNITUDE, is_bad, parameters
from quantcore.scheme import Scheme
from quantcore.scratch import like
from quantcore.squared_error import BlockErrors

_FAST_RUN = 32  # torch reduces shorter runs one by one


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
    center = x.mean() if scheme.convention.center == "mean" else None
    x = x if center is None else x - center
    block = block_shape(scheme.granularity, shape)
    shape = laid_shape(scheme.granularity, shape)
    laid = x.reshape(shape)
    grid = grid_shape(shape, block)
    setting, convention = scheme.range_setting, scheme.convention.at(scheme.granularity)
    refuses = convention.refuses_nonfinite
    who = f"the {convention.name} convention" if refuses else "this range setting"
    if isinstance(setting, Given):
        if refuses:
            refuse_nonfinite(x, who)
        return QParams(*setting.parameters(grid, x.device), center=center)
    low, high = (torch.empty(grid, device=x.device) for _ in range(2))
    either = (
        scheme.symmetric and isinstance(setting, MinMax) and convention.symmetric_scale in OF_MAGNITUDE
    )
    for region in regions(shape, block, CHUNK, whole_blocks=True):
        values = laid[region.elements]
        found = (_magnitude(values, region.block) if either else None) or _extremes(values, region.block)
        if not isinstance(setting, MinMax):
            _check_finite(x, *found, who)
            blocks = to_blocks(values, region.block)
            task = Task(scheme.format, scheme.symmetric, BlockErrors(blocks, scheme), math.prod(grid))
            found = setting(blocks, task)
        elif convention.symmetric_scale == "signed_extreme":
            found = _first_extreme(values, region.block, *found)
        for whole, part in zip((low, high), found, strict=True):
            whole[region.grid].copy_(part.reshape(whole[region.grid].shape))
    if refuses:  # NaN and infinity show in the extremes of MinMax: no pass of its own over x
        _check_finite(x, low, high, who)
    params = QParams(*parameters(low, high, scheme.symmetric, scheme.format, convention), center=center)
    flat = scheme.granularity
    if convention.short_block == "divided" and isinstance(flat, PerFlatGroup) and shape[0] % flat.size:
        params.scale[-1:].clamp_(min=convention.coded_smallest)
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


def _extremes(x: Tensor, block: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """What `MinMax` returns of ``to_blocks(x, block)``, without the copy which that takes for boxes."""
    low = high = split_axes(x, block)
    for axis in reversed(range(len(block))):
        if block[axis] > 1:
            low, high = low.amin(2 * axis + 1, keepdim=True), high.amax(2 * axis + 1, keepdim=True)
    return low, high


def _magnitude(x: Tensor, block: tuple[int, ...]) -> tuple[Tensor, Tensor] | None:
    """-max|x| and max|x| as `_extremes` lays them out, of blocks that are short runs of the last axis; else None.

    Of runs too short for a fast reduction two are put into one, the other negative: the largest of both is that
    of the one, the smallest that of the other.
    """
    n = block[-1] if block else 1
    if n == 1 or n > 2 * _FAST_RUN or math.prod(block[:-1]) > 1:
        return None
    magnitude = torch.abs(x, out=like(x, "magnitude"))
    if n >= _FAST_RUN:
        largest = split_axes(magnitude, block).amax(-1, keepdim=True)
        return -largest, largest
    if x.shape[-1] % (2 * n):
        return None
    signs = x.new_ones(2 * n)
    signs[n:] = -1.0
    pairs = magnitude.view(*x.shape[:-1], -1, 2 * n).mul_(signs)
    top = pairs.amax(-1)
    if bool(top.amax().isnan()):  # it may be in either of two blocks
        return None
    largest = torch.stack([top, -pairs.amin(-1)], -1)
    return -largest, largest


def _first_extreme(x: Tensor, block: tuple[int, ...], low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Of two extremes of one magnitude leave only that which comes first, and 0 in the other's place."""
    tied = (low == -high).reshape(-1)
    if not tied.any():
        return low, high
    blocks = to_blocks(x, block)[tied]
    first = blocks.gather(1, blocks.abs().argmax(1, keepdim=True)).reshape(-1)
    low, high = low.clone(), high.clone()
    low.view(-1)[tied], high.view(-1)[tied] = first.clamp(max=0), first.clamp(min=0)
    return low, high


def _check_finite(x: Tensor, low: Tensor, high: Tensor, who: str) -> None:
    if not (math.isfinite(low.amin()) and math.isfinite(high.amax())):
        refuse_nonfinite(x, who)
