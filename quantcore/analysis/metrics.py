"""How far the dequantized tensor is from the original.

Sums are float64 over float32 errors x - x̂. The tensor is processed in regions, so no temporary has its size.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.analysis.sums import Sums, quick_sums, sums_of
from quantcore.displayed import Displayed
from quantcore.errors import QuantError
from quantcore.granularity import Blocks, Region, split_axes, spread
from quantcore.numerics import CHUNK, as_float32, like, refuse_nonfinite, wide, widened
from quantcore.qparams import QParams, decode
from quantcore.quantization import (
    Quantized,
    apply_quietly,
    approximations,
    check_result,
    may_leave_integers,
    parameters_of,
    unclamped,
)
from quantcore.scheme import Scheme, accepted, as_scheme, with_importance

_FEW_CODES = 8  # looking for so many costs less than counting all
_CANCELS = 2.0**-7  # the smallest fraction of a sum that may be computed by subtracting the rest
_PARTS = 16  # of a tensor, from which an estimate is made at least


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
class SchemeErrors:
    """`Errors` without index and cosine, its sums to a relative 1e-6, and how many elements are clipped."""

    mse: float
    mae: float
    sse: float
    rmse: float
    sqnr_db: float
    max_abs_error: float
    clipped: int
    undefined: Mapping[str, str] = field(default_factory=dict, hash=False, kw_only=True)


@dataclass(frozen=True, repr=False)
class Report(Displayed, Errors):
    """`Errors` of a quantized tensor, and statistics of its codes.

    An element is clipped if round(x/s) + z lies outside the format's codes (for floats and codebooks, if x/s
    lies more than half a step beyond the outermost value), so that the clamp (or the wraparound) changed it;
    NaN is not clipped. ``clipping_sse`` is the squared error of the clipped elements, ``rounding_sse`` that
    of the others. ``codes_used`` counts distinct codes.
    """

    clipped: int
    clipped_fraction: float
    clipping_sse: float
    rounding_sse: float
    codes_used: int
    codes_available: int


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
    sums = Sums()
    flat, flat_hat = x.reshape(1, -1), x_hat.to(x.device).reshape(1, -1)
    for start in range(0, x.numel(), CHUNK):
        part = slice(start, start + CHUNK)
        sums.merge(sums_of(flat[:, part], flat_hat[:, part], start).sums)
    if not math.isfinite(sums.ee):  # non-finite values show up here, so no extra pass is needed
        refuse_nonfinite(x, "a comparison")
        refuse_nonfinite(x_hat, "a comparison", what="x̂")
    return Errors(**_errors(sums, tuple(x.shape)))


def _errors(sums: Sums, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the fields of `Errors`."""
    found, undefined = sums.metrics()
    return {**found, "max_abs_error_index": sums.index(shape), "undefined": undefined}


def sqnr(result: Quantized) -> float:
    """Return `Report.sqnr_db` in dB, without the rest of the report."""
    sums = Sums()
    for region in result.blocks.regions(CHUNK):
        sums.merge(sums_of_region(result, region))
    return sums.sqnr_db


def squares_among(result: Quantized, which: Tensor) -> tuple[float, float]:
    """Return Σx² and Σe² of some elements of a finite result, in the memory of one region.

    Args:
        which: whether each element counts, in the shape of x; it may be expanded.
    """
    power, sse, view = 0.0, 0.0, result.blocks.view
    for region in result.blocks.regions(CHUNK):
        x, counts = (split_axes(view(t)[region.elements], region.block) for t in (result.given, which))
        x = widened(x)
        own = x.double().masked_fill_(~counts, 0.0)
        power += float(own.square_().sum())
        error = x_hat_of(result, region).sub_(x).double().masked_fill_(~counts, 0.0)
        sse += float(error.square_().sum())
    return power, sse


def sums_of_region(result: Quantized, region: Region) -> Sums:
    """Return the sums of a region of a result."""
    return _sums_of(result, region, *_both(result, region))


def _sums_of(result: Quantized, region: Region, x: Tensor, x_hat: Tensor) -> Sums:
    found = sums_of(x, x_hat).sums
    if region.elements:  # from the flat index in the region to that in the tensor
        inside = np.unravel_index(found.worst_at, tuple(e.stop - e.start for e in region.elements))
        at = [int(i) + e.start for i, e in zip(inside, region.elements, strict=True)]
        found.worst_at = int(np.ravel_multi_index(at, result.blocked_shape))
    return found


# of results that are still in use, so that to show one computes nothing again
_REPORTS: WeakKeyDictionary[Quantized, tuple[tuple[int, ...], Report]] = WeakKeyDictionary()


def report(result: Any, scheme: Scheme | str | None = None) -> Report:
    """Return every metric of a result, in one pass; of a tensor, with the ``scheme`` that quantizes it.

    >>> import quantcore as qc
    >>> found = qc.report(qc.apply([[0.5, -1.0], [2.0, 0.1]], qc.Scheme(qc.INT4)))
    >>> qc.decibels(found.sqnr_db), found.max_abs_error_index, found.codes_used
    ('21.7 dB', (0, 1), 4)
    """
    if scheme is not None:
        result = apply_quietly(result, scheme)
    check_result(result, "report")
    found = _measured(result)
    _REPORTS[result] = _state(result), found
    return found


def known_report(result: Quantized) -> Report | None:
    """Return the report of a result if it was computed before, and neither x nor codes were changed since."""
    state, found = _REPORTS.get(result, (None, None))
    return found if state == _state(result) else None


def _state(result: Quantized) -> tuple[int, ...]:
    """Return how often x and codes were changed in place; tensors of inference mode do not count that."""
    return tuple(-1 if t.is_inference() else t._version for t in (result.kept, result.codes))


def estimate(result: Quantized, elements: int) -> Report:
    """Return the report of some regions of a result, about ``elements`` in all, spread evenly over it.

    ``clipped`` and the sums of squares are those of the sample.
    """
    regions = list(result.blocks.regions(min(elements // _PARTS, CHUNK)))
    step = max(1, len(regions) * max(r.numel for r in regions) // elements)
    return _measured(result, regions[step // 2 :: step])


def _measured(result: Quantized, regions: Sequence[Region] | None = None) -> Report:
    """Return the report of some regions; of all if None."""
    fmt, shape = result.scheme.format, tuple(result.given.shape)
    sums, codes, clipped, clipping_sse, rounding_sse = Sums(), _CodesUsed(fmt.dtype), 0, 0.0, 0.0
    for region, values in unclamped(result.given, result.params, result.computed, regions):
        both = _both(result, region)
        own = _sums_of(result, region, *both)
        sums.merge(own)
        codes.add(result.blocks.view(result.codes)[region.elements])
        outside = _outside(values, result.scheme)
        beyond, inside = _split(*both, outside, own.ee) if len(outside) else (0.0, own.ee)
        clipped += len(outside)
        clipping_sse += beyond
        rounding_sse += inside
    parts: dict[str, Any] = {"clipping_sse": clipping_sse, "rounding_sse": rounding_sse}
    found = _errors(sums, shape)
    found["undefined"] |= {name: sums.reason() for name, value in parts.items() if math.isnan(value)}
    return Report(
        **found,
        **parts,
        clipped=clipped,
        clipped_fraction=clipped / sums.count if sums.count else math.nan,
        codes_used=codes.used,
        codes_available=fmt.available,
    )


def errors_of(
    x: Any, scheme: Scheme | str, power: float | None = None, importance: Any = None
) -> SchemeErrors:
    """Return the errors of the codes that `apply` gives, from sums alone: several times as fast as `report`.

    Args:
        power: Σx², if it is known.
        importance: as in `apply`.

    >>> errors_of([1.0, 2.25, 3.5], Scheme.parse("int4")).max_abs_error
    0.25

    Raises:
        QuantError: as in `apply`.
    """
    scheme = as_scheme(scheme)
    if importance is not None:
        scheme = with_importance(scheme)
    x, scheme, _ = accepted(x, scheme)
    sums, clipped = Sums(), 0
    for _, values, error, beyond in errors_by_region(x, scheme, importance):
        sums.merge(quick_sums(values if power is None else None, error))
        clipped += beyond
    if power is not None:
        sums.xx = power
    if math.isfinite(sums.ee) and sums.xx:
        shown: dict[str, Any] = {name: value for name, value in sums.metrics()[0].items() if name != "cosine"}
        return SchemeErrors(**shown, clipped=clipped)
    whole = report(apply_quietly(x, scheme, importance=importance))
    names = [each.name for each in fields(SchemeErrors)]
    shown = {name: getattr(whole, name) for name in names}
    shown["undefined"] = {name: why for name, why in whole.undefined.items() if name in names}
    return SchemeErrors(**shown)


def errors_by_region(
    x: Tensor, scheme: Scheme, importance: Any = None, params: QParams | None = None
) -> Iterator[tuple[Region, Tensor, Tensor, int]]:
    """Yield each region of x: its elements, their errors, and how many are clipped.

    x and scheme are as `accepted` gives them.

    No codes are kept. Elements and errors are in the axes of `split_axes`, the errors in memory that the next
    region overwrites.

    Args:
        importance: as in `apply`.
        params: of the blocks, if they are known.

    Raises:
        QuantError: as in `apply`.
    """
    if importance is not None:
        scheme, importance = with_importance(scheme), as_float32(importance)
    blocks, rules = Blocks.of(scheme.granularity, tuple(x.shape)), scheme.rules
    if not scheme.range_setting.searches_codes:  # whose codes are found with the scales
        params = parameters_of(x, scheme)[1] if params is None else params
        if rules.refuses_nonfinite or not may_leave_integers(x, params, scheme, rules):
            for region, x_hat, clipped in approximations(x, params, scheme, blocks):
                values = widened(split_axes(blocks.view(x)[region.elements], region.block))
                yield region, values, torch.sub(values, x_hat, out=x_hat), clipped
            return
    result = apply_quietly(x, scheme, importance=importance)
    for region, before in unclamped(result.given, result.params, result.computed):
        x_hat = x_hat_of(result, region)
        values = widened(split_axes(blocks.view(x)[region.elements], region.block))
        yield region, values, torch.sub(values, x_hat, out=x_hat), len(_outside(before, scheme))


def _outside(before: Tensor, scheme: Scheme) -> npt.NDArray[np.int64]:
    """Return the flat indices of the unclamped values that are clipped."""
    (least, most), values = scheme.format.bounds, before.cpu().numpy().reshape(-1)
    if values.min() >= least and values.max() <= most:  # false for NaN
        return np.empty(0, np.int64)
    return np.flatnonzero((values < least) | (values > most))


def x_hat_of(result: Quantized, region: Region) -> Tensor:
    """Return x̂ of one region, with the axes of `split_axes`; valid until this thread asks for the next."""
    codes = split_axes(result.blocks.view(result.codes)[region.elements], region.block)
    scale, zero_point = (spread(p[region.grid]) for p in (result.scale, result.params.zero_point))
    out = like(codes, "x_hat", wide(result.given.dtype))
    return decode(codes, scale, zero_point, out, result.scheme.format, result.dequantizer.at_region(region))


def _both(result: Quantized, region: Region) -> tuple[Tensor, Tensor]:
    """Return x and x̂ of a region in one line; both are valid until this thread asks for the next."""
    x = widened(result.blocks.view(result.given)[region.elements]).reshape(1, -1)
    return x, x_hat_of(result, region).view(1, -1)


def _split(x: Tensor, x_hat: Tensor, outside: npt.NDArray[np.int64], sse: float) -> tuple[float, float]:
    """Return the squared error of the elements ``outside`` and of the others in a region, ``sse`` in all."""
    a, b = (t.cpu().numpy().reshape(-1) for t in (x, x_hat))
    with np.errstate(invalid="ignore", over="ignore"):
        beyond = float(np.square(a[outside] - b[outside], dtype=np.float64).sum())
        inside = sse - beyond
        if not inside > _CANCELS * sse:  # what is left of the difference would be rounding errors
            error = a - b
            error[outside] = 0.0
            inside = float(np.square(error, dtype=np.float64).sum())
    return beyond, inside


class _CodesUsed:
    """Which codes occur, by their bits as an unsigned integer."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._seen = np.zeros(1 << 8 * min(2, dtype.itemsize), bool)

    def add(self, codes: Tensor) -> None:
        """Add the codes of a box; to count them would cost more than to look for the few that are new."""
        low, high = map(int, torch.aminmax(codes))
        if high - low < len(self._seen):
            between = np.arange(low, high + 1)
            missing = between[~self._seen[between % len(self._seen)]]
            if len(missing) <= _FEW_CODES:
                values = codes.cpu().numpy()
                for code in missing:
                    self._seen[code % len(self._seen)] = bool((values == code).any())
                return
        if codes.dtype.itemsize == 1:
            bits = codes.contiguous().view(torch.uint8)
        else:
            bits = codes.to(torch.int32).bitwise_and_(0xFFFF)
        self._seen |= torch.bincount(bits.reshape(-1), minlength=len(self._seen)).cpu().numpy() > 0

    @property
    def used(self) -> int:
        """The number of distinct codes."""
        return int(np.count_nonzero(self._seen))
