"""The layout of a tensor in blocks, computed once and passed from stage to stage."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from quantcore.granularity.kinds import (
    Granularity,
    Shape,
    block_bounds,
    block_shape,
    blocked_shape,
    grid_shape,
    to_blocks,
)
from quantcore.granularity.tiles import Region, regions


@dataclass(frozen=True)
class Blocks:
    """The layout of a tensor of ``shape``.

    ``blocked_shape``: the shape in which the blocks are boxes, x's own, or flat where groups cross row
    boundaries; ``block``: the extent of one block along each axis of it.

    >>> from quantcore.granularity import PerGroup
    >>> Blocks.of(PerGroup(4), (8, 16)).grid
    (8, 4)
    """

    shape: Shape
    blocked_shape: Shape
    block: Shape

    @classmethod
    def of(cls, granularity: Granularity, shape: Shape) -> "Blocks":
        """Return the layout of a tensor of this shape.

        Raises:
            QuantError: the granularity names an axis that the tensor does not have, or a block longer than its axis.
        """
        return cls(shape, blocked_shape(granularity, shape), block_shape(granularity, shape))

    @cached_property
    def grid(self) -> Shape:
        """The number of blocks along each axis: the shape of block form."""
        return grid_shape(self.blocked_shape, self.block)

    @cached_property
    def count(self) -> int:
        """The number of blocks."""
        return math.prod(self.grid)

    def view(self, x: Tensor) -> Tensor:
        """View a tensor of ``shape`` as ``blocked_shape``."""
        return x.reshape(self.blocked_shape)

    def rows(self, x: Tensor) -> Tensor:
        """Return a tensor without short blocks as (number of blocks, elements per block)."""
        return to_blocks(self.view(x), self.block)

    def bounds(self, position: Shape) -> tuple[tuple[int, int], ...]:
        """Return (start, stop) along each axis of ``blocked_shape`` for the block at ``position`` in the grid."""
        return block_bounds(self.blocked_shape, self.block, position)

    def regions(self, limit: int, whole_blocks: bool = False) -> Iterator[Region]:
        """Yield boxes of about ``limit`` elements whose blocks all have the same shape; see `tiles.regions`."""
        return regions(self.blocked_shape, self.block, limit, whole_blocks)
