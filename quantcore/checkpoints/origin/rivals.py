"""The values that other readings give one element, beside this one, and how many elements they change."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import torch

from quantcore.checkpoints.origin.arithmetic import Origin, origin_of
from quantcore.checkpoints.origin.readings import readings
from quantcore.checkpoints.origin.readings.record import Reading
from quantcore.checkpoints.protocol.layout import Layout

COUNTED = 1 << 20  # elements of rows that are compared unless other rows are given
_BOX = 1 << 18  # elements that are compared at once
_MOST = 1 << 24  # elements of one row: beyond, nothing is counted


@dataclass(frozen=True)
class Rival:
    """Another reading of one element.

    ``key``, ``name``, ``reader``: see `Reading`; ``difference``: what it does, in one sentence; ``origin``: the element
    as it reads it, None where its weight has no such element; ``differing``: how many elements of ``rows`` it changes,
    of ``counted``; None where its weight has another shape, or rows are too long to count.
    """

    key: str
    name: str
    reader: str
    difference: str
    origin: Origin | None
    differing: int | None
    counted: int
    rows: slice

    @property
    def value(self) -> float | None:
        """The value that it gives."""
        return None if self.origin is None else self.origin.value


def rivals(
    layout: Layout, index: tuple[int, ...], rows: slice | None = None, heads: int = 0
) -> tuple[Rival, ...]:
    """Return the other readings of an element; none that changes neither it nor another one.

    Args:
        index: one per axis, none of them negative.
        rows: whose elements are compared, an empty slice for none; without, all, or in a large weight those around the
            element.
        heads: see `readings`.

    Raises:
        QuantError: the tensor can't be read.
    """
    here = origin_of(layout, index)
    span = rows if rows is not None else window(layout.shape, index)
    found = (_rival(reading, layout, here, span) for reading in readings(layout, heads))
    return tuple(rival for rival in found if _differs(rival, here))


def window(shape: tuple[int, ...], index: tuple[int, ...]) -> slice:
    """Return the rows around an element whose elements are counted; all, where these are few."""
    if not shape:
        return slice(0, 1)
    count = max(1, COUNTED // max(1, prod(shape[1:])))
    start = max(0, min(index[0] // count * count, shape[0] - count))
    return slice(start, min(shape[0], start + count))


def _rival(reading: Reading, layout: Layout, here: Origin, rows: slice) -> Rival:
    other = reading.layout
    inside = all(i < n for i, n in zip(here.index, other.shape, strict=True))
    there = origin_of(other, here.index) if inside else None
    comparable = other.shape == layout.shape and rows.stop > rows.start and prod(layout.shape[1:]) <= _MOST
    counted = (rows.stop - rows.start) * prod(layout.shape[1:])
    return Rival(
        reading.key,
        reading.name,
        reading.reader,
        reading.difference(here, there or here),
        there,
        differing(layout, other, rows) if comparable else None,
        counted if comparable else 0,
        rows,
    )


def differing(layout: Layout, other: Layout, rows: slice) -> int:
    """Count the elements of some rows that two layouts of one shape read differently; NaN equals NaN."""
    return sum(int(n) for n in counts(layout, other, rows))


def counts(layout: Layout, other: Layout, rows: slice) -> Iterator[int]:
    """Yield the counts box by box."""
    if not layout.shape:
        yield int(_unequal(layout.values(None), other.values(None)).sum())
        return
    step = max(1, _BOX // max(1, prod(layout.shape[1:])))
    for start in range(rows.start, rows.stop, step):
        box = slice(start, min(start + step, rows.stop))
        yield int(_unequal(layout.values(box), other.values(box)).sum())


def _unequal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a != b) & ~(a.isnan() & b.isnan())


def _differs(rival: Rival, here: Origin) -> bool:
    if rival.differing is None or rival.differing:
        return True
    return rival.value is not None and not np.array_equal(rival.value, here.value, equal_nan=True)
