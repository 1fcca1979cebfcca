"""One walk over the rows of a weight and of its original, for all that is gathered from them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from quantcore.checkpoints.findings.against.ordered import Ordered
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.rows import boxes


@dataclass(eq=False)
class Box:
    """Some rows of a weight: each kind of number is read when it is first asked for, and then kept.

    ``source``: its original, if there is one.
    """

    layout: Layout
    rows: slice
    source: Ordered | None = None

    @property
    def start(self) -> int:
        """The first row."""
        return int(self.rows.start)

    @cached_property
    def codes(self) -> Tensor:
        """The codes."""
        return self.layout.codes(self.rows)

    @cached_property
    def values(self) -> Tensor:
        """The values, rounded as the library does."""
        return self.layout.values(self.rows)

    @cached_property
    def exact(self) -> Tensor:
        """The values, not rounded to the output dtype."""
        return self.values if self.layout.is_plain else self.layout.values(self.rows, rounded=False)

    @cached_property
    def original(self) -> Tensor:
        """The original's values of these rows."""
        assert self.source is not None
        return self.source.read(self.rows)


def walk(layout: Layout, source: Ordered | None = None) -> Iterator[Box]:
    """Yield the boxes of rows that cover a weight.

    Raises:
        TooLong: even one row would have too many elements.
    """
    for rows in boxes(layout):
        yield Box(layout, rows, source)
