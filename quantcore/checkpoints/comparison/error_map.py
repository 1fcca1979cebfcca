"""Where in a tensor the error is: the mean squared error of each of at most `SIDE` × `SIDE` parts of it."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from quantcore.numerics import scratch

SIDE = 24  # cells along each axis at most
LINES = 64  # added up at once: few enough to stay in a core's cache
Floats = npt.NDArray[np.float64]


def _starts(length: int, first: int, stop: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the cells that lines ``first`` to ``stop`` are in, and where in these lines each begins."""
    cells = np.arange(first, stop) * min(SIDE, length) // length
    starts = np.flatnonzero(np.diff(cells, prepend=-1))
    return cells[starts], starts


def cells_of(x: Tensor, y: Tensor, line: int, lines: int) -> Floats:
    """Return Σ(x-y)² of each cell, as far as some lines of the tensor add to it.

    Args:
        x, y: these lines, float32 [lines, columns]; what is not finite counts as no error.
        line: the first of them, of ``lines`` of the whole tensor.
    """
    a, b, columns = x.numpy(), y.numpy(), x.shape[1]
    found, across = np.zeros((min(SIDE, lines), min(SIDE, columns))), _starts(columns, 0, columns)[1]
    cells, starts = _starts(lines, line, line + len(a))
    for cell, first, stop in zip(cells, starts, [*starts[1:], len(a)], strict=True):
        for at in range(first, stop, LINES):
            part = slice(at, min(at + LINES, stop))
            found[cell] += np.add.reduceat(_squares(a[part], b[part]), across, dtype=np.float64)
    return found


def _squares(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> npt.NDArray[np.floating]:
    """Return Σ(a-b)² of each column."""
    error = scratch("error of cells", a.shape).numpy()
    with np.errstate(invalid="ignore", over="ignore"):
        found = np.square(np.subtract(a, b, out=error), out=error).sum(0)
        if np.isfinite(found).all():
            return np.asarray(found)
        finite = np.isfinite(a) & np.isfinite(b)
        exact = np.subtract(a, b, dtype=np.float64, where=finite, out=np.zeros(a.shape))
    return np.asarray(np.square(exact).sum(0))


def mean_squares(cells: Floats, lines: int, columns: int) -> Floats:
    """Return the mean squared error of each cell from the sums of all lines of a tensor."""
    sizes = [np.diff(_starts(n, 0, n)[1], append=n) for n in (lines, columns)]
    return np.asarray(cells / np.multiply.outer(*sizes))


def sqnr_of_cells(mean_squares: Floats, power: float) -> Floats:
    """Return the SQNR (dB) of each cell against the whole tensor's mean square; ∞ where nothing differs."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(10 * np.log10(np.float64(power) / mean_squares))


def stacked(maps: Sequence[Floats]) -> Floats:
    """Return the map of a tensor from those of its equal parts, such as experts, the first on top."""
    every = np.concatenate(maps)
    starts = _starts(len(every), 0, len(every))[1]
    sizes = np.diff(starts, append=len(every))
    return np.asarray(np.add.reduceat(every, starts, axis=0) / sizes[:, None])


def as_plain(cells: Floats) -> list[Any]:
    """Return plain data of about 6 kB at most, from which `of_plain` restores the cells to the last bit."""
    return [*cells.shape, base64.b64encode(cells.astype("<f8").tobytes()).decode()]


def of_plain(plain: Sequence[Any]) -> Floats:
    """Return what `as_plain` wrote.

    Raises:
        TypeError, ValueError: it is not the data of such cells.
    """
    lines, columns, text = plain
    if not (0 <= int(lines) <= SIDE and 0 <= int(columns) <= SIDE):
        raise ValueError(f"an error map has at most {SIDE} × {SIDE} cells")
    found = np.frombuffer(base64.b64decode(text, validate=True), "<f8")
    return found.reshape(int(lines), int(columns)).astype(np.float64)
