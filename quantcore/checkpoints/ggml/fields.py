"""What a block holds: a field is one kind of number, of which the block holds one or many.

Reading (`Field.unpack`), writing (`Field.pack`) and locating (`Field.locate`) use the same planes, so they can't
disagree.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from quantcore.checkpoints.ggml.planes import Axis, Bits, Bytes, Plane

_KINDS = {"u": "<u", "i": "<i", "f": "<f"}


@dataclass(frozen=True)
class Field:
    """One kind of number that a block holds ``count`` times: its codes, its scale codes, its d.

    ``kind``: "u" unsigned, "i" two's complement, "f" IEEE 754 half precision. ``offset`` is what the format subtracts
    from the stored bits (Q6_K's codes are stored plus 32).
    """

    name: str
    count: int
    planes: tuple[Plane, ...]
    kind: Literal["u", "i", "f"] = "u"
    offset: int = 0

    @property
    def bits(self) -> int:
        """Stored bits of one number."""
        return max(plane.at + plane.bits for plane in self.planes)

    @property
    def _size(self) -> int:
        return 1 if self.bits <= 8 else 2 if self.bits <= 16 else 4

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the unpacked numbers: the smallest that holds them."""
        return np.dtype(f"{'<i' if self.offset else _KINDS[self.kind]}{self._size}")

    def unpack(self, blocks: Bytes) -> npt.NDArray[Any]:
        """Return the numbers, [blocks, count], of blocks [blocks, bytes per block]."""
        stored = np.empty((len(blocks), self.count), f"<u{self._size}")
        covered = 0
        for plane in self.planes:
            plane.read(blocks, stored, add=plane.first < covered)
            covered = max(covered, plane.first + plane.entries)
        numbers = stored.view(self.dtype)
        if self.offset:
            numbers -= numbers.dtype.type(self.offset)
        return numbers

    def pack(self, numbers: npt.ArrayLike, blocks: Bytes) -> None:
        """Write numbers [blocks, count] into ``blocks``, whose bits of this field are still zero."""
        given = np.ascontiguousarray(numbers)
        if self.kind == "f":
            stored = given.astype(self.dtype, copy=False).view("<u2")
        else:
            stored = (given.astype("<i8") + self.offset).astype(f"<u{self._size}")
        for plane in self.planes:
            plane.write(stored.reshape(len(blocks), self.count), blocks)

    def locate(self, entry: int) -> tuple[Bits, ...]:
        """Where the bits of one number are, the lowest first."""
        found = [bits for plane in self.planes for bits in plane.locate(entry)]
        return tuple(sorted(found, key=lambda bits: bits.at))


def half(name: str, byte: int) -> Field:
    """A float16 at ``byte`` of the block."""
    return Field(name, 1, (Plane(byte, (Axis(1),), 16, word=2),), "f")


def nibbles(byte: int, run: int, runs: int = 1) -> Plane:
    """Runs of bytes: a run's low nibbles are its first ``run`` entries, its high nibbles the next."""
    return Plane(byte, (Axis(runs, run), Axis(2, bits=4), Axis(run, 1)), 4)


def crumbs(byte: int, at: int = 0) -> Plane:
    """Two runs of 32 bytes, each with 32 entries in bits 0-1, the next 32 in bits 2-3, and so on."""
    return Plane(byte, (Axis(2, 32), Axis(4, bits=2), Axis(32, 1)), 2, at)
