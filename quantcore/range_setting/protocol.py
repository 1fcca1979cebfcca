"""The interface between range settings and the scheme."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from quantcore.formats import Format
from quantcore.numerics import CHUNK

Range = tuple[Tensor, Tensor]


class SquaredError(Protocol):
    """Measures ranges of blocks by quantizing them as the scheme does."""

    def __call__(self, low: Tensor, high: Tensor) -> Tensor:
        """Return the summed squared error of every block, float64."""

    def search(self, low: Tensor, high: Tensor, anchor: Tensor, fractions: Tensor) -> Range:
        """Return, for every block, the first range anchor + (bound - anchor)·fraction with the least error.

        ``low``, ``high``, ``anchor``: one number per block. ``fractions``: descending from 1, where the range is
        exactly (low, high).
        """


@dataclass(frozen=True)
class Task:
    """What a range setting needs to know about the scheme.

    ``squared_error``: measures ranges of the blocks passed in; None if not needed. ``blocks``: the number of
    blocks in the tensor; a range setting receives only some of them at a time.
    """

    format: Format
    symmetric: bool
    squared_error: SquaredError | None = None
    blocks: int = 0


def parts(blocks: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield pieces of at most `CHUNK` elements, whole blocks if they fit, with the slice of their blocks."""
    n, size = blocks.shape
    rows, columns = max(1, CHUNK // size), min(size, CHUNK)
    for row in range(0, n, rows):
        for column in range(0, size, columns):
            yield slice(row, row + rows), blocks[row : row + rows, column : column + columns]
