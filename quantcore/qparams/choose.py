"""The scale and zero_point of every block of a tensor."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from quantcore.conventions import Convention
from quantcore.errors import QuantError
from quantcore.granularity import Blocks, PerFlatGroup, ends
from quantcore.numerics import CHUNK, refuse_nonfinite, wide, widened
from quantcore.programs import range_program
from quantcore.qparams.scale import QParams, is_bad, parameters_by
from quantcore.qparams.searched import search_qparams
from quantcore.qparams.squared_error import BlockErrors
from quantcore.range_setting import Given, HalfQuadratic, MinMse, Task
from quantcore.scheme import Scheme, check_supported, full_name, received


def choose_qparams(x: Any, scheme: Scheme | str, importance: Any = None) -> QParams:
    """Return scale and zero_point of every block, before the scales are quantized themselves.

    Args:
        importance: of the elements, for the searches that weight by it; see `apply`.

    >>> import quantcore as qc
    >>> scheme = qc.Scheme.parse("uint4 asymmetric per_channel(0)")
    >>> params = qc.choose_qparams([[0.0, 7.5], [-1.0, 14.0]], scheme)
    >>> params.scale.tolist(), params.zero_point.tolist()
    ([[0.5], [1.0]], [[0], [1]])

    Raises:
        QuantError: the scheme does not fit x, its library does not support it, or x contains NaN or infinity
            and the convention (or a range setting other than `MinMax`) refuses them.
    """
    x, scheme, _ = received(x, scheme)
    shape = tuple(x.shape)
    check_supported(scheme, shape)
    return find_qparams(x, scheme, Blocks.of(scheme.granularity, shape), importance)


def find_qparams(x: Tensor, scheme: Scheme, blocks: Blocks, importance: Any = None) -> QParams:
    """`choose_qparams` for a checked tensor, see `accepted`, and its blocks."""
    setting, rules = scheme.range_setting, scheme.rules
    center = None
    if rules.scale.center == "mean":
        x = widened(x)  # as the codes are computed from the difference
        center = x.mean()
        x = x - center
    refuses = rules.refuses_nonfinite
    who = f"the {rules.name} convention" if refuses else "this range setting"
    if isinstance(setting, Given):
        if refuses:
            refuse_nonfinite(x, who)
        return QParams(*setting.parameters(blocks.grid, x.device), center=center)
    if setting.searches_codes:
        return search_qparams(x.to(torch.float32), scheme, blocks, importance)
    low, high = _range(x, scheme, blocks, who)
    if refuses:  # NaN and infinity show in the extremes of MinMax: no extra pass over x
        _check_finite(x, low, high, who)
    params = replace(parameters_by(range_program(scheme), low, high), center=center)
    _raise_short_block(params.scale, scheme, blocks)
    _check_scale(params.scale, rules)
    if isinstance(setting, HalfQuadratic):
        params = replace(params, zero_point=_half_quadratic(x, params, setting, scheme, blocks))
    stored: torch.dtype = getattr(torch, rules.zero_point.zero_point_dtype)
    if stored == torch.float32 or scheme.symmetric:
        return params
    cast = params.zero_point.to(stored).to(torch.float32)
    return replace(params, zero_point=cast, coded_zero=params.zero_point)


def check_stored(params: QParams, scheme: Scheme) -> None:
    """Refuse stored scales and mins that the convention would refuse as scales.

    Raises:
        QuantError: one is not finite, and the convention refuses it.
    """
    if scheme.range_setting.searches_codes:
        for stored in (params.scale, params.zero_point):
            _check_scale(stored, scheme.rules)


def _check_scale(scale: Tensor, rules: Convention) -> None:
    if is_bad(scale, rules):
        raise QuantError(
            f"{full_name(rules)} refuses a scale that is not a finite "
            "number; replace NaN and infinity in x, or scale x down."
        )


def _raise_short_block(scale: Tensor, scheme: Scheme, blocks: Blocks) -> None:
    """Raise the scale of a shorter last block to a minimum, in place, if the library divides by it."""
    rules, flat = scheme.rules, scheme.granularity
    if rules.coding.short_block != "divided" or not isinstance(flat, PerFlatGroup):
        return
    if blocks.blocked_shape[0] % flat.size:
        scale[-1:].clamp_(min=rules.storage.min_divisor)


def _half_quadratic(
    x: Tensor, params: QParams, setting: HalfQuadratic, scheme: Scheme, blocks: Blocks
) -> Tensor:
    """Return the zero points as HQQ adjusts them, in block form."""
    assert params.inverse is not None  # `check_supported` has ensured it
    inverse, zero_point = (p.reshape(-1) for p in (params.inverse, params.zero_point))
    task = Task(scheme.format, scheme.symmetric)
    return setting.zero_point(blocks.rows(x.float()), inverse, zero_point, task).reshape(blocks.grid)


def ranges(x: Tensor, scheme: Scheme) -> tuple[Tensor, Tensor]:
    """Return the range of every block as the range setting finds it, before the convention changes it.

    In block form. Not for `Given` and searches, which have none.

    Raises:
        QuantError: x contains NaN or infinity, and the range setting refuses them.
    """
    x = x - x.mean() if scheme.rules.scale.center == "mean" else x
    return _range(x, scheme, Blocks.of(scheme.granularity, tuple(x.shape)), "this range setting")


def _range(x: Tensor, scheme: Scheme, blocks: Blocks, who: str) -> tuple[Tensor, Tensor]:
    """Return the range of every block by the range setting, in block form."""
    setting = scheme.range_setting
    if setting.ends_are_elements:
        of_magnitude = scheme.symmetric and range_program(scheme).of_magnitude
        return ends(x, blocks, of_magnitude, scheme.rules.scale.symmetric_scale == "signed_amax")
    found = torch.empty((2, *blocks.grid), dtype=wide(x.dtype), device=x.device)
    # a search passes over its blocks many times, over fewer each time: larger regions need fewer calls
    room = 4 * CHUNK if isinstance(setting, MinMse) else CHUNK
    for grid, rows in blocks.pieces(x, room):
        _check_finite(x, rows, rows, who)
        rows = rows.to(torch.float32)
        task = Task(scheme.format, scheme.symmetric, BlockErrors(rows, scheme).search, blocks.count)
        for every, part in zip(found, setting(rows, task), strict=True):
            every[grid] = part.view(every[grid].shape)
    return found[0], found[1]


def _check_finite(x: Tensor, low: Tensor, high: Tensor, who: str) -> None:
    if not (math.isfinite(low.amin()) and math.isfinite(high.amax())):
        refuse_nonfinite(x, who)
