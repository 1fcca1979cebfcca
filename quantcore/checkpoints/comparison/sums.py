"""Sums of squares of two tensors and of their difference, in float64, whose order depends on neither boxes nor threads.

A tensor is cut into chunks by its shape alone. The sums of a chunk are made of blocks of up to `BLOCK` columns, then the
chunks' sums are added in their order, so that a comparison that was stopped goes on to the same result.
"""

import heapq
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

BLOCK = 256  # columns of a block
WORST = 5  # blocks that are kept of each pair
_PIECE = 1 << 15  # elements worked on at once: three arrays of float64 in a core's cache
_Array = npt.NDArray[np.float64]
Block = tuple[float, float, int, int]  # Σe², Σx², flat index of its first element, columns


@dataclass
class Sums:
    """Of x, the original, and y, over the elements that are finite in both.

    ``count``: elements that were compared; ``different``: of all, those whose bits differ; ``nonfinite``: NaN and
    infinities of x, NaN and infinities of y; ``worst``, ``worst_at``: the largest |x - y| and its flat index, the first
    of equal ones; ``blocks``: those with the largest Σ(x-y)², the worst first.
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

    def add(self, later: "Sums") -> None:
        """Add the sums of what follows."""
        for name in ("count", "xx", "yy", "xy", "ee", "different"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.nonfinite = tuple(a + b for a, b in zip(self.nonfinite, later.nonfinite, strict=True))  # type: ignore[assignment]
        if later.worst > self.worst:
            self.worst, self.worst_at = later.worst, later.worst_at
        self.blocks = _worst([*self.blocks, *later.blocks])

    def as_list(self) -> list[Any]:
        """Return plain data, from which `of_list` makes the same again, to the last bit."""
        plain = [self.count, self.xx, self.yy, self.xy, self.ee, self.worst, self.worst_at, self.different]
        return [*plain, list(self.nonfinite), [list(block) for block in self.blocks]]

    @classmethod
    def of_list(cls, plain: list[Any]) -> "Sums":
        """Return what `as_list` wrote.

        Raises:
            TypeError, ValueError: it is something else.
        """
        count, xx, yy, xy, ee, worst, at, different, nonfinite, blocks = plain
        a, b, c, d = map(int, nonfinite)
        listed = [(float(e), float(x), int(flat), int(n)) for e, x, flat, n in blocks]
        sums = (float(xx), float(yy), float(xy), float(ee), float(worst))
        return cls(int(count), *sums, int(at), int(different), (a, b, c, d), listed)


def _worst(blocks: list[Block]) -> list[Block]:
    """Return the worst blocks, the first of equal ones first."""
    return heapq.nsmallest(WORST, blocks, key=lambda block: (-block[0], block[2]))


class _Scratch(threading.local):
    """Arrays that a thread uses again: new memory costs more than the arithmetic."""

    def __init__(self) -> None:
        self.arrays: dict[str, _Array] = {}

    def like(self, place: str, lines: int, width: int) -> _Array:
        found = self.arrays.get(place)
        if found is None or found.size < lines * width:
            found = np.empty(lines * width)
            if lines * width <= 4 * _PIECE:
                self.arrays[place] = found
        return found[: lines * width].reshape(lines, width)


_scratch = _Scratch()


def sums_of(x: Tensor, y: Tensor, start: int) -> Sums:
    """Return the sums of a chunk.

    Args:
        x, y: float32 [lines, columns], contiguous.
        start: the flat index of their first element.
    """
    a, b = x.numpy(), y.numpy()
    lines, columns = a.shape
    found, step, width = Sums(), max(1, _PIECE // max(1, columns)), min(columns, _PIECE)
    for line in range(0, lines, step):
        for at in range(0, columns, width):  # a vector, or a very long line, in runs
            piece = np.s_[line : line + step, at : at + width]
            found.add(_of_piece(a[piece], b[piece], start + line * columns + at, columns))
    return found


def _of_piece(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32], start: int, stride: int) -> Sums:
    """Return the sums of some lines; ``stride``: from one line to the next, as flat indices."""
    found = _finite_sums(a, b, start, stride)
    found.different = int(np.count_nonzero(a.view(np.int32) != b.view(np.int32)))
    if np.isfinite(found.ee + found.xx + found.yy):  # squares of float32 never overflow float64
        return found
    good = np.isfinite(a) & np.isfinite(b)
    counts = (np.isnan(a).sum(), np.isinf(a).sum(), np.isnan(b).sum(), np.isinf(b).sum())
    zero = np.float32(0)
    again = _finite_sums(np.where(good, a, zero), np.where(good, b, zero), start, stride)
    again.different, again.count = found.different, int(good.sum())
    again.nonfinite = tuple(int(n) for n in counts)  # type: ignore[assignment]
    return again


def _finite_sums(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32], start: int, stride: int) -> Sums:
    lines, columns = a.shape
    block = min(BLOCK, columns)
    width = -(-columns // block) * block
    x, y, e = (_scratch.like(place, lines, width) for place in ("x", "y", "e"))
    for wide, values in ((x, a), (y, b)):
        np.copyto(wide[:, :columns], values)
        wide[:, columns:] = 0
    np.subtract(x, y, out=e)
    xs, ys, es = (wide.reshape(-1, block) for wide in (x, y, e))
    with np.errstate(invalid="ignore"):  # infinities; they are counted
        power, error = np.vecdot(xs, xs), np.vecdot(es, es)
        y_power, product = np.vecdot(ys, ys), np.vecdot(xs, ys)
        np.abs(e, out=e)
        at = int(e.argmax())
    line, column = divmod(at, width)
    worst = float(e[line, column])
    places = _places(error, width // block, block, columns, start, stride)
    blocks = [(float(error[i]), float(power[i]), flat, n) for i, flat, n in places]
    xx, yy, xy, ee = (float(of.sum()) for of in (power, y_power, product, error))
    return Sums(a.size, xx, yy, xy, ee, worst, start + line * stride + column, blocks=_worst(blocks))


def _places(
    error: npt.NDArray[np.float64], across: int, block: int, columns: int, start: int, stride: int
) -> list[tuple[int, int, int]]:
    """Return the number, flat index and columns of the blocks that may be among the worst."""
    if len(error) > WORST:
        least = np.partition(error, len(error) - WORST)[-WORST]
        some = np.flatnonzero(error >= least)[: 64 * WORST]  # where many are equal, the first are enough
        some = some[np.lexsort((some, -error[some]))][:WORST]
    else:
        some = np.arange(len(error))
    found = []
    for i in some:
        line, k = divmod(int(i), across)
        if error[i] > 0:
            found.append((int(i), start + line * stride + k * block, min(block, columns - k * block)))
    return found


def relative(sums: Sums) -> float:
    """Return the RMS error over the RMS of x."""
    return float(np.sqrt(sums.ee / sums.xx)) if sums.xx else float("inf") if sums.ee else 0.0
