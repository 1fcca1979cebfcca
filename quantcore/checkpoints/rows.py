"""Boxes of rows, so that checking a weight of any size takes bounded memory."""

from collections.abc import Iterator
from math import prod

from quantcore.checkpoints.protocol.layout import Layout
from quantcore.errors import QuantError

ELEMENTS = 1 << 21  # per box: 8 MB of float32
MOST_ELEMENTS = 100_000_000  # of one row, such as an expert: a box holds at least one row
IN_MEMORY = 1 << 28  # bytes; for weights up to this size, what every box needs is read once and kept


class TooLong(QuantError):
    """A row of a weight has too many elements for a check."""


def boxes(layout: Layout, multiple: int = 1) -> Iterator[slice]:
    """Yield slices of axis 0 that cover a weight.

    Args:
        multiple: how many adjacent rows must stay in one box, such as those that share a scale.

    Raises:
        TooLong: even the smallest box would have too many elements.
    """
    rows = layout.shape[0]
    size = prod(layout.shape[1:])
    least = size * min(multiple, rows)
    if least > MOST_ELEMENTS:
        raise TooLong(f"{least:,} elements must be read at once, more than the limit of {MOST_ELEMENTS:,}.")
    step = max(1, ELEMENTS // max(1, size * multiple)) * multiple
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def ready(layout: Layout) -> Layout:
    """Return the layout with what every box needs in memory, unless the weight is large."""
    return layout.loaded() if layout.num_bytes <= IN_MEMORY else layout
