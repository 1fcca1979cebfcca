"""From a tensor to codes and back: one path for every scheme.

The tensor is walked in boxes of about 1 MB whose blocks all have the same shape, in place and into
outputs made once: fresh temporaries of the whole tensor would cost many times the arithmetic.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.formats import Format
from quantcore.granularity import Region, block_shape, grid_shape, regions, split_axes, spread
from quantcore.inputs import CHUNK, as_float32, refuse_nonfinite
from quantcore.qparams import QParams, choose_qparams
from quantcore.scheme import Scheme

# float32 has every whole number up to 2^24; beyond 2^62 no cast to an integer is defined
_CAST_LIMIT = float(1 << 62)


@dataclass(frozen=True, eq=False)
class Quantized:
    """A tensor, its scheme and what came of it.

    ``x`` float32; ``codes`` of x's shape, the smallest of int8, uint8, int16, int32; ``params`` in
    block form. ``warnings``: sentences on what was computed although it is likely a mistake.
    """

    x: Tensor
    scheme: Scheme
    codes: Tensor
    params: QParams
    warnings: tuple[str, ...] = field(default=())

    @property
    def scale(self) -> Tensor:
        """Scales, float32, block form."""
        return self.params.scale

    @property
    def zero_point(self) -> Tensor:
        """Zero points, int32, block form."""
        return self.params.zero_point

    @property
    def block(self) -> tuple[int, ...]:
        """Extent of one block along each axis."""
        return block_shape(self.scheme.granularity, tuple(self.x.shape))

    @property
    def dequantized(self) -> Tensor:
        """x̂ = (codes - zero_point) * scale, float32; computed anew each time."""
        return dequantize(self.codes, self.scale, self.zero_point, self.scheme)

    @property
    def error(self) -> Tensor:
        """x - x̂, float32; computed anew each time."""
        x_hat = self.dequantized
        return torch.sub(self.x, x_hat, out=x_hat)


def apply(x: Any, scheme: Scheme, out: Quantized | None = None) -> Quantized:
    """Quantize a tensor or array of any rank.

    Args:
        out: an earlier result of the same shape and format, whose codes are overwritten.

    >>> apply([[0.5, -1.0], [2.0, 0.1]], Scheme(IntFormat(4))).codes
    tensor([[ 2, -3],
            [ 7,  0]], dtype=torch.int8)

    Raises:
        QuantError: the scheme does not fit x, or x holds NaN or infinity.
    """
    x = as_float32(x)
    params = choose_qparams(x, scheme)
    codes = _codes(x, params.scale, params.zero_point, scheme, out=None if out is None else out.codes)
    outside = _zero_point_outside(params, scheme.format)
    if outside:
        warnings.warn(outside, stacklevel=2)
    return Quantized(x, scheme, codes, params, (outside,) if outside else ())


def quantize(x: Any, scale: Any, zero_point: Any, scheme: Scheme, out: Tensor | None = None) -> Tensor:
    """Return the codes of x under given parameters (numbers, or tensors in block form).

    Args:
        out: a tensor of x's shape and the format's dtype to write into.

    Raises:
        QuantError: shapes do not fit, or x holds NaN or infinity.
    """
    x = as_float32(x)
    refuse_nonfinite(x, f"the {scheme.convention.name} convention")
    return _codes(x, scale, zero_point, scheme, out)


def _codes(x: Tensor, scale: Any, zero_point: Any, scheme: Scheme, out: Tensor | None) -> Tensor:
    codes = _output(out, tuple(x.shape), scheme.format.dtype, x.device)
    for region, work in unclamped(x, scale, zero_point, scheme):
        split_axes(codes[region.elements], region.block).copy_(fit(work, scheme))
    return codes


def unclamped(x: Tensor, scale: Any, zero_point: Any, scheme: Scheme) -> Iterator[tuple[Region, Tensor]]:
    """Yield round(x / s) + z, box by box, float32 with the axes of `split_axes`.

    The only place of this arithmetic. The tensor is a scratch that the next box overwrites.
    """
    shape = tuple(x.shape)
    block = block_shape(scheme.granularity, shape)
    scale, zero_point, shifted = _prepare(scale, zero_point, shape, block, x.device)
    scratch = torch.empty(_largest(shape, block), device=x.device)
    for region in regions(shape, block, CHUNK, whole_blocks=False):
        values = split_axes(x[region.elements], region.block)
        work = scratch[: values.numel()].view(values.shape)
        torch.div(values, spread(scale[region.grid]), out=work).round_()
        if shifted:
            work.add_(spread(zero_point[region.grid]))
        yield region, work


def dequantize(
    codes: Tensor, scale: Any, zero_point: Any, scheme: Scheme, out: Tensor | None = None
) -> Tensor:
    """Return (codes - zero_point) * scale, float32; parameters as in `quantize`."""
    shape = tuple(codes.shape)
    block = block_shape(scheme.granularity, shape)
    scale, zero_point, shifted = _prepare(scale, zero_point, shape, block, codes.device)
    x_hat = _output(out, shape, torch.float32, codes.device)
    for region in regions(shape, block, CHUNK, whole_blocks=False):
        source, target = (split_axes(t[region.elements], region.block) for t in (codes, x_hat))
        z = spread(zero_point[region.grid]) if shifted else None
        decode(source, spread(scale[region.grid]), z, out=target)
    return x_hat


def decode(codes: Tensor, scale: Tensor, zero_point: Tensor | None, out: Tensor) -> Tensor:
    """Write (codes - zero_point) * scale into ``out``, float32; parameters broadcast, None stands for 0."""
    out.copy_(codes)
    if zero_point is not None:
        out.sub_(zero_point)
    return out.mul_(scale)


def fit(values: Tensor, scheme: Scheme) -> Tensor:
    """Bring rounded values into the format by the scheme's overflow rule; may work in place."""
    fmt = scheme.format
    if scheme.convention.overflow == "saturate":
        return values.clamp_(fmt.qmin, fmt.qmax)
    return wrap(values, fmt)


def wrap(values: Tensor, fmt: Format) -> Tensor:
    """Two's complement: the code that is left when only the lowest bits are kept, int64.

    Values beyond ±2^62, where no cast is defined, are taken as ±2^62.
    """
    whole = values.clamp(-_CAST_LIMIT, _CAST_LIMIT).to(torch.int64)
    lowest = -(1 << (fmt.bits - 1)) if fmt.signed else 0
    return whole.sub_(lowest).bitwise_and_((1 << fmt.bits) - 1).add_(lowest)


def _largest(shape: tuple[int, ...], block: tuple[int, ...]) -> int:
    return max(r.numel for r in regions(shape, block, CHUNK, whole_blocks=False))


def _prepare(
    scale: Any, zero_point: Any, shape: tuple[int, ...], block: tuple[int, ...], device: torch.device
) -> tuple[Tensor, Tensor, bool]:
    """Parameters as float32 in block form, and whether any zero_point is not 0."""
    grid = grid_shape(shape, block)
    made = []
    for what, value in (("scale", scale), ("zero_point", zero_point)):
        tensor = torch.as_tensor(value, dtype=torch.float32, device=device)
        if tensor.dim() and tensor.shape != grid:
            raise QuantError(
                f"{what} has shape {tuple(tensor.shape)}, but the blocks of shape {block} form a grid of {grid}; "
                "give one number, or one a block in that shape."
            )
        made.append(tensor.expand(grid))
    return made[0], made[1], bool(made[1].any())


def _output(out: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if out is None:
        return torch.empty(shape, dtype=dtype, device=device)
    if out.shape != shape or out.dtype != dtype or out.device != device:
        raise QuantError(
            f"out has shape {tuple(out.shape)} and {out.dtype}; it must have {shape} and {dtype}."
        )
    return out


def _zero_point_outside(params: QParams, fmt: Format) -> str:
    low, high = int(params.zero_point.min()), int(params.zero_point.max())
    if fmt.qmin <= low and high <= fmt.qmax:
        return ""
    bad = low if low < fmt.qmin else high
    return (
        f"The zero_point {bad} lies outside the codes {fmt.qmin}..{fmt.qmax} of {fmt}; "
        "no library can store it, and the value 0 is clipped."
    )
