"""How ggml quantizes scales and mins of a super-block: make_qp_quants with an imatrix."""

from dataclasses import dataclass

import numpy as np

from quantcore.formats import Format, IntFormat
from quantcore.range_setting.ggml.arithmetic import (
    ALL_ZERO,
    Floats,
    GroupScales,
    Record,
    first_largest,
    nearest_int,
    note,
    squared_error,
    total,
    written,
)
from quantcore.range_setting.ggml.search import Search

_TRIALS = [i for i in range(-4, 5) if i != 0]
_PASSES = 5


def _codes(x: Floats, inverse: Floats, nmax: int) -> Floats:
    codes = nearest_int(x * inverse, np.empty_like(x))
    return np.minimum(codes, np.float32(nmax), out=codes)


def _descend(x: Floats, w: Floats, codes: Floats, sums: list[Floats], nmax: int) -> bool:
    """One pass over the elements, in place; return whether a code changed."""
    moved = False
    new = np.empty(x.shape[1], np.float32)
    for i in range(len(x)):
        wx = w[i] * x[i]
        without_lx = sums[0] - wx * codes[i]
        without_l2 = sums[1] - w[i] * codes[i] * codes[i]
        nearest_int(x[i] * without_l2 / without_lx, new)
        np.minimum(new, np.float32(nmax), out=new)
        lx, l2 = without_lx + wx * new, without_l2 + w[i] * new * new
        better = (without_lx > 0) & (without_l2 > 0) & (new != codes[i])
        better &= lx * lx * sums[1] > sums[0] * sums[0] * l2
        codes[i] = np.where(better, np.mod(new, np.float32(256.0)), codes[i])
        sums[0], sums[1] = np.where(better, lx, sums[0]), np.where(better, l2, sums[1])
        moved = moved or bool(better.any())
    return moved


def largest_positive(x: Floats, nmax: int) -> GroupScales:
    """Scale max / nmax; codes round(x · (nmax / max)), 0 where no number is positive."""
    top = np.maximum(x.max(axis=0), np.float32(0.0))
    inverse = np.where(top > 0, np.float32(nmax) / np.where(top > 0, top, np.float32(1.0)), np.float32(0.0))
    codes = nearest_int(x * inverse, np.empty_like(x))
    codes = np.minimum(np.mod(codes, np.float32(256.0)), np.float32(nmax))
    return GroupScales(top / np.float32(nmax), codes=codes)


def largest_magnitude(x: Floats, nmax: int, reciprocal: bool, least: float, zero_code: int) -> GroupScales:
    """Scale -extreme / nmax, or 1 / (-nmax / extreme) if ``reciprocal``; codes round(x · (-nmax / extreme)).

    Where the extreme's magnitude is 0 or below ``least``, the scale is 0 and the codes are ``zero_code``.
    """
    extreme, size = first_largest(x)
    empty = (size == 0) | (size < np.float32(least))
    inverse = np.float32(-nmax) / np.where(empty, np.float32(1.0), extreme)
    codes = nearest_int(x * inverse, np.empty_like(x))
    np.clip(codes, np.float32(-nmax), np.float32(nmax - 1), out=codes)
    codes[:, empty] = zero_code
    scale = np.float32(1.0) / inverse if reciprocal else -extreme / np.float32(nmax)
    # C negates the 0 that its search for the extreme begins with
    return GroupScales(np.where(empty, np.float32(0.0 if reciprocal else -0.0), scale), codes=codes)


@dataclass(frozen=True)
class MakeQp(Search):
    """For positive numbers such as scales: nmax/max and 8 neighbors, then one code after another is adjusted.

    Weighted by importance: that of a scale is the sum of the weights in its group. ggml-quants.c,
    make_qp_quants (scales and mins of Q2_K, Q4_K, Q5_K with an imatrix).
    """

    DIVISOR = "max"
    CODES = (
        "unsigned symmetric codes of at most 8 bits",
        lambda fmt, symmetric: isinstance(fmt, IntFormat) and not fmt.signed and symmetric and fmt.bits <= 8,
    )
    WEIGHTED = ("importance",)

    def search(self, x: Floats, w: Floats, fmt: Format, record: Record = None) -> GroupScales:
        """Try nmax / max and 8 neighbors, then adjust one code after another, in up to five passes.

        Codes are 0 … nmax; a group without a positive number has scale 0 and codes 0.
        """
        nmax = int(fmt.qmax)
        top = np.maximum(x.max(axis=0), np.float32(0.0))
        empty = top < ALL_ZERO
        safe = np.where(empty, np.float32(1.0), top)
        inverse = np.float32(nmax) / safe
        codes = nearest_int(x * inverse, np.empty_like(x))
        best = squared_error(x, w, codes, np.float32(1.0) / inverse)
        note(record, f"{nmax}", x, w, codes, np.float32(1.0) / inverse, ~empty)
        for i in _TRIALS:
            numerator = np.float32(0.1) * np.float32(i) + np.float32(nmax)
            tried = numerator / safe
            codes, scale = _codes(x, tried, nmax), np.float32(1.0) / tried
            error = squared_error(x, w, codes, scale)
            better = error < best
            note(record, written(numerator), x, w, codes, scale, better & ~empty)
            best, inverse = np.where(better, error, best), np.where(better, tried, inverse)
        codes = _codes(x, inverse, nmax)
        sums = [total(w * x * codes), total(w * codes * codes)]
        codes = np.mod(codes, np.float32(256.0))  # uint8
        for _ in range(_PASSES):
            if not _descend(x, w, codes, sums, nmax):
                break
        scale = np.where(sums[1] > 0, sums[0] / sums[1], np.float32(0.0))
        note(record, "least squares, codes moved", x, w, codes, scale, ~empty)
        codes[:, empty] = 0.0
        return GroupScales(np.where(empty, np.float32(0.0), scale), codes=codes)


@dataclass(frozen=True)
class MaxScale(Search):
    """For scales: max/nmax of the numbers for unsigned codes, -extreme/2^(bits-1) for signed codes.

    ``reciprocal``: for signed codes, 1/(-2^(bits-1)/extreme), which float32 rounds twice. ``least``: for
    signed codes, an extreme of smaller magnitude counts as 0. ``zero_code``: for signed codes, the code if
    all scales count as 0. ggml-quants.c, quantize_row_q4_K_ref and similar functions (the scales of K-quants
    without an imatrix).
    """

    CODES = (
        "symmetric integer codes of at most 8 bits",
        lambda fmt, symmetric: isinstance(fmt, IntFormat) and symmetric and fmt.bits <= 8,
    )

    reciprocal: bool = False
    least: float = 0.0
    zero_code: int = 0

    @property
    def takes_importance(self) -> bool:
        """Scales are searched for alike with importance and without."""
        return True

    def search(self, x: Floats, w: Floats, fmt: Format, record: Record = None) -> GroupScales:
        """Search every group."""
        if fmt.signed:
            half = 1 << (fmt.bits - 1)
            return largest_magnitude(x, half, self.reciprocal, self.least, self.zero_code)
        return largest_positive(x, int(fmt.qmax))
