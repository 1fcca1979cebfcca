"""Sums of squares of two tensors and of their difference, in float64, always added in the same order.

A tensor is cut into chunks by its shape alone. A chunk is summed in blocks of up to `BLOCK` columns, then the sums of the
chunks are added in order, so that neither threads nor stopping and resuming change the result.
"""

import heapq
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from quantcore.analysis import relative_error

BLOCK = 256  # columns per block
WORST = 5  # blocks kept per pair
_PIECE = 1 << 16  # elements worked on at once: three arrays of float64 in a core's cache
_Array = npt.NDArray[np.float64]
_Values = npt.NDArray[np.float32]
Block = tuple[float, float, int, int]  # Σe², Σx², flat index of its first element, columns


@dataclass
class Sums:
    """Sums over x, the original, and y, over the elements that are finite in both.

    ``count``: elements compared; ``different``: how many of all elements differ in their bits; ``nonfinite``: NaN and
    infinities of x, NaN and infinities of y; ``worst``, ``worst_at``: the largest |x - y| and its flat index, the
    first one on ties; ``blocks``: those with the largest Σ(x-y)², the worst first.
    """

    count: int = 0
    xx: float = 0.0
    yy: float = 0.0
    xy: float = 0.0
    ee: float = 0.0
    worst: float = -1.0
    worst_at: int = 0
    different: int = 0
    nonfinite: tuple[int, int, int, int] = (0, 0, 0, 0)
    blocks: list[Block] = field(default_factory=list)

    @property
    def relative(self) -> float:
        """The RMS error over the RMS of x."""
        return relative_error(self.xx, self.ee)

    def add(self, later: "Sums") -> None:
        """Add the sums of the next chunk."""
        for name in ("count", "xx", "yy", "xy", "ee", "different"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.nonfinite = tuple(a + b for a, b in zip(self.nonfinite, later.nonfinite, strict=True))  # type: ignore[assignment]
        if later.worst > self.worst:
            self.worst, self.worst_at = later.worst, later.worst_at
        self.blocks = _worst([*self.blocks, *later.blocks])

    def as_list(self) -> list[Any]:
        """Return plain data, from which `of_list` restores the same sums to the last bit."""
        plain = [self.count, self.xx, self.yy, self.xy, self.ee, self.worst, self.worst_at, self.different]
        return [*plain, list(self.nonfinite), [list(block) for block in self.blocks]]

    @classmethod
    def of_list(cls, plain: list[Any]) -> "Sums":
        """Return what `as_list` wrote.

        Raises:
            TypeError, ValueError: it is not the data of such sums.
        """
        count, xx, yy, xy, ee, worst, at, different, nonfinite, blocks = plain
        a, b, c, d = map(int, nonfinite)
        listed = [(float(e), float(x), int(flat), int(n)) for e, x, flat, n in blocks]
        sums = (float(xx), float(yy), float(xy), float(ee), float(worst))
        return cls(int(count), *sums, int(at), int(different), (a, b, c, d), listed)


def _worst(blocks: list[Block]) -> list[Block]:
    """Return the worst blocks; ties go to the first."""
    return heapq.nsmallest(WORST, blocks, key=lambda block: (-block[0], block[2]))


class Scratch(threading.local):
    """Memory that a thread reuses: allocating it anew costs as much as the arithmetic, or more."""

    def __init__(self) -> None:
        self._arrays: dict[str, npt.NDArray[Any]] = {}

    def array(self, use: str, size: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an array, valid until the thread asks for one of the same use again."""
        found = self._arrays.get(use)
        if found is None or found.size < size:
            found = np.empty(size, dtype)
            if size <= _KEPT:
                self._arrays[use] = found
        return found[:size]


_KEPT = 1 << 21  # elements of the largest array that is kept for reuse
SCRATCH = Scratch()


def sums_of(x: Tensor, y: Tensor, start: int) -> Sums:
    """Return the sums of a chunk.

    Args:
        x, y: float32 [lines, columns], contiguous.
        start: the flat index of their first element.
    """
    a, b = x.numpy(), y.numpy()
    lines, columns = a.shape
    if not a.size:
        return Sums()
    if lines == 1 and columns > BLOCK:  # a vector: in lines of one block each
        whole = columns // BLOCK * BLOCK
        found = _of_lines(a[:, :whole].reshape(-1, BLOCK), b[:, :whole].reshape(-1, BLOCK), start)
        if whole < columns:
            found.add(_of_lines(a[:, whole:], b[:, whole:], start + whole))
        return found
    return _of_lines(a, b, start)


def _of_lines(a: _Values, b: _Values, start: int) -> Sums:
    found = _finite_sums(a, b, start)
    found.different = int(np.count_nonzero(a.view(np.int32) != b.view(np.int32)))
    if np.isfinite(found.ee):  # no difference of finite values overflows float64, and all others are not finite
        return found
    good, zero = np.isfinite(a) & np.isfinite(b), np.float32(0)
    again = _finite_sums(np.where(good, a, zero), np.where(good, b, zero), start)
    again.different, again.count = found.different, int(good.sum())
    counts = [int(of(side).sum()) for side in (a, b) for of in (np.isnan, np.isinf)]
    again.nonfinite = (counts[0], counts[1], counts[2], counts[3])
    return again


def _finite_sums(a: _Values, b: _Values, start: int) -> Sums:
    """Return the sums of finite values; if a value is not finite, neither are the sums."""
    lines, columns = a.shape
    block = min(BLOCK, columns)
    across = -(-columns // block)
    xx, yy, xy, ee = (np.empty((lines, across)) for _ in range(4))
    high, at = -1.0, 0
    width = max(block, _PIECE // block * block)
    tall = max(1, _PIECE // (across * block))
    for line in range(0, lines, tall):
        for column in range(0, columns, width):
            piece = np.s_[line : line + tall, column : column + width]
            x, y, e = _differences(a[piece], b[piece], block)
            blocks = np.s_[line : line + tall, column // block : column // block + x.shape[1]]
            with np.errstate(invalid="ignore"):  # infinities are counted by the caller
                for out, of, by in ((xx, x, x), (yy, y, y), (xy, x, y), (ee, e, e)):
                    np.vecdot(of, by, out=out[blocks])
            largest = max(float(e.max()), -float(e.min()))
            if not largest <= high:  # true for NaN too; the index is searched only for a new maximum
                i, j = divmod(int(np.abs(e, out=e).argmax()), e.shape[1] * block)
                high, at = float(largest), start + (line + i) * columns + column + j
    sums = [float(of.sum()) for of in (xx, yy, xy, ee)]
    return Sums(
        a.size, sums[0], sums[1], sums[2], sums[3], high, at, blocks=_places(ee, xx, block, columns, start)
    )


def _differences(a: _Values, b: _Values, block: int) -> tuple[_Array, _Array, _Array]:
    """Return values and their differences as float64 [lines, blocks, block], the last padded with 0."""
    lines, columns = a.shape
    across = -(-columns // block)
    x, y, e = (SCRATCH.array(use, lines * across * block, np.float64) for use in ("x", "y", "e"))
    for wide, values in ((x, a), (y, b)):
        filled = wide.reshape(lines, -1)
        np.copyto(filled[:, :columns], values)
        filled[:, columns:] = 0
    with np.errstate(invalid="ignore"):
        np.subtract(x, y, out=e)
    return x.reshape(lines, across, block), y.reshape(lines, across, block), e.reshape(lines, across, block)


def _places(error: _Array, power: _Array, block: int, columns: int, start: int) -> list[Block]:
    """Return the worst blocks with their places."""
    flat, across = error.reshape(-1), error.shape[1]
    with np.errstate(invalid="ignore"):
        some = (
            np.flatnonzero(flat >= np.partition(flat, -WORST)[-WORST])
            if len(flat) > WORST
            else np.arange(len(flat))
        )
    found = []
    for i in some[: 64 * WORST].tolist():  # if many are equal, the first ones are enough
        line, k = divmod(i, across)
        if flat[i] > 0:
            at = start + line * columns + k * block
            found.append((float(flat[i]), float(power[line, k]), at, min(block, columns - k * block)))
    return _worst(found)
