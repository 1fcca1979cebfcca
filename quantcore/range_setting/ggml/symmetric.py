"""make_qx_quants and make_q3_quants: the scale of a group without a min."""

import numpy as np

from quantcore.range_setting.ggml.arithmetic import (
    ALL_ZERO,
    Floats,
    Found,
    Record,
    Trial,
    first_largest,
    nearest,
    nearest_int,
    squared_error,
    total,
    written,
)

_TRIALS = [i for i in range(-9, 10) if i != 0]
_PASSES = 5


def make_qx(x: Floats, w: Floats, nmax: int, record: Record = None) -> Found:
    """Try -nmax / extreme and 18 neighbors; the scale is the weighted least squares fit to the codes of the best.

    Codes are -nmax … nmax - 1. Groups of zeros have scale 0 and the lowest code.
    """
    extreme, size = first_largest(x)
    empty = size < ALL_ZERO
    safe = np.where(empty, np.float32(1.0), extreme)
    wx, codes, work = w * x, np.empty_like(x), np.empty_like(x)
    used = np.float32(-nmax) / safe
    sum_lx, sum_l2 = _sums(x, w, wx, used, nmax, codes, work)
    scale = np.where(sum_l2 != 0, sum_lx / sum_l2, np.float32(0.0))
    best = scale * sum_lx
    if record is not None:
        record.append(Trial(f"{-nmax}", scale, None, squared_error(x, w, codes, scale), ~empty))
    for i in _TRIALS:
        inverse = -(np.float32(nmax) + np.float32(0.1) * np.float32(i)) / safe
        sum_lx, sum_l2 = _sums(x, w, wx, inverse, nmax, codes, work)
        better = (sum_l2 > 0) & (sum_lx * sum_lx > best * sum_l2)
        if record is not None:
            fitted = sum_lx / sum_l2
            tried = -(np.float32(nmax) + np.float32(0.1) * np.float32(i))
            error = squared_error(x, w, codes, fitted)
            record.append(Trial(written(tried), fitted, None, error, better & ~empty))
        scale = np.where(better, sum_lx / sum_l2, scale)
        best, used = np.where(better, scale * sum_lx, best), np.where(better, inverse, used)
    codes = _clipped(np.multiply(x, used, out=codes), nmax, codes)
    codes[:, empty] = -nmax
    return Found(np.where(empty, np.float32(0.0), scale), codes=codes)


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


def make_q3(x: Floats, nmax: int, record: Record = None) -> Found:
    """Start from -nmax / extreme; change one code after another if the least squares fit improves, up to five passes.

    Weights are x². Codes are -nmax … nmax - 1; groups of zeros have scale 0 and the lowest code.
    """
    extreme, size = first_largest(x)
    empty = size < ALL_ZERO
    w = x * x
    wx, codes, work = w * x, np.empty_like(x), np.empty_like(x)
    inverse = np.float32(-nmax) / np.where(empty, np.float32(1.0), extreme)
    sums = np.stack(_sums(x, w, wx, inverse, nmax, codes, work))
    _note(record, f"{-nmax}", x, w, codes, sums, ~empty)
    moving, at = [x, w, wx, codes.copy(), sums.copy()], np.arange(x.shape[1])
    for number in range(1, _PASSES + 1):
        moved = _descend(nmax, *moving)
        codes[:, at], sums[:, at] = moving[3], moving[4]
        _note(record, f"pass {number}", x, w, codes, sums, np.isin(np.arange(x.shape[1]), at[moved]))
        if not moved.any():
            break
        moving, at = [part[:, moved] for part in moving], at[moved]  # the others stay as they are
    scale = np.where(sums[1] > 0, sums[0] / sums[1], np.float32(0.0))
    codes[:, empty] = -nmax
    return Found(np.where(empty, np.float32(0.0), scale), codes=codes)


def _note(
    record: Record, tried: str, x: Floats, w: Floats, codes: Floats, sums: Floats, taken: Floats
) -> None:
    if record is not None:
        scale = sums[0] / sums[1]
        record.append(Trial(tried, scale, None, squared_error(x, w, codes, scale), taken))


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
