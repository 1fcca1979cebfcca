"""How far the dequantized tensor is from the original.

All sums are in float64 over float32 errors x - x̂; the tensor is walked in row blocks, so no temporary
of its size is made.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.granularity import Region, regions, split_axes, spread
from quantcore.inputs import CHUNK, as_float32
from quantcore.quantize import Quantized, unclamped


@dataclass(frozen=True)
class Errors:
    """Error of an approximation of x.

    ``sqnr_db`` = 10·log10(Σx² / Σerror²): inf where nothing is lost (all-zero x too), -inf where x is zero
    and x̂ is not. ``max_abs_error_index``: the first in row-major order. ``cosine``: 1 where both tensors
    are zero, 0 where one is.
    """

    mse: float
    mae: float
    sse: float
    rmse: float
    sqnr_db: float
    max_abs_error: float
    max_abs_error_index: tuple[int, ...]
    cosine: float


@dataclass(frozen=True)
class Report(Errors):
    """`Errors` of a quantized tensor, and what became of its codes.

    An element is clipped where round(x/s) + z lies outside the format's codes, so that the clamp (or the
    wrap) changed it; ``clipping_sse`` and ``rounding_sse`` split the squared error into those elements'
    part and the others'. ``codes_used`` counts distinct codes.
    """

    clipped: int
    clipped_share: float
    clipping_sse: float
    rounding_sse: float
    codes_used: int
    codes_available: int


class _Sums:
    """Running sums over parts of x and x̂."""

    def __init__(self) -> None:
        self.sse = self.sae = self.xx = self.yy = self.xy = 0.0
        self.worst, self.worst_at = -1.0, 0

    def add(self, x: Tensor, x_hat: Tensor, flat_index: Callable[[int], int]) -> Tensor:
        """Count one part; ``flat_index`` places its elements in the whole. Return its error, float32."""
        x, x_hat = x.reshape(-1), x_hat.reshape(-1)
        error = x - x_hat
        size = error.abs()
        place = int(size.argmax())
        worst, at = float(size[place]), flat_index(place)
        if worst > self.worst or (worst == self.worst and at < self.worst_at):
            self.worst, self.worst_at = worst, at
        wide, wide_hat = x.double(), x_hat.double()
        self.sae += float(size.sum(dtype=torch.float64))
        self.sse += _square(error.double())
        self.xx += _square(wide)
        self.yy += _square(wide_hat)
        self.xy += float(torch.dot(wide, wide_hat))
        return error

    def errors(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """The fields of `Errors`."""
        n = math.prod(shape)
        sqnr = math.inf if self.sse == 0 else 10 * math.log10(self.xx / self.sse) if self.xx else -math.inf
        length = math.sqrt(self.xx) * math.sqrt(self.yy)
        cosine = self.xy / length if length else float(self.xx == self.yy)
        index = tuple(int(i) for i in np.unravel_index(self.worst_at, shape)) if shape else ()
        return {
            "mse": self.sse / n,
            "mae": self.sae / n,
            "sse": self.sse,
            "rmse": math.sqrt(self.sse / n),
            "sqnr_db": sqnr,
            "max_abs_error": self.worst,
            "max_abs_error_index": index,
            "cosine": max(-1.0, min(1.0, cosine)),
        }


def errors(x: Any, x_hat: Any) -> Errors:
    """Compare two tensors of the same shape.

    >>> errors([1.0, 2.0], [1.0, 2.5]).mse
    0.125

    Raises:
        QuantError: the shapes differ.
    """
    x, x_hat = as_float32(x), as_float32(x_hat)
    if x.shape != x_hat.shape:
        raise QuantError(
            f"x has shape {tuple(x.shape)}, but x̂ has {tuple(x_hat.shape)}; give two of the same shape."
        )
    sums = _Sums()
    flat, flat_hat = x.reshape(-1), x_hat.reshape(-1)
    for start in range(0, len(flat), CHUNK):
        sums.add(flat[start : start + CHUNK], flat_hat[start : start + CHUNK], start.__add__)
    return Errors(**sums.errors(tuple(x.shape)))


def report(result: Quantized) -> Report:
    """Return every metric of a result, in one walk over it."""
    fmt, shape = result.scheme.format, tuple(result.x.shape)
    sums, clipped, clipping_sse = _Sums(), 0, 0.0
    used = torch.zeros(1 << fmt.bits, dtype=torch.bool, device=result.x.device)
    lowest = fmt.qmin - fmt.narrow  # a wrapped code may be the one that narrow leaves out
    for region, values in unclamped(result.x, result.scale, result.zero_point, result.scheme):
        codes = split_axes(result.codes[region.elements], region.block)
        error = sums.add(result.x[region.elements], _x_hat(result, region), _placed(region, shape))
        outside = ((values < fmt.qmin) | (values > fmt.qmax)).reshape(-1)
        count = int(outside.sum())
        if count:
            clipped += count
            clipping_sse += _square(error[outside].double())
        used[(codes.to(torch.int32) - lowest).reshape(-1)] = True
    return Report(
        **sums.errors(shape),
        clipped=clipped,
        clipped_share=clipped / math.prod(shape),
        clipping_sse=clipping_sse,
        rounding_sse=max(0.0, sums.sse - clipping_sse),
        codes_used=int(used.sum()),
        codes_available=fmt.available,
    )


def block_errors(result: Quantized) -> Tensor:
    """Return the MSE of every block: block form, float64."""
    total = torch.zeros(result.scale.shape, dtype=torch.float64, device=result.x.device)
    count = torch.zeros_like(total)
    for region in _parts(result):
        error = split_axes(result.x[region.elements], region.block) - split_axes(
            _x_hat(result, region), region.block
        )
        inner = tuple(range(1, 2 * len(region.block), 2))
        square = error.double().square_()
        total[region.grid] += square.sum(inner) if inner else square
        count[region.grid] += math.prod(region.block)
    return total / count


def _parts(result: Quantized) -> Iterator[Region]:
    return regions(tuple(result.x.shape), result.block, CHUNK, whole_blocks=False)


def _x_hat(result: Quantized, region: Region) -> Tensor:
    """x̂ of one box: (q - z) * s."""
    codes = split_axes(result.codes[region.elements], region.block).to(torch.float32)
    codes.sub_(spread(result.zero_point[region.grid])).mul_(spread(result.scale[region.grid]))
    return codes.view(result.x[region.elements].shape)


def _placed(region: Region, shape: tuple[int, ...]) -> Callable[[int], int]:
    """Turn an index into a box, flattened, into one into the whole tensor, flattened."""
    box = tuple(e.stop - e.start for e in region.elements)

    def flat_index(place: int) -> int:
        inside = np.unravel_index(place, box)
        return int(
            np.ravel_multi_index(
                [int(i) + e.start for i, e in zip(inside, region.elements, strict=True)], shape
            )
        )

    return flat_index if shape else int


def _square(values: Tensor) -> float:
    flat = values.reshape(-1)
    return float(torch.dot(flat, flat))
