"""A fast estimate of the error that a scheme leaves: exact ranges of blocks, errors of drawn elements.

Up to `DRAWN` elements are drawn as a grid of indices along each axis, so that the blocks they lie in, and
nothing else, must be read to know their ranges exactly. Ranges taken from a sample would be too narrow, and
would flatter the granularities with the largest blocks. The arithmetic is the textbook's, whatever the
library.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.formats import Format, IntFormat
from quantcore.granularity import Granularity, PerTensor, Shape, block_shape

Array = npt.NDArray[np.float32]
DRAWN = 1 << 12  # elements
RUN = 8  # neighbours along the last axis that are drawn together
# fractions of the min-max range that are tried; of few elements more, since of few codes each fraction
# differs
SHRINKS = np.array((1.0, 0.85, 0.7, 0.6, 0.5, 0.4, 0.3, 0.22, 0.15, 0.1), np.float32)
FEW = 1 << 10  # elements
FINE = np.linspace(1, 0, 32, endpoint=False, dtype=np.float32)
_TOGETHER = 1 << 17  # errors computed at a time, so that they stay in the cache
_TINY = np.finfo(np.float32).tiny


class Estimate(NamedTuple):
    """Mean squared error of drawn elements under the min-max range and under narrower ones.

    ``shrink``: the fraction of the range with the least error, the same for all blocks. ``searched``: the
    error with a fraction for each block, where all elements are drawn, else with ``shrink``.
    """

    granularity: Granularity
    symmetric: bool
    min_max: float
    shrink: float
    searched: float


class Drawn:
    """Elements of x drawn as a grid, and the ranges of the blocks that they lie in."""

    def __init__(self, x: Tensor, bounds: tuple[float, float]) -> None:
        """Draw from x, float32 and finite, whose lowest and highest element are ``bounds``."""
        self.x, self.bounds = x, np.array(bounds, np.float32)
        self.places = _places(tuple(x.shape))
        self.values: Array = _selected(x, self.places).cpu().numpy().ravel()

    def range(self, granularity: Granularity) -> tuple[Array, Array]:
        """Return the lowest and highest element of each drawn element's block, of shape (drawn,) or (1,)."""
        if isinstance(granularity, PerTensor):
            return self.bounds[:1], self.bounds[1:]
        members, sizes, inverse = [], [], []
        for n, block, places in zip(
            self.x.shape, block_shape(granularity, tuple(self.x.shape)), self.places, strict=True
        ):
            blocks, which = np.unique(places // block, return_inverse=True)
            # the last element of a shorter block is repeated, which does not change its extremes
            members.append(np.minimum(blocks[:, None] * block + np.arange(block), n - 1).ravel())
            sizes += [len(blocks), block]
            inverse.append(which)
        part = _selected(self.x, members).reshape(sizes)
        inner = tuple(range(1, len(sizes), 2))
        found = (part.amin(inner), part.amax(inner)) if inner else (part, part)
        low, high = (t.cpu().numpy()[np.ix_(*inverse)].ravel() for t in found)
        return low, high

    def estimates(self, fmt: Format, pairs: Iterable[tuple[Granularity, bool]]) -> list[Estimate]:
        """Return the errors for each pair of a granularity and whether it is symmetric."""
        pairs = list(pairs)
        if not pairs:
            return []
        ranges = {granularity: self.range(granularity) for granularity in dict(pairs)}
        grids = [_grid(fmt, *ranges[granularity], symmetric) for granularity, symmetric in pairs]
        n = len(self.values)
        scale, least, most = (np.stack([np.broadcast_to(g[i], n) for g in grids]) for i in range(3))
        shrinks = FINE if n <= FEW else SHRINKS
        errors = np.empty((len(shrinks), len(pairs), n), np.float32)
        parts = -(-errors.size // _TOGETHER)
        for some, out in zip(np.array_split(shrinks, parts), np.array_split(errors, parts), strict=True):
            _square(self.values, scale * some[:, None, None], least, most, fmt, out)
        return [self._estimate(*pair, errors[:, i], shrinks) for i, pair in enumerate(pairs)]

    def _estimate(self, granularity: Granularity, symmetric: bool, errors: Array, shrinks: Array) -> Estimate:
        """Summarize the errors, (shrinks, drawn elements)."""
        means = errors.mean(-1, dtype=np.float64)
        best = int(means.argmin())
        every = errors.shape[1] == self.x.numel() and not isinstance(granularity, PerTensor)
        searched = self._searched(errors, granularity) if every else float(means[best])
        return Estimate(granularity, symmetric, float(means[0]), float(shrinks[best]), searched)

    def _searched(self, errors: Array, granularity: Granularity) -> float:
        """Return the mean error with the best shrink for each block; ``errors``: (shrinks, all elements)."""
        shape, sums = tuple(self.x.shape), errors.reshape(-1, *self.x.shape)
        for axis, block in enumerate(block_shape(granularity, shape), 1):
            sums = np.add.reduceat(sums, np.arange(0, sums.shape[axis], block), axis)
        return float(sums.min(0).sum(dtype=np.float64)) / len(self.values)


def _selected(x: Tensor, places: list[npt.NDArray[np.int64]]) -> Tensor:
    """Return the elements at a grid of sorted indices along each axis."""
    if all(len(p) == n for p, n in zip(places, x.shape, strict=True)):
        return x  # sorted, and each index occurs once
    return x[tuple(torch.from_numpy(p).to(x.device) for p in np.ix_(*places))]


def _places(shape: Shape) -> list[npt.NDArray[np.int64]]:
    """Return sorted indices along each axis, at most `DRAWN` elements together, always the same."""
    rng = np.random.Generator(np.random.PCG64(0))
    found: dict[int, npt.NDArray[np.int64]] = {}
    room = float(DRAWN)
    for left, axis in enumerate(sorted(range(len(shape)), key=lambda i: shape[i])):
        n, each = shape[axis], max(1, int(room ** (1 / (len(shape) - left)) + 1e-9))
        if n <= each:
            found[axis] = np.arange(n)
        else:
            # neighbours in memory come in one read
            run = RUN if axis == len(shape) - 1 and each >= RUN else 1
            starts = np.unique(rng.integers(n // run, size=each // run)) * run
            found[axis] = (starts[:, None] + np.arange(run)).ravel()
        room /= len(found[axis])
    return [found[axis] for axis in range(len(shape))]


def _grid(fmt: Format, low: Array, high: Array, symmetric: bool) -> tuple[Array, Array, Array]:
    """Return the min-max scale, and the lowest and highest code minus the zero point."""
    if symmetric:
        scale = np.maximum(np.maximum(-low, high) / np.float32(fmt.symmetric_max), _TINY)
        ends = (-np.inf, np.inf)
        if isinstance(fmt, IntFormat):
            ends = (fmt.qmin - fmt.middle, fmt.qmax - fmt.middle)
        return scale, np.full(1, ends[0], np.float32), np.full(1, ends[1], np.float32)
    assert isinstance(fmt, IntFormat)
    low, high, steps = np.minimum(low, 0), np.maximum(high, 0), np.float32(fmt.qmax - fmt.qmin)
    scale = np.maximum((high - low) / steps, _TINY)
    below = np.rint(low / scale)
    return scale, below, below + steps


def _square(x: Array, scale: Array, least: Array, most: Array, fmt: Format, out: Array) -> None:
    """Write the squared error of each element."""
    ratio = x / scale
    if isinstance(fmt, IntFormat):
        np.rint(ratio, out=out)
        np.maximum(out, least, out=out)
        np.minimum(out, most, out=out)
    else:
        codes = torch.empty(ratio.shape, dtype=fmt.dtype)
        fmt.decode_(fmt.encode_(torch.from_numpy(ratio.copy()), codes), torch.from_numpy(out))
    out -= ratio
    out *= scale
    np.square(out, out=out)
