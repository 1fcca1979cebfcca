"""From unclamped values to codes, and from codes to values: one formula for every format."""

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from quantcore.conventions import DECODINGS, KERNELS, Convention
from quantcore.expressions import Expression, in_dtype, run, without
from quantcore.formats import Format, IntFormat
from quantcore.granularity import Region, spread
from quantcore.numerics import like
from quantcore.qparams.scale import QParams
from quantcore.scheme import Scheme

_LEAST_STORED = 2.0**-127  # the smallest scale of e8m0
# beyond 2^62 (2^63, with a margin) casts to int64 are undefined
_CAST_LIMIT = float(1 << 62)


def factor(scale: Tensor, inverse: Tensor | None, convention: Convention, *, stored: bool = False) -> Tensor:
    """Return what the convention's kernel divides x by, or multiplies x by if it uses the inverse.

    Args:
        inverse: 1/scale if the library stores it.
        stored: whether the scale was quantized itself, so that it may be 0.
    """
    kernel = KERNELS[convention.coding.kernel]
    if convention.storage.min_divisor:
        scale = scale.clamp(min=convention.storage.min_divisor)
    s = kernel.factor(scale, inverse)
    if convention.storage.e8m0_min_as:
        least = convention.storage.e8m0_min_as
        s = s.masked_fill(scale == _LEAST_STORED, 1 / least if kernel.inverse else least)
    if stored and inverse is None and convention.storage.zero_scale == "zero_codes":
        s = s.masked_fill(scale == 0, 0.0 if kernel.inverse else math.inf)
    return s


class Dequantizer(NamedTuple):
    """How a library dequantizes; ``how``: "shifted" for q·s + z, or a value of the convention's `decoding`.

    ``number``, in block form, and ``constant``: its operands. ``center``: one number that is added last. ``dtype``:
    the result of each operation is rounded to it.
    """

    how: str
    number: Tensor | None = None
    constant: float = 1.0
    center: Tensor | None = None
    dtype: torch.dtype = torch.float32

    def at(self, pick: Callable[[Tensor], Tensor]) -> "Dequantizer":
        """Return the dequantizer of some elements; ``pick`` selects their blocks in block form."""
        return self if self.number is None else self._replace(number=pick(self.number))

    def at_region(self, region: Region) -> "Dequantizer":
        """Return the dequantizer of a region, to broadcast with elements in the axes of `split_axes`."""
        return self.at(lambda number: spread(number[region.grid]))


SCALED = Dequantizer("scaled")


def decode(
    codes: Tensor,
    scale: Tensor,
    zero_point: Tensor | None,
    out: Tensor,
    fmt: Format,
    dequantizer: Dequantizer = SCALED,
) -> Tensor:
    """Write (codes - zero_point) * scale into ``out``, float32; parameters broadcast, None is 0.

    Codes of a float or a codebook are decoded to their values. ``dequantizer``: how the library dequantizes.
    """
    if isinstance(fmt, IntFormat):
        return unscale(codes, scale, zero_point, dequantizer, out)
    if out.is_contiguous():
        fmt.decode_(codes, out)
    else:
        out.copy_(fmt.decode_(codes, like(out, "decoded")))
    return unscale(out, scale, zero_point, dequantizer)


def unscale(
    values: Tensor,
    scale: Tensor,
    zero_point: Tensor | None,
    dequantizer: Dequantizer = SCALED,
    out: Tensor | None = None,
) -> Tensor:
    """Dequantize the values of codes, in place or into ``out``, float32."""
    numbers = {
        "q": values, "s": scale, "z": zero_point, "1/s": dequantizer.number, "max|x|": dequantizer.number,
        "1/max": dequantizer.constant, "mean": dequantizer.center,
    }  # fmt: skip
    absent = tuple(name for name in ("z", "mean") if numbers[name] is None)
    found: Tensor = run(_decoding(dequantizer.how, dequantizer.dtype, absent), numbers, values if out is None else out)
    return found


@cache
def _decoding(how: str, dtype: torch.dtype, absent: tuple[str, ...]) -> Expression:
    return in_dtype(without(DECODINGS[how], *absent), dtype, {})


def dequantizer_of(params: QParams, fmt: Format, convention: Convention) -> Dequantizer:
    """Return how the convention dequantizes; given parameters have neither inverse nor range."""
    found = _operations_of(params, fmt, convention)
    dtype = convention.decoding.decoding_dtype
    return found if dtype == "float32" else found._replace(dtype=getattr(torch, dtype))


def _operations_of(params: QParams, fmt: Format, convention: Convention) -> Dequantizer:
    if convention.zero_point.is_min:
        return Dequantizer("shifted")
    if convention.decoding.decoding == "divided" and params.inverse is not None:
        return Dequantizer("divided", params.inverse, center=params.center)
    if convention.decoding.decoding == "of_largest" and params.high is not None:
        return Dequantizer("of_largest", params.high, float(torch.tensor(1.0) / fmt.symmetric_max))
    return SCALED if params.center is None else Dequantizer("scaled", center=params.center)


def fit(values: Tensor, scheme: Scheme) -> Tensor:
    """Bring rounded values into the format by the scheme's overflow rule; may work in place."""
    fmt = scheme.format
    if scheme.convention.coding.overflow == "saturate":
        return values.clamp_(fmt.qmin, fmt.qmax)
    return wrap(values, fmt)


def store(values: Tensor, codes: Tensor, fmt: IntFormat) -> None:
    """Write integers of the format into ``codes``."""
    if codes.dtype == torch.uint8:  # casting from float32 to uint8 takes six times as long as to int8
        if fmt.qmax <= torch.iinfo(torch.int8).max:
            codes = codes.view(torch.int8)
        else:
            values = like(values, "integers", torch.int32).copy_(values)
    codes.copy_(values)


def wrap(values: Tensor, fmt: Format) -> Tensor:
    """Wrap values to two's complement codes, keeping only the lowest bits; int64.

    Values beyond ±2^62 count as ±2^62.
    """
    integer = values.clamp(-_CAST_LIMIT, _CAST_LIMIT).to(torch.int64)
    lowest = -(1 << (fmt.bits - 1)) if fmt.signed else 0
    return integer.sub_(lowest).bitwise_and_((1 << fmt.bits) - 1).add_(lowest)
