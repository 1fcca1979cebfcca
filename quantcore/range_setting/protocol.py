"""What a range setting may know of the scheme it serves."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from quantcore.formats import Format
from quantcore.numerics import CHUNK

Range = tuple[Tensor, Tensor]


class SquaredError(Protocol):
    """Measures ranges of the blocks at hand by quantizing them as the scheme does."""

    def __call__(self, low: Tensor, high: Tensor) -> Tensor:
        """Return the sum of the squared error of every block, float64, one number a block."""

    def search(self, low: Tensor, high: Tensor, still: Tensor, shares: Tensor) -> Range:
        """Return, for every block, the first of the ranges still + (end - still)·share with the least error.

        ``low``, ``high``, ``still``: one number a block. ``shares`` fall, and begin with 1, which stands for
        (low, high) as they are.
        """


@dataclass(frozen=True)
class Task:
    """``squared_error`` measures ranges of the blocks handed in, None where nothing is to be measured.

    ``blocks``: how many the tensor has; a range setting is handed some of them at a time.
    """

    format: Format
    symmetric: bool
    squared_error: SquaredError | None = None
    blocks: int = 0


def parts(blocks: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Cut blocks into pieces of at most `CHUNK` elements, whole blocks where they fit; with the blocks they are of."""
    n, size = blocks.shape
    rows, columns = max(1, CHUNK // size), min(size, CHUNK)
    for row in range(0, n, rows):
        for column in range(0, size, columns):
            yield slice(row, row + rows), blocks[row : row + rows, column : column + columns]
