"""What two tensors differ in: the sums of `quantcore.analysis.sums` over finite values, and what else a comparison shows."""

import heapq
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from torch import Tensor

from quantcore.analysis import Found, Sums, sums_of
from quantcore.numerics import scratch

WORST = 5  # blocks kept per pair
Block = tuple[float, float, int, int]  # Σe², Σx², flat index of its first element, columns


@dataclass
class PairSums(Sums):
    """Sums over x, the original, and y, over the elements that are finite in both.

    ``different``: how many of all elements differ in their bits; ``nonfinite``: NaN and infinities of x, NaN and
    infinities of y; ``blocks``: the runs of columns with the largest Σ(x-y)², the worst first.
    """

    different: int = 0
    nonfinite: tuple[int, ...] = (0, 0, 0, 0)
    blocks: list[Block] = field(default_factory=list)

    def merge(self, later: Self) -> None:
        """Add the sums of the next box."""
        super().merge(later)
        self.different += later.different
        self.nonfinite = tuple(a + b for a, b in zip(self.nonfinite, later.nonfinite, strict=True))
        self.blocks = _worst([*self.blocks, *later.blocks])

    def as_list(self) -> list[Any]:
        """Return plain data, from which `of_list` restores the same sums to the last bit."""
        plain = [self.count, self.xx, self.yy, self.xy, self.ee, self.ae, self.worst, self.worst_at, self.different]
        return [*plain, list(self.nonfinite), [list(block) for block in self.blocks]]

    @classmethod
    def of_list(cls, plain: list[Any]) -> Self:
        """Return what `as_list` wrote.

        Raises:
            TypeError, ValueError: it is not the data of such sums.
        """
        count, *sums, at, different, nonfinite, blocks = plain
        xx, yy, xy, ee, ae, worst = map(float, sums)
        a, b, c, d = map(int, nonfinite)
        listed = [(float(e), float(x), int(flat), int(n)) for e, x, flat, n in blocks]
        return cls(int(count), xx, yy, xy, ee, ae, worst, int(at), int(different), (a, b, c, d), listed)


def _worst(blocks: list[Block]) -> list[Block]:
    """Return the worst blocks; ties go to the first."""
    return heapq.nsmallest(WORST, blocks, key=lambda block: (-block[0], block[2]))


def pair_sums(x: Tensor, y: Tensor, start: int) -> PairSums:
    """Return the sums of a box.

    Args:
        x, y: float32 [lines, columns], contiguous.
        start: the flat index of their first element.
    """
    a, b = x.numpy(), y.numpy()
    different = int(np.count_nonzero(a.view(np.int32) != b.view(np.int32)))
    found = sums_of(x, y, start, rounded=False)
    if np.isfinite(found.sums.ee):  # no difference of finite values overflows float64, and all others are not finite
        return PairSums(**vars(found.sums), different=different, blocks=_places(found, start, x.shape[1]))
    good = np.isfinite(a) & np.isfinite(b)
    finite = [scratch(f"finite {name}", x.shape) for name in "xy"]
    for out, side in zip(finite, (a, b), strict=True):
        np.copyto(out.numpy(), np.where(good, side, np.float32(0)))
    again = pair_sums(finite[0], finite[1], start)
    again.different, again.count = different, int(good.sum())
    again.nonfinite = tuple(int(of(side).sum()) for side in (a, b) for of in (np.isnan, np.isinf))
    return again


def _places(found: Found, start: int, columns: int) -> list[Block]:
    """Return the worst blocks with their places."""
    flat, across, run = found.ee.reshape(-1), found.ee.shape[1], found.run
    some = np.arange(len(flat))
    if len(flat) > WORST:
        some = np.flatnonzero(flat >= np.partition(flat, -WORST)[-WORST])
    blocks = []
    for i in some[: 64 * WORST].tolist():  # if many are equal, the first ones are enough
        line, k = divmod(i, across)
        if flat[i] > 0:
            at = start + line * columns + k * run
            blocks.append((float(flat[i]), float(found.xx[line, k]), at, min(run, columns - k * run)))
    return _worst(blocks)
