"""From unclamped values to codes, and from codes to values: one formula for every format."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from quantcore.conventions import DECODINGS, Convention
from quantcore.expressions import wrap as wrapped
from quantcore.formats import Format, IntFormat
from quantcore.granularity import Region, spread
from quantcore.numerics import like
from quantcore.programs import Program, decoding_of, value_program
from quantcore.qparams.scale import QParams
from quantcore.scheme import Scheme

_BITS = 8  # of integers that bfloat16 can represent


class Dequantizer(NamedTuple):
    """How a library dequantizes.

    ``program``: the value of a code, from q, s and z; ``name``, ``number``: what it takes besides, in block
    form; None where nothing. ``center``: one number that is added last.
    """

    program: Program
    name: str = ""
    number: Tensor | None = None
    center: Tensor | None = None

    @property
    def is_product(self) -> bool:
        """Whether a value is (q - z) · s in float32."""
        (line, *more) = self.program.lines
        return (
            line.of is DECODINGS["scaled"]
            and line.dtype == torch.float32
            and not more
            and self.center is None
        )

    def at(self, pick: Callable[[Tensor], Tensor]) -> "Dequantizer":
        """Return the dequantizer of some elements; ``pick`` selects their blocks in block form."""
        return self if self.number is None else self._replace(number=pick(self.number))

    def at_region(self, region: Region) -> "Dequantizer":
        """Return the dequantizer of a region, to broadcast with elements in the axes of `split_axes`."""
        return self.at(lambda number: spread(number[region.grid]))


def dequantizer_of(params: QParams | None, fmt: Format, c: Convention) -> Dequantizer:
    """Return how the convention dequantizes; with given parameters, and with None, from s and z alone."""
    decoding = decoding_of(c)
    name, number = {"divided": ("1/s", "inverse"), "of_largest": ("max|x|", "high")}.get(decoding, ("", ""))
    found: Tensor | None = getattr(params, number) if params is not None and number else None
    if number and found is None:
        name, decoding = "", "scaled"
    center = None if params is None else params.center
    in_half = c.decoding.decoding_dtype in ("bfloat16", "float16")
    small = in_half and params is not None and _are_codes(params, fmt)
    return Dequantizer(value_program(fmt, c, decoding=decoding, small=small), name, found, center)


def _are_codes(params: QParams, fmt: Format) -> bool:
    """Whether zero points are codes of at most 8 bits, so that q - z has at most 8 bits and a sign."""
    z = torch.as_tensor(params.zero_point)
    if not isinstance(fmt, IntFormat) or fmt.bits > _BITS or z.is_floating_point():
        return False
    return fmt.qmin <= int(z.min()) and int(z.max()) <= fmt.qmax


def decode(
    codes: Tensor,
    scale: Tensor,
    zero_point: Tensor | None,
    out: Tensor,
    fmt: Format,
    dequantizer: Dequantizer,
) -> Tensor:
    """Write (codes - zero_point) * scale into ``out``, float32; parameters broadcast, None is 0.

    Codes of a float or a codebook are decoded to their values. ``dequantizer``: how the library dequantizes.
    """
    if isinstance(fmt, IntFormat):
        return unscale(codes, scale, zero_point, dequantizer, out)
    if out.is_contiguous() and out.dtype == torch.float32:
        fmt.decode_(codes, out)
    else:
        out.copy_(fmt.decode_(codes, like(codes, "decoded")))
    return unscale(out, scale, zero_point, dequantizer)


def unscale(
    values: Tensor,
    scale: Tensor,
    zero_point: Tensor | None,
    dequantizer: Dequantizer,
    out: Tensor | None = None,
) -> Tensor:
    """Dequantize the values of codes, in place or into ``out``, float32."""
    numbers = {"q": values, "s": scale, "z": zero_point, "mean": dequantizer.center}
    if dequantizer.name:
        numbers[dequantizer.name] = dequantizer.number
    found: Tensor = dequantizer.program.write("x̂", numbers, values if out is None else out)
    return found


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
    """Wrap values to two's complement codes, keeping only the lowest bits; int64."""
    return wrapped(values, fmt.qmin - fmt.narrow, fmt.qmax)
