"""make_qx_quants, make_q3_quants and quantize_row_iq4_nl_impl: the scale of a group without a min."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quantcore.formats import CodebookFormat, Format, IntFormat
from quantcore.range_setting.ggml.arithmetic import (
    ALL_ZERO,
    Floats,
    GroupScales,
    Record,
    first_largest,
    nearest,
    nearest_int,
    note,
    total,
    written,
)
from quantcore.range_setting.ggml.search import Search

_TRIALS = [i for i in range(-9, 10) if i != 0]
_PASSES = 5
_SYMMETRIC = (
    "symmetric full-range integer codes of at most 8 bits",
    lambda fmt, symmetric: isinstance(fmt, IntFormat) and symmetric and not fmt.narrow and fmt.bits <= 8,
)


@dataclass(frozen=True)
class MakeQx(Search):
    """The scale of least weighted squared error among 19 trials -(2^(bits-1) + 0.1·i)/extreme, i = -9 … 9.

    Each trial's scale is the least squares fit to its codes. ``weights``: "square" x² · "importance" ·
    "importance_rms" importance · √(sigma2·mean x² + x²), the mean over ``over`` elements, or over the row if
    0. ggml-quants.c, make_qx_quants (Q6_K, and Q3_K, Q4_0, Q5_0 with an imatrix).

    Raises:
        QuantError: ``weights`` is not one of these names, or ``over`` or ``sigma2`` is negative.
    """

    CODES = _SYMMETRIC
    WEIGHTED = ("square", "importance", "importance_rms")

    weights: str = "square"
    sigma2: float = 1.0
    over: int = 256

    def search(self, x: Floats, w: Floats, fmt: Format, record: Record = None) -> GroupScales:
        """Try -nmax / extreme and 18 neighbors; the scale is the least squares fit to the codes of the best.

        Codes are -nmax … nmax - 1. Groups of zeros have scale 0 and the lowest code.
        """
        nmax = 1 << (fmt.bits - 1)
        extreme, size = first_largest(x)
        empty = size < ALL_ZERO
        safe = np.where(empty, np.float32(1.0), extreme)
        wx, codes, work = w * x, np.empty_like(x), np.empty_like(x)
        used = np.float32(-nmax) / safe
        sum_lx, sum_l2 = _sums(x, w, wx, used, nmax, codes, work)
        scale = np.where(sum_l2 != 0, sum_lx / sum_l2, np.float32(0.0))
        best = scale * sum_lx
        note(record, f"{-nmax}", x, w, codes, scale, ~empty)
        for i in _TRIALS:
            tried = -(np.float32(nmax) + np.float32(0.1) * np.float32(i))
            inverse = tried / safe
            sum_lx, sum_l2 = _sums(x, w, wx, inverse, nmax, codes, work)
            fitted = sum_lx / sum_l2
            better = (sum_l2 > 0) & (sum_lx * sum_lx > best * sum_l2)
            note(record, written(tried), x, w, codes, fitted, better & ~empty)
            scale = np.where(better, fitted, scale)
            best, used = np.where(better, scale * sum_lx, best), np.where(better, inverse, used)
        codes = _clipped(np.multiply(x, used, out=codes), nmax, codes)
        codes[:, empty] = -nmax
        return GroupScales(np.where(empty, np.float32(0.0), scale), codes=codes)


def _clipped(values: Floats, nmax: int, out: Floats) -> Floats:
    nearest(values, out)
    return np.clip(out, np.float32(-nmax), np.float32(nmax - 1), out=out)


def _sums(
    x: Floats, w: Floats, wx: Floats, inverse: Floats, nmax: int, codes: Floats, work: Floats
) -> tuple[Floats, Floats]:
    """Σ w·x·l and Σ w·l² of the codes l."""
    _clipped(np.multiply(x, inverse, out=codes), nmax, codes)
    sum_lx = total(np.multiply(wx, codes, out=work))
    np.multiply(w, codes, out=work)
    return sum_lx, total(np.multiply(work, codes, out=work))


@dataclass(frozen=True)
class MakeQ3(Search):
    """The scale of least error weighted by x²: codes by -2^(bits-1)/extreme, then adjusted one by one.

    A code is changed if that improves the fit of the group, in up to five passes. ggml-quants.c,
    make_q3_quants (Q3_K).
    """

    CODES = _SYMMETRIC
    WEIGHTED = ("square",)

    def search(self, x: Floats, w: Floats, fmt: Format, record: Record = None) -> GroupScales:
        """Start from -nmax / extreme; change one code after another if the least squares fit improves.

        Codes are -nmax … nmax - 1; groups of zeros have scale 0 and the lowest code.
        """
        nmax = 1 << (fmt.bits - 1)
        extreme, size = first_largest(x)
        empty = size < ALL_ZERO
        w = x * x
        wx, codes, work = w * x, np.empty_like(x), np.empty_like(x)
        inverse = np.float32(-nmax) / np.where(empty, np.float32(1.0), extreme)
        sums = np.stack(_sums(x, w, wx, inverse, nmax, codes, work))
        note(record, f"{-nmax}", x, w, codes, sums[0] / sums[1], ~empty)
        moving, at = [x, w, wx, codes.copy(), sums.copy()], np.arange(x.shape[1])
        for number in range(1, _PASSES + 1):
            moved = _descend(nmax, *moving)
            codes[:, at], sums[:, at] = moving[3], moving[4]
            changed = np.isin(np.arange(x.shape[1]), at[moved])
            note(record, f"pass {number}", x, w, codes, sums[0] / sums[1], changed)
            if not moved.any():
                break
            moving, at = [part[:, moved] for part in moving], at[moved]  # the others stay as they are
        scale = np.where(sums[1] > 0, sums[0] / sums[1], np.float32(0.0))
        codes[:, empty] = -nmax
        return GroupScales(np.where(empty, np.float32(0.0), scale), codes=codes)


def _descend(nmax: int, x: Floats, w: Floats, wx: Floats, codes: Floats, sums: Floats) -> Floats:
    """One pass over the elements, in place; return which groups changed."""
    moved = np.zeros(x.shape[1], bool)
    new = np.empty(x.shape[1], np.float32)
    for i in range(len(x)):
        without_lx = sums[0] - wx[i] * codes[i]
        without_l2 = sums[1] - w[i] * codes[i] * codes[i]
        nearest_int(x[i] * without_l2 / without_lx, new)
        np.clip(new, np.float32(-nmax), np.float32(nmax - 1), out=new)
        lx = without_lx + wx[i] * new
        l2 = without_l2 + w[i] * new * new
        better = (without_lx > 0) & (new != codes[i]) & (l2 > 0)
        better &= lx * lx * sums[1] > sums[0] * sums[0] * l2
        codes[i] = np.where(better, new, codes[i])
        sums[0], sums[1] = np.where(better, lx, sums[0]), np.where(better, l2, sums[1])
        moved |= better
    return moved


class CodeTable:
    """A table of integers in ascending order; the nearest is found as in best_index_int8, where ties go up.

    The midpoint of two integers is a multiple of ½, so the half-step that a number falls into decides. A
    number beyond the table gets the outermost value.
    """

    def __init__(self, values: tuple[float, ...]) -> None:
        table = np.array(values, np.float32)
        self.first, self.least = table[0], np.float32(2 * table[0])
        halves = np.arange(2 * table[0], 2 * table[-1] + 1)
        middles = table[:-1] + table[1:]  # twice the middles
        self.by_half = table[np.searchsorted(middles, halves, side="right")]

    def round(self, x: Floats, out: Floats, place: npt.NDArray[np.int32]) -> Floats:
        """Write the nearest values; NaN gets the highest, as in best_index_int8."""
        np.multiply(x, np.float32(2.0), out=out)
        np.floor(out, out=out)
        np.subtract(out, self.least, out=out)
        np.fmin(out, np.float32(len(self.by_half) - 1), out=out)
        np.clip(out, np.float32(0.0), None, out=out)
        np.copyto(place, out, casting="unsafe")
        return np.take(self.by_half, place, out=out, mode="clip")


def _is_ascending(fmt: Format) -> bool:
    """Whether it is a codebook of integers in ascending order."""
    ascending = isinstance(fmt, CodebookFormat) and list(fmt.values) == sorted(fmt.values)
    return ascending and all(v == int(v) and abs(v) <= 128 for v in fmt.values)  # type: ignore[union-attr]


@dataclass(frozen=True)
class MakeIq4Nl(Search):
    """The scale of least weighted squared error for a codebook, in 2·ntry + 2 trials from its lowest value.

    ``weights``: "square" x² · "importance_rms" importance · √(sigma2·mean x² + x²), the mean over ``over``
    elements, or over the row if 0. ggml-quants.c, quantize_row_iq4_nl_impl (IQ4_NL, IQ4_XS).

    Raises:
        QuantError: ntry is not an integer from 0 to 1000, ``weights`` is not one of these names, or ``over``
            or ``sigma2`` is negative.
    """

    CODES = (
        "a codebook of ascending integers, such as iq4_nl",
        lambda fmt, symmetric: symmetric and _is_ascending(fmt),
    )
    WEIGHTED = ("square", "importance_rms")

    ntry: int = 7
    weights: str = "square"
    sigma2: float = 2.0
    over: int = 256

    def search(self, x: Floats, w: Floats, fmt: Format, record: Record = None) -> GroupScales:
        """Fit every group's scale, by weighted least squares, to the codes of the best of the trials."""
        assert isinstance(fmt, CodebookFormat)
        table = CodeTable(fmt.values)
        extreme, size = first_largest(x)
        empty = size < ALL_ZERO
        safe = np.where(empty, np.float32(1.0), extreme)
        first = table.first
        start = -safe / first if self.ntry > 0 else safe / first
        q, work, place = np.empty_like(x), np.empty_like(x), np.empty(x.shape, np.int32)
        sum_qx, sum_q2 = _table_sums(x, w, np.float32(1.0) / start, table, q, work, place)
        scale = np.where(sum_q2 > 0, sum_qx / sum_q2, np.float32(0.0))
        best = scale * sum_qx
        note(record, written(-first if self.ntry > 0 else first), x, w, q, scale, ~empty)
        for i in range(-self.ntry, self.ntry + 1):
            tried = np.float32(i) + first
            sum_qx, sum_q2 = _table_sums(x, w, tried / safe, table, q, work, place)
            fitted = sum_qx / sum_q2
            better = (sum_q2 > 0) & (sum_qx * sum_qx > best * sum_q2)
            note(record, written(tried), x, w, q, fitted, better & ~empty)
            scale = np.where(better, fitted, scale)
            best = np.where(better, scale * sum_qx, best)
        return GroupScales(np.where(empty, np.float32(0.0), scale))


def _table_sums(
    x: Floats,
    w: Floats,
    inverse: Floats,
    table: CodeTable,
    q: Floats,
    work: Floats,
    place: npt.NDArray[np.int32],
) -> tuple[Floats, Floats]:
    table.round(np.multiply(x, inverse, out=q), q, place)
    np.multiply(w, q, out=work)
    sum_qx = total(work * x)
    return sum_qx, total(np.multiply(work, q, out=work))
