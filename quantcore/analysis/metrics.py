"""How far the dequantized tensor is from the original.

Sums are float64 over float32 errors x - x̂. The tensor is processed in chunks, so no temporary of its size is
needed.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.granularity import Region, regions, split_axes, spread
from quantcore.numerics import CHUNK, as_float32, refuse_nonfinite
from quantcore.qparams import decode
from quantcore.quantization import Quantized, unclamped


@dataclass(frozen=True)
class Errors:
    """Error of an approximation of x.

    ``sqnr_db`` = 10·log10(Σx² / Σerror²) in dB: inf if x̂ equals x, -inf if x is zero everywhere and x̂ is
    not. ``max_abs_error_index``: the first in row-major order. If x̂ or an error exceeds float32, the sums
    are inf and ``sqnr_db`` is -inf.

    An undefined metric is nan (``max_abs_error_index``: None), and ``undefined`` gives the reason under its
    name: x or x̂ contains NaN, a sum is divided by 0 (``sqnr_db`` if x and x̂ are both zero everywhere,
    ``cosine`` if one of them is), or infinity is divided by infinity. Defined metrics have no entry there.
    """

    mse: float
    mae: float
    sse: float
    rmse: float
    sqnr_db: float
    max_abs_error: float
    max_abs_error_index: tuple[int, ...] | None
    cosine: float
    undefined: Mapping[str, str] = field(default_factory=dict, hash=False, kw_only=True)


@dataclass(frozen=True)
class Report(Errors):
    """`Errors` of a quantized tensor, and statistics of its codes.

    An element is clipped if round(x/s) + z lies outside the format's codes (for floats and codebooks, if x/s lies
    more than half a step beyond the outermost value), so that the clamp (or the wraparound) changed it; NaN is not
    clipped. ``clipping_sse`` is the squared error of the clipped elements, ``rounding_sse`` that of the others.
    ``codes_used`` counts distinct codes.
    """

    clipped: int
    clipped_fraction: float
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
        """Add one part; ``flat_index`` maps its indices to the tensor's. Return its squared errors, float64."""
        x, x_hat = x.reshape(-1), x_hat.reshape(-1)
        error = x - x_hat
        wide, wide_hat, square = x.double(), x_hat.double(), error.double()
        self.xx += float(torch.dot(wide, wide))
        self.yy += float(torch.dot(wide_hat, wide_hat))
        self.xy += float(torch.dot(wide, wide_hat))
        self.sse += float(torch.dot(square, square))
        size = error.abs_()
        self.sae += float(size.sum(dtype=torch.float64))
        self._keep_worst(size, flat_index)
        return square.square_()

    def _keep_worst(self, size: Tensor, flat_index: Callable[[int], int]) -> None:
        worst = float(size.amax())
        if math.isnan(worst):  # no element is the worst if an error is NaN
            self.worst = math.nan
        if not worst >= self.worst:  # argmax costs 15 times as much as amax, so it runs only when needed
            return
        at = flat_index(int(size.argmax()))
        if worst > self.worst or at < self.worst_at:
            self.worst, self.worst_at = worst, at

    def errors(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """The fields of `Errors`."""
        n = math.prod(shape)
        found: dict[str, Any] = {
            "mse": self.sse / n,
            "mae": self.sae / n,
            "sse": self.sse,
            "rmse": math.sqrt(self.sse / n),
            "sqnr_db": sqnr_of(self.xx, self.sse),
            "max_abs_error": self.worst,
            "cosine": cosine_of(self.xx, self.yy, self.xy),
        }
        found["undefined"] = self.reasons(found)
        if math.isnan(self.worst):
            return found | {"max_abs_error_index": None}
        index = tuple(int(i) for i in np.unravel_index(self.worst_at, shape)) if shape else ()
        return found | {"max_abs_error_index": index}

    def reasons(self, found: Mapping[str, float]) -> dict[str, str]:
        """Why each undefined metric is nan; squares of float32 never overflow xx or yy."""
        nonfinite = [
            f"{name} contains {what}"
            for name, total in (("x", self.xx), ("x̂", self.yy))
            for what, is_so in (("NaN", math.isnan), ("infinity", math.isinf))
            if is_so(total)
        ]
        zero = [
            f"{name} is zero everywhere" for name, total in (("x", self.xx), ("x̂", self.yy)) if total == 0
        ]
        why = " and ".join(nonfinite or zero)
        return {name: why for name, value in found.items() if math.isnan(value)}


def sqnr_of(power: float, sse: float) -> float:
    """Return 10·log10(power / sse) in dB, with power Σx² and sse Σerror²; nan for 0/0, ∞/∞ and NaN."""
    if math.isnan(power) or math.isnan(sse) or (power, sse) in ((0, 0), (math.inf, math.inf)):
        return math.nan
    if sse == 0:
        return math.inf
    return 10 * math.log10(power / sse) if power and sse < math.inf else -math.inf


def relative_error(power: float, sse: float) -> float:
    """Return the RMS error over the RMS of x, with power Σx² and sse Σerror²; 0 for 0/0."""
    return math.sqrt(sse / power) if power else math.inf if sse else 0.0


def cosine_of(xx: float, yy: float, xy: float) -> float:
    """Return the cosine of the angle between two tensors, from Σx², Σy² and Σx·y; nan if one is 0 everywhere."""
    length = math.sqrt(xx) * math.sqrt(yy)
    cosine = xy / length if length else math.nan
    return math.nan if math.isnan(cosine) else max(-1.0, min(1.0, cosine))


def decibels(value: float, digits: int = 1) -> str:
    """Format an SQNR as pages and figures show it: ``18.3 dB``, ``exact``, ``-∞ dB`` or ``not defined``.

    >>> decibels(18.257), decibels(math.inf)
    ('18.3 dB', 'exact')
    """
    if math.isnan(value):
        return "not defined"
    if math.isinf(value):
        return "exact" if value > 0 else "-∞ dB"
    return f"{value:.{digits}f} dB"


def errors(x: Any, x_hat: Any) -> Errors:
    """Compare two tensors of the same shape.

    >>> errors([1.0, 2.0], [1.0, 2.5]).mse
    0.125

    Raises:
        QuantError: the shapes differ, or one of them contains NaN or infinity.
    """
    x, x_hat = as_float32(x), as_float32(x_hat)
    if x.shape != x_hat.shape:
        raise QuantError(
            f"x has shape {tuple(x.shape)}, but x̂ has {tuple(x_hat.shape)}; give two of the same shape."
        )
    sums = _Sums()
    flat, flat_hat = x.reshape(-1), x_hat.to(x.device).reshape(-1)
    for start in range(0, len(flat), CHUNK):
        sums.add(flat[start : start + CHUNK], flat_hat[start : start + CHUNK], start.__add__)
    if not math.isfinite(sums.sse):  # non-finite values show up here, so no extra pass is needed
        refuse_nonfinite(x, "a comparison")
        refuse_nonfinite(x_hat, "a comparison", what="x̂")
    return Errors(**sums.errors(tuple(x.shape)))


def sqnr(result: Quantized) -> float:
    """Return `Report.sqnr_db` in dB, without the rest of the report."""
    x, power, sse = result.x.reshape(result.blocked_shape), 0.0, 0.0
    for region in regions(result.blocked_shape, result.block, CHUNK, whole_blocks=False):
        part = split_axes(x[region.elements], region.block)
        power += _sum_of_squares(part)
        sse += _sum_of_squares(part - x_hat_of(result, region))
    return sqnr_of(power, sse)


def _sum_of_squares(values: Tensor) -> float:
    wide = values.double().reshape(-1)
    return float(torch.dot(wide, wide))


def report(result: Quantized) -> Report:
    """Return every metric of a result, in one pass."""
    fmt, shape = result.scheme.format, tuple(result.x.shape)
    sums, clipped, clipping_sse, rounding_sse = _Sums(), 0, 0.0, 0.0
    least, most = fmt.bounds
    counts = torch.zeros((), dtype=torch.int64, device=result.x.device)
    blocked = [t.reshape(result.blocked_shape) for t in (result.x, result.codes)]
    for region, values in unclamped(result.x, result.params, result.scheme):
        x, codes = (split_axes(t[region.elements], region.block) for t in blocked)
        square = sums.add(x, x_hat_of(result, region), _placed(region, result.blocked_shape))
        counts = counts + _count_codes(codes)
        lowest, highest = torch.aminmax(values)
        if not (lowest >= least and highest <= most):  # NaN too
            outside = ((values < least) | (values > most)).reshape(-1)
            clipped += int(outside.count_nonzero())
            clipping_sse += float(square[outside].sum())
            square[outside] = 0.0
        rounding_sse += float(square.sum())
    found = sums.errors(shape)
    parts = {"clipping_sse": clipping_sse, "rounding_sse": rounding_sse}
    return Report(
        **found | parts | {"undefined": found["undefined"] | sums.reasons(parts)},
        clipped=clipped,
        clipped_fraction=clipped / math.prod(shape),
        codes_used=int(counts.count_nonzero()),
        codes_available=fmt.available,
    )


def x_hat_of(result: Quantized, region: Region) -> Tensor:
    """Return x̂ of one region, with the axes of `split_axes`."""
    codes = split_axes(result.codes.view(result.blocked_shape)[region.elements], region.block)
    scale, zero_point = (spread(p[region.grid]) for p in (result.scale, result.params.zero_point))
    out = torch.empty(codes.shape, device=codes.device)
    return decode(codes, scale, zero_point, out, result.scheme.format, result.dequantizer.at_region(region))


def _count_codes(codes: Tensor) -> Tensor:
    """How often each code occurs, indexed by its bits as an unsigned integer."""
    if codes.dtype.itemsize == 1:
        return torch.bincount(codes.view(torch.uint8).reshape(-1), minlength=1 << 8)
    return torch.bincount(codes.to(torch.int32).bitwise_and_(0xFFFF).reshape(-1), minlength=1 << 16)


def _placed(region: Region, shape: tuple[int, ...]) -> Callable[[int], int]:
    """Return a function from flat indices of a region to flat indices of the tensor."""
    box = tuple(e.stop - e.start for e in region.elements)

    def flat_index(place: int) -> int:
        inside = np.unravel_index(place, box)
        at = [int(i) + e.start for i, e in zip(inside, region.elements, strict=True)]
        return int(np.ravel_multi_index(at, shape))

    return flat_index if shape else int
