"""make_qkx2_quants and make_qkx3_quants: scale and min of a group, by least squares over trial scales."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quantcore.formats import Format, IntFormat
from quantcore.range_setting.ggml.arithmetic import (
    EXACT_BELOW,
    Floats,
    GroupScales,
    Nearest,
    Record,
    Trial,
    nearest,
    nearest_int,
    total,
    written,
)
from quantcore.range_setting.ggml.search import Search

_AFFINE = (
    "unsigned asymmetric codes of at most 8 bits",
    lambda fmt, symmetric: isinstance(fmt, IntFormat) and not fmt.signed and not symmetric and fmt.bits <= 8,
)


def make_qkx(
    self: "MakeQkx2 | MakeQkx3", x: Floats, w: Floats, fmt: Format, record: Record = None
) -> GroupScales:
    """Search scale and min of every group.

    Groups with values that may exceed `EXACT_BELOW` are searched again with the bit arithmetic of
    nearest_int.
    """
    nmax = int(fmt.qmax)
    found, risky = _search(self, x, w, nmax, nearest, record)
    if risky.any():
        some, weights = (np.ascontiguousarray(part[:, risky]) for part in (x, w))
        again, _ = _search(self, some, weights, nmax, nearest_int, None)
        assert found.min is not None
        assert found.codes is not None
        found.scale[risky], found.min[risky], found.codes[:, risky] = again
    return found


def _search(
    setting: "MakeQkx2 | MakeQkx3", x: Floats, w: Floats, nmax: int, round_: Nearest, record: Record
) -> tuple[GroupScales, npt.NDArray[np.bool_]]:
    top, absolute = np.float32(nmax), setting.use_mad
    lowest, high = _first_lowest(x), x.max(axis=0)
    sum_w, sum_x = total(w), total(w * x)
    low = np.where(lowest > 0, np.float32(0.0), lowest)
    flat = high == low
    codes, work, product = (np.empty_like(x) for _ in range(3))
    width = np.where(flat, np.float32(1.0), high - low)
    inverse = top / width
    scale = np.float32(1.0) / inverse
    _coded(x, low, inverse, top, round_, codes)
    best = _error(x, w, codes, scale, low, absolute, work)
    used_inverse, used_low = inverse, low.copy()
    widest, lowest_of_all = np.abs(inverse), low.copy()
    if record is not None:
        record.append(Trial(written(top), scale.copy(), -low, best.copy(), ~flat))
    steps = np.arange(setting.nstep + 1, dtype=np.float32)
    for factor in np.float32(setting.rmin) + np.float32(setting.rdelta) * steps + top:
        inverse = factor / width
        widest, lowest_of_all = np.maximum(widest, np.abs(inverse)), np.minimum(lowest_of_all, low)
        _coded(x, low, inverse, top, round_, codes)
        trial_scale, trial_low, usable = _fitted(x, w, codes, sum_w, sum_x, work, product)
        error = _error(x, w, codes, trial_scale, trial_low, absolute, work)
        better = usable & (error < best)
        if record is not None:
            record.append(Trial(written(factor), trial_scale, -trial_low, error, better & ~flat))
        at = np.flatnonzero(better & ~flat)  # mostly few
        best[at], used_inverse[at], used_low[at] = error[at], inverse[at], low[at]
        scale[at], low[at] = trial_scale[at], trial_low[at]
        width[at] = high[at] - low[at]
    _coded(x, used_low, used_inverse, top, round_, codes)
    codes[:, flat] = 0.0
    # a bound on all values that were rounded: beyond EXACT_BELOW, `nearest` may round differently from ggml
    reach = (np.maximum(np.abs(high), np.abs(lowest)) - lowest_of_all) * widest
    risky = ~(reach <= EXACT_BELOW) & ~flat
    return GroupScales(np.where(flat, np.float32(0.0), scale), -low, codes), risky


def _first_lowest(x: Floats) -> Floats:
    """Return the lowest element, the first of equal ones: +0 equals -0, but files contain the sign."""
    lowest: Floats = x.min(axis=0)
    zero = lowest == 0
    if zero.any():
        some = x[:, zero]
        lowest[zero] = some[(some == 0).argmax(axis=0), np.arange(some.shape[1])]
    return lowest


def _coded(x: Floats, low: Floats, inverse: Floats, top: Any, round_: Nearest, out: Floats) -> None:
    """Write the codes of one trial."""
    np.subtract(x, low, out=out)
    np.multiply(out, inverse, out=out)
    round_(out, out)
    np.clip(out, np.float32(0.0), top, out=out)


def _fitted(
    x: Floats, w: Floats, codes: Floats, sum_w: Floats, sum_x: Floats, work: Floats, product: Floats
) -> tuple[Floats, Floats, Floats]:
    """Fit the codes to x by weighted least squares: scale, min, and in which groups the fit exists."""
    np.multiply(w, codes, out=work)
    sum_l = total(work)
    np.multiply(work, codes, out=product)
    sum_l2 = total(product)
    np.multiply(work, x, out=work)
    sum_xl = total(work)
    determinant = sum_w * sum_l2 - sum_l * sum_l
    usable = determinant > 0
    scale = (sum_w * sum_xl - sum_x * sum_l) / determinant
    low = (sum_l2 * sum_x - sum_l * sum_xl) / determinant
    above = np.flatnonzero(low > 0)
    scale[above], low[above] = sum_xl[above] / sum_l2[above], np.float32(0.0)
    return scale, low, usable


def _error(
    x: Floats, w: Floats, codes: Floats, scale: Floats, low: Floats, absolute: bool, work: Floats
) -> Floats:
    """Return the weighted error of each group: the sum of |difference| or of its square."""
    np.multiply(codes, scale, out=work)
    np.add(work, low, out=work)
    np.subtract(work, x, out=work)
    if absolute:
        np.abs(work, out=work)
    else:
        np.multiply(work, work, out=work)
    np.multiply(work, w, out=work)
    return total(work)


@dataclass(frozen=True)
class MakeQkx2(Search):
    """Scale and min of least weighted error in nstep + 2 trials, all but the first refined by least squares.

    The trials are nmax/(max - min) and (rmin + rdelta·i + nmax)/(max - min), i = 0 … nstep; a better one also
    replaces the min that later trials start from. ``weights``: "abs" |x| · "rms_plus_abs" √(mean x²) + |x|.
    ``use_mad``: the error is |difference|, else its square. ggml-quants.c, make_qkx2_quants (Q2_K, Q4_K,
    Q5_K).

    Raises:
        QuantError: nstep is not an integer from 0 to 1000, or ``weights`` is not one of these names.
    """

    DIVISOR = "(max - min)"
    CODES = _AFFINE
    WEIGHTED = ("abs", "rms_plus_abs")

    rmin: float
    rdelta: float
    nstep: int
    weights: str = "rms_plus_abs"
    use_mad: bool = False

    search = make_qkx


@dataclass(frozen=True)
class MakeQkx3(Search):
    """`MakeQkx2` with the importance of each element: the weights are importance · √(sigma2·mean x² + x²).

    The mean is taken over ``over`` elements (a super-block), or over the row if that is 0. ggml-quants.c,
    make_qkx3_quants (Q2_K, Q4_K, Q5_K, Q4_1, Q5_1 with an imatrix).

    Raises:
        QuantError: nstep is not an integer from 0 to 1000, or ``over`` or ``sigma2`` is negative.
    """

    DIVISOR = "(max - min)"
    CODES = _AFFINE
    WEIGHTED = ("importance_rms",)

    rmin: float
    rdelta: float
    nstep: int
    sigma2: float = 1.0
    over: int = 256
    use_mad: bool = False

    search = make_qkx
