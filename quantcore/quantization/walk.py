"""The tensor walked in boxes of about 1 MB whose blocks all have the same shape, each brought to unclamped codes."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from quantcore.conventions import Convention
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import Blocks, Granularity, PerFlatGroup, Region, split_axes, spread
from quantcore.numerics import CHUNK, KERNELS, rounding, unrounded
from quantcore.qparams import QParams, factor
from quantcore.scheme import Scheme


def unclamped(x: Tensor, params: QParams, scheme: Scheme) -> Iterator[tuple[Region, Tensor]]:
    """Yield what the convention's kernel gives, box by box of `Blocks.blocked_shape`, float32, axes of `split_axes`.

    The only place of this arithmetic. The tensor is a scratch that the next box overwrites.
    """
    for region, work, _ in boxes(x, params, scheme, Blocks.of(scheme.granularity, tuple(x.shape))):
        yield region, work


def boxes(
    x: Tensor, params: QParams, scheme: Scheme, blocks: Blocks
) -> Iterator[tuple[Region, Tensor, Tensor | None]]:
    """Yield region, unclamped values, and the zero_point that was added to them (None: all are 0)."""
    x = blocks.view(x) if params.center is None else blocks.view(x) - params.center
    rules = scheme.rules
    scale, zero_point, shifted = prepare(*coded_with(params, rules), blocks, x.device)
    integer = isinstance(scheme.format, IntFormat)
    # a float's codes are rounded where its exponent is known, in `encode_`
    round_ = rounding(rules.coding.rounding) if integer else unrounded
    # of small floats, which have -0, even a zero_point of 0 tells: -0 + 0 is 0
    shifted = shifted or (KERNELS[rules.coding.kernel].shift_first and not integer)
    scratch = torch.empty(max(r.numel for r in blocks.regions(CHUNK)), device=x.device)
    zeros = params.raw is not None and not bool(scale.abs().amin() > 0)
    for region in blocks.regions(CHUNK):
        own = convention_of(rules, region, scheme.granularity, blocks.blocked_shape)
        values = split_axes(x[region.elements], region.block)
        if own.scale.divisor != 1:
            values = values / own.scale.divisor
        work = scratch[: values.numel()].view(values.shape)
        inverse = None if params.inverse is None else params.inverse[region.grid]
        s = factor(scale[region.grid], inverse, own, stored=zeros)
        shift = spread(zero_point[region.grid]) if shifted else None
        work = KERNELS[own.coding.kernel].run(values, spread(s), shift, work, round_)
        least = own.coding.clamp_min
        yield region, work.clamp_(min=least) if least else work, shift


def coded_with(params: QParams, convention: Convention) -> tuple[Tensor, Tensor]:
    """Return the scale and zero_point that codes are found with: as stored, or as they were before."""
    if convention.storage.quantize_with == "stored" or params.raw is None:
        return params.scale, params.zero_point
    shift = params.low if convention.zero_point.is_min else params.zero_point
    assert shift is not None
    return params.raw, shift


def convention_of(
    convention: Convention, region: Region, granularity: Granularity, shape: tuple[int, ...]
) -> Convention:
    """The convention, or where it divides a short last block and this is it, the one that does so."""
    if convention.coding.short_block == "as_others" or not isinstance(granularity, PerFlatGroup):
        return convention
    full, rest = divmod(shape[0], granularity.size)
    return convention.changed(kernel="A") if rest and region.grid[0].start == full else convention


def inverse_of_levels(values: Tensor, scale: Tensor, blocks: Blocks) -> Tensor:
    """Return (1 / scale) / values: ``scale`` in block form is that of the blocks of ``values``."""
    inverse = torch.empty_like(values)
    for region in blocks.regions(CHUNK):
        part, target = (split_axes(blocks.view(t)[region.elements], region.block) for t in (values, inverse))
        torch.div(torch.reciprocal(spread(scale[region.grid])), part, out=target)
    return inverse


def prepare(scale: Any, zero_point: Any, blocks: Blocks, device: torch.device) -> tuple[Tensor, Tensor, bool]:
    """Parameters as float32 in block form, and whether any zero_point is not 0."""
    grid = blocks.grid
    made = []
    for what, value in (("scale", scale), ("zero_point", zero_point)):
        tensor = torch.as_tensor(value, dtype=torch.float32, device=device)
        if tensor.dim() and tensor.shape != grid:
            raise QuantError(
                f"{what} has shape {tuple(tensor.shape)}, but the blocks of shape {blocks.block} form a grid of {grid}; "
                "give one number, or one per block in that shape."
            )
        made.append(tensor.expand(grid))
    low, high = made[1].aminmax()  # any() takes ten times as long
    return made[0], made[1], bool(low != 0) or bool(high != 0)
