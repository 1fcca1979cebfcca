"""A tensor cut into boxes that fit the cache, each with blocks of a single shape."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from quantcore.granularity.kinds import Shape

Slices = tuple[slice, ...]


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


def regions(shape: Shape, block: Shape, limit: int, whole_blocks: bool) -> Iterator[Region]:
    """Cut a tensor into boxes of about ``limit`` elements, in row-major order.

    Short last blocks become separate boxes, so that no other code has to handle them. With
    ``whole_blocks`` no block is cut, and a box may exceed the limit.
    """
    inner = [math.prod(shape[i + 1 :]) for i in range(len(shape))]

    def cut(i: int, used: int, region: Region) -> Iterator[Region]:
        if i == len(shape):
            yield region
            return
        room = max(1, limit // max(1, used * inner[i]))
        for start, stop, size in _runs(shape[i], block[i], room, whole_blocks):
            first = start // block[i]
            grown = Region(
                (*region.elements, slice(start, stop)),
                (*region.grid, slice(first, first + (stop - start) // size)),
                (*region.block, size),
            )
            yield from cut(i + 1, used * (stop - start), grown)

    yield from cut(0, 1, Region((), (), ()))


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
