"""quantize_row_iq4_nl_impl: the scale of a group whose codes are indices of iq4_nl."""

import numpy as np
import numpy.typing as npt

from quantcore.range_setting.ggml.arithmetic import (
    ALL_ZERO,
    Floats,
    Found,
    Record,
    Trial,
    first_largest,
    squared_error,
    total,
    written,
)


class Grid:
    """A table of integers in ascending order; the nearest is found as in best_index_int8, where ties go up.

    The midpoint of two integers is a multiple of ½, so the half-step that a number falls into decides. A number
    beyond the table gets the outermost value.
    """

    def __init__(self, values: tuple[float, ...]) -> None:
        table = np.array(values, np.float32)
        self.first, self.least = table[0], np.float32(2 * table[0])
        halves = np.arange(2 * table[0], 2 * table[-1] + 1)
        middles = table[:-1] + table[1:]  # twice the middles
        self.index = np.searchsorted(middles, halves, side="right")
        self.by_half = table[self.index]

    def round(self, x: Floats, out: Floats, place: npt.NDArray[np.int32]) -> Floats:
        """Write the nearest values; NaN gets the highest, as in best_index_int8."""
        np.multiply(x, np.float32(2.0), out=out)
        np.floor(out, out=out)
        np.subtract(out, self.least, out=out)
        np.fmin(out, np.float32(len(self.by_half) - 1), out=out)
        np.clip(out, np.float32(0.0), None, out=out)
        np.copyto(place, out, casting="unsafe")
        return np.take(self.by_half, place, out=out, mode="clip")


def make_iq4(x: Floats, w: Floats, values: tuple[float, ...], ntry: int, record: Record = None) -> Found:
    """The scale of every group: the weighted least squares fit to the codes of the best of 2·ntry + 2 trial scales."""
    grid = Grid(values)
    extreme, size = first_largest(x)
    empty = size < ALL_ZERO
    safe = np.where(empty, np.float32(1.0), extreme)
    first = grid.first
    start = -safe / first if ntry > 0 else safe / first
    q, work, place = np.empty_like(x), np.empty_like(x), np.empty(x.shape, np.int32)
    sum_qx, sum_q2 = _sums(x, w, np.float32(1.0) / start, grid, q, work, place)
    scale = np.where(sum_q2 > 0, sum_qx / sum_q2, np.float32(0.0))
    best = scale * sum_qx
    if record is not None:
        tried = written(-first if ntry > 0 else first)
        record.append(Trial(tried, scale, None, squared_error(x, w, q, scale), ~empty))
    for i in range(-ntry, ntry + 1):
        sum_qx, sum_q2 = _sums(x, w, (np.float32(i) + first) / safe, grid, q, work, place)
        better = (sum_q2 > 0) & (sum_qx * sum_qx > best * sum_q2)
        if record is not None:
            fitted = sum_qx / sum_q2
            error = squared_error(x, w, q, fitted)
            record.append(Trial(written(np.float32(i) + first), fitted, None, error, better & ~empty))
        scale = np.where(better, sum_qx / sum_q2, scale)
        best = np.where(better, scale * sum_qx, best)
    return Found(np.where(empty, np.float32(0.0), scale))


def _sums(
    x: Floats, w: Floats, inverse: Floats, grid: Grid, q: Floats, work: Floats, place: npt.NDArray[np.int32]
) -> tuple[Floats, Floats]:
    grid.round(np.multiply(x, inverse, out=q), q, place)
    np.multiply(w, q, out=work)
    sum_qx = total(work * x)
    return sum_qx, total(np.multiply(work, q, out=work))
