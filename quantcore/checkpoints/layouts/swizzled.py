"""Scales of blocks in the order that NVIDIA's tensor cores read them: tiles of 128 rows by 4 columns.

A tile is 512 numbers: row r and column c of it are number 16 · (r mod 32) + 4 · (r // 32) + c, and tiles follow row by
row; rows and columns are padded to whole tiles. Source: NVIDIA, cuBLAS, "1D block scaling factors layout"; torchao
0.18, prototype/mx_formats/utils.py.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.fields import Numbers, Place, Rows
from quantcore.checkpoints.protocol.views import View, viewed
from quantcore.errors import QuantError
from quantcore.granularity import Shape

ROWS, COLUMNS = 128, 4
TILE = ROWS * COLUMNS
_PARTS = 4, 32  # rows of a tile: four times 32


@dataclass(frozen=True)
class Swizzled(View):
    """Numbers [rows, columns] in tiles; ``field`` has a row of numbers for each row of tiles."""

    shape: Shape

    def read(self, rows: Rows = None) -> Tensor:
        """Return the numbers, or those of some rows; only their tiles are read."""
        first, last = (0, self.shape[0]) if rows is None else (rows.start, rows.stop)
        start = first // ROWS
        found = _untiled(self.field.read(slice(start, max(start, -(-last // ROWS)))))
        return found[first - start * ROWS : last - start * ROWS, : self.shape[1]].contiguous()

    def stored(self) -> Tensor:
        """Return the numbers in their own order."""
        return self.read()

    def place(self, index: Sequence[int]) -> Place:
        """Return where one number lies."""
        row, column = index
        part, line = divmod(row % ROWS, _PARTS[1])
        inside = line * _PARTS[0] * COLUMNS + part * COLUMNS + column % COLUMNS
        return self.field.place((row // ROWS, column // COLUMNS * TILE + inside))

    def encode(self, numbers: Tensor) -> bytes:
        """Return the bytes of the stored tensor; the padding stays as it is."""
        whole = _untiled(self.field.read())
        whole[: self.shape[0], : self.shape[1]] = numbers.reshape(self.shape)
        tiles = whole.view(-1, *_PARTS, whole.shape[1] // COLUMNS, COLUMNS)
        return self.field.encode(tiles.permute(0, 3, 2, 1, 4).reshape(self.field.shape))


def _untiled(tiled: Tensor) -> Tensor:
    """Return rows of tiles, [rows of tiles, numbers], as rows of numbers."""
    tiles = tiled.view(len(tiled), -1, _PARTS[1], _PARTS[0], COLUMNS)
    return tiles.permute(0, 3, 2, 1, 4).reshape(len(tiled) * ROWS, -1)


def padded(shape: Shape) -> Shape:
    """Return the rows and columns of whole tiles."""
    return -(-shape[0] // ROWS) * ROWS, -(-shape[1] // COLUMNS) * COLUMNS


def swizzled(piece: StoredTensor, shape: Shape) -> Swizzled:
    """Return the raw scales of ``shape`` from a stored tensor in tiles.

    Raises:
        QuantError: it does not hold the whole tiles that they take.
    """
    if len(shape) != 2 or math.prod(piece.shape) != math.prod(padded(shape)):
        raise QuantError(
            f"{named(piece.name)} has shape {piece.shape}, but scales of shape {shape} that are swizzled for tensor cores "
            f"take whole tiles of {ROWS} × {COLUMNS}; the file does not fit its config."
        )
    rows, columns = padded(shape)
    return Swizzled(Numbers(viewed(piece, piece.dtype, (rows // ROWS, columns * ROWS)), raw=True), shape)
