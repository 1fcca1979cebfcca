"""A weight in boxes of rows, so that a check of any weight takes bounded memory."""

from collections.abc import Iterator
from math import prod

from quantcore.checkpoints.protocol.layout import Layout
from quantcore.errors import QuantError

ELEMENTS = 1 << 21  # of a box: 8 MB of float32
MOST_ELEMENTS = 100_000_000  # of one row, such as an expert: no box is smaller
IN_MEMORY = 1 << 28  # bytes of a weight whose rows lie apart in the file, which is then read once


class TooLong(QuantError):
    """A row of a weight has too many elements for a check."""


def boxes(layout: Layout, multiple: int = 1) -> Iterator[slice]:
    """Yield slices of axis 0 that cover a weight.

    Args:
        multiple: rows that stay in one box, as those of a scale.

    Raises:
        TooLong: no box of them would be small enough.
    """
    rows = layout.shape[0]
    size = prod(layout.shape[1:])
    if size * min(multiple, rows) > MOST_ELEMENTS:
        raise TooLong(f"its rows of {size:,} elements are longer than the limit of {MOST_ELEMENTS:,}.")
    step = max(1, ELEMENTS // max(1, size * multiple)) * multiple
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def ready(layout: Layout) -> Layout:
    """Return the layout with what every box needs in memory, unless that is large."""
    return layout.loaded() if layout.num_bytes <= IN_MEMORY else layout
