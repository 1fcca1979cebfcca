"""From a tensor to codes and back: one path for every scheme.

The tensor is processed in regions of about 2 MB whose blocks all have the same shape, in place and into
preallocated outputs: new temporaries of the whole tensor would cost many times the arithmetic.
"""

import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import Blocks, split_axes, spread
from quantcore.numerics import CHUNK, as_float32, refuse_nonfinite, rounding
from quantcore.qparams import (
    Dequantizer,
    QParams,
    check_stored,
    decode,
    dequantizer_of,
    find_qparams,
    fit,
    store,
)
from quantcore.quantization.overflow import may_leave_integers, nan_note, replace_codes, resolve_nonfinite
from quantcore.quantization.searched import keep_searched, lowest_codes
from quantcore.quantization.walk import boxes, inverse_of_levels, prepare
from quantcore.range_setting import Given, MaxScale, Search
from quantcore.scheme import Scheme, check_supported, full_name, with_importance


@dataclass(frozen=True, eq=False)
class Quantized:
    """A tensor, its scheme and the quantized result.

    ``x`` float32; ``codes`` of x's shape, the smallest of int8, uint8, int16, int32; ``params`` in
    block form. ``scales``: the quantized scales, if the scheme quantizes them; `scale` is what they
    dequantize to; ``mins``: likewise, of a convention that stores minima. ``importance``: the elements', where the
    range setting weighs by it. ``warnings``: sentences on likely mistakes.
    """

    x: Tensor
    scheme: Scheme
    codes: Tensor
    params: QParams
    warnings: tuple[str, ...] = field(default=())
    scales: "Quantized | None" = None
    mins: "Quantized | None" = None
    importance: Tensor | None = None

    @property
    def scale(self) -> Tensor:
        """Scales, float32, block form."""
        return self.params.scale

    @property
    def zero_point(self) -> Tensor | None:
        """Zero points, block form: int32, or float32 if the convention stores floats (hqq).

        None for formats without a zero point: floats and codebooks.
        """
        return self.params.zero_point if self.scheme.format.has_zero_point else None

    @cached_property
    def blocks(self) -> Blocks:
        """The layout of x in blocks."""
        return Blocks.of(self.scheme.granularity, tuple(self.x.shape))

    @property
    def block(self) -> tuple[int, ...]:
        """Extent of one block along each axis of `blocked_shape`."""
        return self.blocks.block

    @property
    def blocked_shape(self) -> tuple[int, ...]:
        """The shape in which the blocks are boxes: x's own, or flat where groups cross row boundaries."""
        return self.blocks.blocked_shape

    @property
    def dequantizer(self) -> Dequantizer:
        """How the library dequantizes, in block form."""
        return dequantizer_of(self.params, self.scheme.format, self.scheme.rules)

    @property
    def dequantized(self) -> Tensor:
        """x̂ = (codes - zero_point) * scale, or value * scale for float formats; float32, recomputed at each access."""
        return _dequantize(self.codes, self.params, self.scheme, self.blocks)

    @property
    def error(self) -> Tensor:
        """x - x̂, float32; recomputed at each access."""
        x_hat = self.dequantized
        return torch.sub(self.x, x_hat, out=x_hat)


def apply(x: Any, scheme: Scheme, out: Quantized | None = None, importance: Any = None) -> Quantized:
    """Quantize a tensor or array of any rank.

    Args:
        out: an earlier result of the same shape and format, whose codes are overwritten.
        importance: how much the error of each element counts, as llama.cpp's imatrix has it, the mean of the squared
            inputs: one number per column, (columns,), per expert and column, (experts, columns), or of x's shape.
            The scheme of the result is then the one that ggml uses with an imatrix: another search.

    >>> apply([[0.5, -1.0], [2.0, 0.1]], Scheme(IntFormat(4))).codes
    tensor([[ 2, -3],
            [ 7,  0]], dtype=torch.int8)

    Raises:
        QuantError: the scheme does not fit x, x contains NaN or infinity, or the scheme takes no importance.
    """
    result = apply_quietly(x, scheme, out, importance)
    for note in result.warnings:
        warnings.warn(note, stacklevel=2)
    return result


def apply_quietly(x: Any, scheme: Scheme, out: Quantized | None = None, importance: Any = None) -> Quantized:
    """`apply` that only stores warnings in the result: Python's warning filters are not thread-safe.

    Raises:
        QuantError: as in `apply`.
    """
    x = as_float32(x)
    if importance is not None:
        scheme, importance = with_importance(scheme), as_float32(importance)
    check_supported(scheme, tuple(x.shape))
    blocks = Blocks.of(scheme.granularity, tuple(x.shape))
    params = find_qparams(x, scheme, blocks, importance)
    scales, mins = None, None
    if scheme.scales is not None:
        weights = params.weights if importance is not None else None
        scales = _inner(params.scale, scheme, weights)
        if scheme.rules.zero_point.is_min:
            # ggml's mins of super-blocks are the amounts below 0
            below = scheme.rules.zero_point.zero_point_form == "below"
            mins = _inner(-params.zero_point if below else params.zero_point, scheme, weights)
        params = _stored(params, scheme, scales, mins)
        check_stored(params, scheme)
    codes, of_nan = _codes(x, params, scheme, blocks, out=None if out is None else out.codes)
    params = replace(params, searched=None, weights=None)
    notes = [note for note in (_zero_point_outside(params, scheme), of_nan) if note]
    return Quantized(x, scheme, codes, params, tuple(notes), scales, mins, importance)


def _inner(parameters: Tensor, scheme: Scheme, weights: Tensor | None) -> Quantized:
    """Quantize scales or mins; ``weights``: those of their blocks' elements, if the search uses them."""
    assert scheme.scales is not None
    searched = isinstance(scheme.scales.range_setting, Search)
    return apply_quietly(parameters, scheme.scales, importance=weights if searched else None)


def _stored(params: QParams, scheme: Scheme, scales: Quantized, mins: Quantized | None) -> QParams:
    """Return the parameters as they are stored; ``scales``, ``mins``: the quantized ones."""
    inverse, coded = None, None
    storage = scheme.rules.storage
    if storage.quantize_with == "levels":
        d = scales.params.scale if scales.params.raw is None else scales.params.raw
        coded = dequantize(scales.codes, d, scales.params.zero_point, scales.scheme)
    if scheme.rules.scale.inverse == "of_levels" and not isinstance(scales.scheme.format, IntFormat):
        values = scales.scheme.format.decode(scales.codes)
        inverse = inverse_of_levels(values, scales.params.scale, scales.blocks)
    stored = replace(params, scale=scales.dequantized, raw=params.scale, inverse=inverse, coded=coded)
    of_scales = scales.scheme.range_setting
    if isinstance(of_scales, MaxScale) and of_scales.least:
        lowest_codes(stored, scheme.format.qmin, scales.params, scales.blocks)
    if mins is None:
        return stored
    zero_point = mins.dequantized
    below = scheme.rules.zero_point.zero_point_form == "below"
    return replace(stored, zero_point=zero_point.neg_() if below else zero_point)


def quantize(x: Any, scale: Any, zero_point: Any, scheme: Scheme, out: Tensor | None = None) -> Tensor:
    """Return the codes of x under given parameters (numbers, or tensors in block form).

    Args:
        out: a tensor of x's shape and the format's dtype to write into.

    Raises:
        QuantError: shapes do not match, the scheme's library does not support it, or x contains NaN or infinity and
            the convention refuses them.
    """
    x = as_float32(x)
    check_supported(scheme, tuple(x.shape))
    if scheme.convention.refuses_nonfinite:
        refuse_nonfinite(x, f"the {scheme.convention.name} convention")
    if scheme.rules.storage.quantize_with == "searched":
        raise QuantError(
            f"{full_name(scheme.convention)} takes the codes that its search chose, so that none follow from given "
            "parameters; use apply."
        )
    blocks = Blocks.of(scheme.granularity, tuple(x.shape))
    codes, _ = _codes(x, QParams(scale, zero_point), scheme, blocks, out)
    return codes


def _codes(
    x: Tensor, params: QParams, scheme: Scheme, blocks: Blocks, out: Tensor | None
) -> tuple[Tensor, str]:
    """Return the codes, and a sentence if some elements are NaN."""
    fmt, rules = scheme.format, scheme.rules
    codes = _output(out, blocks, fmt.dtype, x.device)
    if params.searched is not None and rules.storage.quantize_with == "searched":
        return codes.copy_(params.searched), ""
    careful = not rules.refuses_nonfinite and may_leave_integers(x, params, scheme, rules)
    round_ = rounding(rules.coding.rounding)
    nans, blocked = 0, blocks.view(codes)
    for region, work, shift in boxes(x, params, scheme, blocks):
        if careful:
            nans += int(work.isnan().sum())
            if isinstance(fmt, IntFormat):  # a float has codes for NaN
                resolve_nonfinite(work, shift, fmt, rules)
            elif rules.nonfinite.cast == "low_bits":
                work.masked_fill_(~work.isfinite(), 0.0)
        target = split_axes(blocked[region.elements], region.block)
        if isinstance(fmt, IntFormat):
            store(fit(work, scheme), target, fmt)
        else:
            before = work.clone() if careful and rules.nonfinite.nan_replacement else None
            fmt.encode_(work, target, round_)
            replace_codes(target, before, fmt, rules)
    if params.searched is not None and rules.storage.zero_scale == "searched":
        keep_searched(codes, params, blocks)
    return codes, nan_note(nans, rules) if nans and fmt.has_zero_point else ""


def codes_of(x: Tensor, params: QParams, scheme: Scheme) -> Tensor:
    """Return the codes of x under parameters found elsewhere, whatever the range setting; x is float32."""
    blocks = Blocks.of(scheme.granularity, tuple(x.shape))
    return _codes(x, params, replace(scheme, range_setting=Given(1.0)), blocks, None)[0]


def dequantize(
    codes: Tensor, scale: Any, zero_point: Any, scheme: Scheme, out: Tensor | None = None
) -> Tensor:
    """Return (codes - zero_point) * scale, float32; or value * scale for floats; parameters as in `quantize`."""
    blocks = Blocks.of(scheme.granularity, tuple(codes.shape))
    return _dequantize(codes, QParams(scale, zero_point), scheme, blocks, out)


def _dequantize(
    codes: Tensor, params: QParams, scheme: Scheme, blocks: Blocks, out: Tensor | None = None
) -> Tensor:
    """`dequantize` with everything that the convention stores, float32."""
    scale, zero_point, shifted = prepare(params.scale, params.zero_point, blocks, codes.device)
    dequantizer = dequantizer_of(params, scheme.format, scheme.rules)
    x_hat = _output(out, blocks, torch.float32, codes.device)
    blocked = (blocks.view(codes), blocks.view(x_hat))
    for region in blocks.regions(CHUNK):
        source, target = (split_axes(t[region.elements], region.block) for t in blocked)
        z = spread(zero_point[region.grid]) if shifted else None
        decode(source, spread(scale[region.grid]), z, target, scheme.format, dequantizer.at_region(region))
    return x_hat


def _output(out: Tensor | None, blocks: Blocks, dtype: torch.dtype, device: torch.device) -> Tensor:
    shape = blocks.shape
    if out is None:
        return torch.empty(shape, dtype=dtype, device=device)
    if out.shape != shape or out.dtype != dtype or out.device != device:
        raise QuantError(
            f"out has shape {tuple(out.shape)} and {out.dtype}; give one of shape {shape} and {dtype}."
        )
    if shape != blocks.blocked_shape and not out.is_contiguous():
        # its flat form would be a copy, and what is written into a copy is lost
        raise QuantError(
            "out is not contiguous, and groups that cross row boundaries are written along the flat tensor; "
            "give a contiguous one."
        )
    return out


def _zero_point_outside(params: QParams, scheme: Scheme) -> str:
    fmt = scheme.format
    # a float zero point or a minimum, given as an integer, is no code
    if not scheme.rules.zero_point.is_integer or not isinstance(fmt, IntFormat):
        return ""
    low, high = int(params.zero_point.min()), int(params.zero_point.max())
    if fmt.qmin <= low and high <= fmt.qmax:
        return ""
    bad = low if low < fmt.qmin else high
    return (
        f"The zero_point {bad} lies outside the codes {fmt.qmin}..{fmt.qmax} of {fmt}: "
        "no library can store it, and the value 0 is clipped."
    )
