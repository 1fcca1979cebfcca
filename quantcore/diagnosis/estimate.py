"""A fast estimate of the error that a scheme leaves: exact ranges of blocks, errors of drawn elements.

Up to `DRAWN` elements are drawn as a grid of indices along each axis, so that the blocks they lie in, and nothing
else, must be read to know their ranges exactly. Ranges taken from a sample would be too narrow, and would flatter
the granularities with the largest blocks. The arithmetic is the textbook's, whatever the library.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from quantcore.formats import Format, IntFormat
from quantcore.granularity import Granularity, PerTensor, Shape, block_shape, cells_of, grid_shape

DRAWN = 1 << 12  # elements
RUN = 8  # neighbours along the last axis that are drawn together
# fractions of the min-max range that are tried; of few elements more, since of few codes each fraction differs
SHRINKS = (1.0, 0.85, 0.7, 0.6, 0.5, 0.4, 0.3, 0.22, 0.15, 0.1)
FEW = 1 << 10  # elements
FINE = tuple(1 - k / 32 for k in range(32))
_TINY = torch.finfo(torch.float32).tiny


class Estimate(NamedTuple):
    """Mean squared error of drawn elements under the min-max range and under narrower ones.

    ``shrink``: the fraction of the range with the least error, the same for all blocks. ``searched``: the error with a
    fraction for each block, where all elements are drawn, else with ``shrink``.
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
        self.x, self.bounds = x, bounds
        self.places = _places(tuple(x.shape))
        self.values = _selected(x, self.places).reshape(-1)

    def range(self, granularity: Granularity) -> tuple[Tensor, Tensor]:
        """Return the lowest and the highest element of each drawn element's block, both of shape (drawn,)."""
        if isinstance(granularity, PerTensor):
            return self.values.new_full((1,), self.bounds[0]), self.values.new_full((1,), self.bounds[1])
        members, sizes, inverse = [], [], []
        for axis, (block, places) in enumerate(
            zip(block_shape(granularity, tuple(self.x.shape)), self.places, strict=True)
        ):
            blocks, which = torch.unique(places // block, return_inverse=True)
            # the last element of a shorter block is repeated, which does not change its extremes
            inside = (blocks[:, None] * block + torch.arange(block)).clamp_(max=self.x.shape[axis] - 1)
            members.append(inside.reshape(-1))
            sizes += [len(blocks), block]
            inverse.append(which.to(self.x.device))
        part = _selected(self.x, members).reshape(sizes)
        inner = tuple(range(1, len(sizes), 2))
        low, high = (part.amin(inner), part.amax(inner)) if inner else (part, part)
        for axis, which in enumerate(inverse):
            low, high = low.index_select(axis, which), high.index_select(axis, which)
        return low.reshape(-1), high.reshape(-1)

    def estimates(self, fmt: Format, pairs: Iterable[tuple[Granularity, bool]]) -> list[Estimate]:
        """Return the errors for each pair of a granularity and whether it is symmetric."""
        pairs = list(pairs)
        if not pairs:
            return []
        ranges = {granularity: self.range(granularity) for granularity, _ in pairs}
        n = len(self.values)
        grids = [_grid(fmt, *ranges[granularity], symmetric) for granularity, symmetric in pairs]
        scale, least, most = (torch.stack([g[i].expand(n) for g in grids]) for i in range(3))
        shrinks = FINE if n <= FEW else SHRINKS
        errors = torch.stack([_squared(self.values, scale * s, least, most, fmt) for s in shrinks], 1)
        return [self._estimate(*pair, each, shrinks) for pair, each in zip(pairs, errors, strict=True)]

    def _estimate(
        self, granularity: Granularity, symmetric: bool, errors: Tensor, shrinks: tuple[float, ...]
    ) -> Estimate:
        """Summarize the errors, (shrinks, drawn elements)."""
        means = errors.mean(-1, dtype=torch.float64).tolist()
        least = min(means)
        searched = self._searched(errors, granularity) if errors.shape[1] == self.x.numel() else least
        return Estimate(granularity, symmetric, means[0], shrinks[means.index(least)], searched)

    def _searched(self, errors: Tensor, granularity: Granularity) -> float:
        """The mean error with the best shrink for each block; ``errors``: (shrinks, all elements)."""
        shape = tuple(self.x.shape)
        block = block_shape(granularity, shape)
        which = cells_of(
            torch.arange(math.prod(grid := grid_shape(shape, block))).reshape(grid), shape, block
        )
        sums = errors.new_zeros(len(errors), int(which.max()) + 1).index_add_(
            1, which.reshape(-1).to(errors.device), errors
        )
        return float(sums.amin(0).sum()) / len(self.values)


def _selected(x: Tensor, places: list[Tensor]) -> Tensor:
    """Return the elements at a grid of sorted indices along each axis."""
    if all(len(p) == n and int(p[-1]) == n - 1 for p, n in zip(places, x.shape, strict=True)):
        return x
    rank = len(places)
    index = [
        p.to(x.device).reshape([-1 if i == axis else 1 for i in range(rank)]) for axis, p in enumerate(places)
    ]
    return x[tuple(index)]


def _places(shape: Shape) -> list[Tensor]:
    """Return sorted indices along each axis, at most `DRAWN` elements together, always the same."""
    rng = np.random.Generator(np.random.PCG64(0))
    found: dict[int, Tensor] = {}
    room = float(DRAWN)
    for left, axis in enumerate(sorted(range(len(shape)), key=lambda i: shape[i])):
        n, each = shape[axis], max(1, int(room ** (1 / (len(shape) - left)) + 1e-9))
        # neighbours in memory come in one read
        run = RUN if axis == len(shape) - 1 and each >= RUN else 1
        starts = (
            np.sort(rng.choice(n // run, each // run, replace=False)) * run
            if n > each
            else np.arange(0, n, run)
        )
        drawn = (starts[:, None] + np.arange(run)).reshape(-1)
        found[axis] = torch.from_numpy(drawn[drawn < n])
        room /= len(found[axis])
    return [found[axis] for axis in range(len(shape))]


def _grid(fmt: Format, low: Tensor, high: Tensor, symmetric: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the min-max scale, and the lowest and highest code minus the zero point."""
    if symmetric:
        scale = torch.maximum(-low, high) / fmt.symmetric_max
        least, most = (
            (fmt.qmin - fmt.middle, fmt.qmax - fmt.middle)
            if isinstance(fmt, IntFormat)
            else (-math.inf, math.inf)
        )
        return scale.clamp(min=_TINY), scale.new_full((1,), least), scale.new_full((1,), most)
    assert isinstance(fmt, IntFormat)
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = ((high - low) / (fmt.qmax - fmt.qmin)).clamp(min=_TINY)
    below = (low / scale).round_()
    return scale, below, below + (fmt.qmax - fmt.qmin)


def _squared(x: Tensor, scale: Tensor, least: Tensor, most: Tensor, fmt: Format) -> Tensor:
    """Return the squared error of each element."""
    ratio = x / scale
    if isinstance(fmt, IntFormat):
        near = torch.minimum(torch.maximum(ratio.round(), least, out=torch.empty_like(ratio)), most)
    else:
        near = fmt.decode_(
            fmt.encode_(ratio.clone(), torch.empty(ratio.shape, dtype=fmt.dtype)), torch.empty_like(ratio)
        )
    return near.sub_(ratio).mul_(scale).square_()
