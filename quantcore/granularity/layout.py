"""The layout of a tensor in blocks, computed once: boxes that fit the cache, and the names of its blocks."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from quantcore.granularity.kinds import (
    Granularity,
    PerBlock,
    PerChannel,
    PerGroup,
    PerTensor,
    Shape,
    block_bounds,
    block_shape,
    blocked_shape,
    grid_shape,
    to_blocks,
)
from quantcore.numerics import widened
from quantcore.wording import along

Slices = tuple[slice, ...]
Bounds = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Region:
    """A box of the tensor in which every block has the same shape.

    ``elements`` slices the tensor, ``grid`` slices parameters in block form, ``block`` divides the box.
    """

    elements: Slices
    grid: Slices
    block: Shape

    @property
    def numel(self) -> int:
        """Number of elements in the box."""
        return math.prod(e.stop - e.start for e in self.elements)


def _runs(n: int, b: int, room: int, whole_blocks: bool) -> Iterator[tuple[int, int, int]]:
    """Cut one axis of n elements in blocks of b into (start, stop, local block length)."""
    step = max(b, room // b * b)
    full = n // b * b
    for start in range(0, full, step):
        stop = min(start + step, full)
        if step == b and room < b and not whole_blocks:
            yield from ((s, min(s + room, stop), min(room, stop - s)) for s in range(start, stop, room))
        else:
            yield start, stop, b
    if full < n:
        room = n if whole_blocks else room
        yield from ((s, min(s + room, n), min(room, n - s)) for s in range(full, n, room))


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
            QuantError: the tensor does not have the axis, or a block is longer than its axis.
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
        """Return (start, stop) along each axis of ``blocked_shape`` for a block by its place in the grid."""
        return block_bounds(self.blocked_shape, self.block, position)

    def regions(self, limit: int, whole_blocks: bool = False) -> Iterator[Region]:
        """Cut the tensor into boxes of about ``limit`` elements whose blocks are alike, in row-major order.

        Short last blocks become separate boxes, so that no other code has to handle them. With
        ``whole_blocks`` no block is cut, and a box may exceed the limit.
        """
        shape = self.blocked_shape
        inner = [math.prod(shape[i + 1 :]) for i in range(len(shape))]

        def cut(i: int, used: int, region: Region) -> Iterator[Region]:
            if i == len(shape):
                yield region
                return
            room = max(1, limit // max(1, used * inner[i]))
            for start, stop, size in _runs(shape[i], self.block[i], room, whole_blocks):
                first = start // self.block[i]
                grown = Region(
                    (*region.elements, slice(start, stop)),
                    (*region.grid, slice(first, first + (stop - start) // size)),
                    (*region.block, size),
                )
                yield from cut(i + 1, used * (stop - start), grown)

        yield from cut(0, 1, Region((), (), ()))

    def pieces(self, x: Tensor, limit: int) -> Iterator[tuple[Slices, Tensor]]:
        """Yield where some blocks are in block form, and their elements, (blocks, elements of a block)."""
        blocked = self.view(x)
        for region in self.regions(limit, whole_blocks=True):
            yield region.grid, to_blocks(widened(blocked[region.elements]), region.block)


def block_name(bounds: Bounds, shape: Sequence[int]) -> str:
    """Return a readable name for the part of a tensor that a block covers.

    Args:
        bounds: (start, stop) along each axis, as in `Trace.bounds`; one for a run of the flattened tensor.

    >>> block_name([(1, 2), (0, 8)], (4, 8)), block_name([(0, 1), (0, 4)], (4, 8))
    ('row 1', 'row 0, columns 0–3')
    >>> block_name([(2, 3), (0, 8), (4, 8)], (4, 8, 8))
    'axis 0 index 2, axis 2 indices 4–7'
    """
    if len(bounds) != len(shape):
        return f"{_span('element', *bounds[0])} in row-major order"
    names = {1: ("element",), 2: ("row", "column")}.get(len(shape))
    parts = []
    for axis, ((start, stop), length) in enumerate(zip(bounds, shape, strict=True)):
        if stop - start < length:
            parts.append(
                _span(names[axis], start, stop)
                if names
                else f"axis {axis} {_span('index', start, stop, 'indices')}"
            )
    return ", ".join(parts) or "the whole tensor"


def shared_by(granularity: Granularity, rank: int) -> str:
    """Return what shares a scale, in words.

    >>> shared_by(PerChannel(-1), 2), shared_by(PerGroup(32), 2), shared_by(PerBlock((2, 4)), 2)
    ('column (axis 1)', '32 elements along axis 1', 'block of 2×4')
    """
    match granularity:
        case PerTensor():
            return "tensor"
        case PerChannel(axis):
            return along(rank, axis % max(rank, 1))
        case PerGroup(size, axis):
            return f"{size} elements along axis {axis % max(rank, 1)}"
        case PerBlock(shape):
            return f"block of {'×'.join(map(str, shape))}"
    return f"{granularity.size} elements in row-major order"


def _span(name: str, start: int, stop: int, plural: str = "") -> str:
    return f"{name} {start}" if stop - start == 1 else f"{plural or name + 's'} {start}–{stop - 1}"
