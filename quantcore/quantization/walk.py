"""Unclamped codes, region by region: boxes of about 2 MB whose blocks all have the same shape."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from quantcore.conventions import KERNELS, Convention
from quantcore.errors import QuantError
from quantcore.granularity import Blocks, Granularity, PerFlatGroup, Region, split_axes, spread
from quantcore.numerics import CHUNK, rounding, wide
from quantcore.programs import code_program
from quantcore.qparams import QParams
from quantcore.scheme import Scheme

_BITS = 8  # of integers that bfloat16 can represent


def unclamped(
    x: Tensor, params: QParams, scheme: Scheme, regions: Iterable[Region] | None = None
) -> Iterator[tuple[Region, Tensor]]:
    """Yield each region of `Blocks.blocked_shape` with the kernel's result, in the axes of `split_axes`.

    The tensor is scratch memory that the next region overwrites. ``regions``: some of at most `CHUNK`
    elements; by default all.
    """
    for region, work, _ in boxes(x, params, scheme, Blocks.of(scheme.granularity, tuple(x.shape)), regions):
        yield region, work


def boxes(
    x: Tensor, params: QParams, scheme: Scheme, blocks: Blocks, regions: Iterable[Region] | None = None
) -> Iterator[tuple[Region, Tensor, Tensor | None]]:
    """Yield each region, its unclamped values, and the zero_point added to them (None: all are 0)."""
    x, rules = blocks.view(x), scheme.rules
    scale, zero_point, shifted = prepare(*coded_with(params, scheme), blocks, x.device)
    integer = scheme.format.has_zero_point
    fused = KERNELS[rules.coding.kernel].fused
    if fused and scale.numel() != 1:
        raise QuantError("The fused kernel supports only one scale; choose per_tensor or another convention.")
    # for small floats even an added 0 matters: -0 + 0 is 0
    shifted = shifted or (KERNELS[rules.coding.kernel].shift_first and not integer)
    most = max(region.numel for region in blocks.regions(CHUNK))
    scratch = torch.empty(most, dtype=wide(x.dtype), device=x.device)
    zeros = params.raw is not None and params.inverse is None and not bool(scale.abs().amin() > 0)
    round_ = rounding(rules.coding.rounding)
    clamped = integer and scheme.format.bits <= _BITS and rules.coding.overflow == "saturate"
    clamped = clamped and rules.zero_point.is_integer
    shifted = shifted or rules.zero_point.is_middle  # a z of 0 is not the value of code 0
    for region in blocks.regions(CHUNK) if regions is None else regions:
        own = convention_of(rules, region, scheme.granularity, blocks.blocked_shape)
        program = code_program(scheme.format, own, stored=zeros, round_=round_, clamped=clamped)
        values = split_axes(x[region.elements], region.block)
        work = scratch[: values.numel()].view(values.shape)
        shift = spread(zero_point[region.grid]) if shifted else None
        numbers = {"x": values, "s": spread(scale[region.grid]), "z": shift, "mean": params.center}
        if params.inverse is not None:
            numbers["1/s"] = spread(params.inverse[region.grid])
        # floats are rounded in `encode_`, where the exponent is known
        yield region, program.write("v" if integer else "u", numbers, work), shift


def coded_with(params: QParams, scheme: Scheme) -> tuple[Tensor, Tensor]:
    """Return the scale and zero_point that codes are computed with: as stored, or before they are stored."""
    if params.coded is not None:
        return params.coded, params.zero_point
    if params.coded_zero is not None:
        return params.scale, params.coded_zero
    rules = scheme.rules
    if rules.storage.quantize_with != "raw" or params.raw is None:
        return params.scale, params.zero_point
    # given minima are known only as stored, and that of symmetric codes is 0
    has_min = rules.zero_point.is_min and not scheme.symmetric and params.low is not None
    return params.raw, params.low if has_min and params.low is not None else params.zero_point


def convention_of(
    convention: Convention, region: Region, granularity: Granularity, shape: tuple[int, ...]
) -> Convention:
    """Return the convention of a region, which may differ for a shorter last block (`short_block`)."""
    if convention.coding.short_block == "as_others" or not isinstance(granularity, PerFlatGroup):
        return convention
    full, rest = divmod(shape[0], granularity.size)
    return convention.changed(kernel="A") if rest and region.grid[0].start == full else convention


def inverse_of_levels(values: Tensor, scale: Tensor, blocks: Blocks) -> Tensor:
    """Return (1 / scale) / values; ``scale``: in block form, of the blocks of ``values``."""
    inverse = torch.empty_like(values)
    for region in blocks.regions(CHUNK):
        part, target = (split_axes(blocks.view(t)[region.elements], region.block) for t in (values, inverse))
        torch.div(torch.reciprocal(spread(scale[region.grid])), part, out=target)
    return inverse


def prepare(scale: Any, zero_point: Any, blocks: Blocks, device: torch.device) -> tuple[Tensor, Tensor, bool]:
    """Return the parameters as float32 or float64 in block form, and whether any zero_point is not 0."""
    grid = blocks.grid
    made = []
    for what, value in (("scale", scale), ("zero_point", zero_point)):
        wide = isinstance(value, Tensor) and value.dtype == torch.float64
        tensor = torch.as_tensor(value, dtype=torch.float64 if wide else torch.float32, device=device)
        if tensor.dim() and tensor.shape != grid:
            raise QuantError(
                f"{what} has shape {tuple(tensor.shape)}, but the blocks of shape {blocks.block} form a grid "
                f"of {grid}; give one number, or one per block in that shape."
            )
        made.append(tensor)
    low, high = made[1].aminmax()  # any() takes ten times as long
    return made[0].expand(grid), made[1].expand(grid), bool(low != 0) or bool(high != 0)
