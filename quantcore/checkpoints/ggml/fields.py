"""Which bits of a block hold which number: a field is a list of planes, and a plane is data.

GGUF scatters a number over a block: the low four bits of a Q5_K code lie in one byte, the fifth in another; the
scale codes of Q4_K lie in a pattern of three. A `Plane` says for some consecutive bits of some consecutive
entries of a field where they lie. Reading (`Field.unpack`), writing (`Field.pack`) and locating (`Field.locate`)
follow from the same planes, so that they can't disagree.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]  # [blocks, bytes per block], contiguous
_KINDS = {"u": "<u", "i": "<i", "f": "<f"}


@dataclass(frozen=True)
class Axis:
    """``count`` entries in a row: each lies ``bytes`` bytes or ``bits`` bits after the one before."""

    count: int
    bytes: int = 0
    bits: int = 0


@dataclass(frozen=True)
class Bits:
    """Where some bits of one number lie: ``count`` bits from bit ``low`` of byte ``byte`` (bit 0 is the lowest).

    ``at``: which bit of the number the lowest of them is. ``byte`` counts from the start of the block.
    """

    byte: int
    low: int
    count: int
    at: int

    def part(self, positions: range) -> "Bits | None":
        """Only the bits at these positions of the number, consecutive ones; None if none of them lies here."""
        start, end = max(self.at, positions.start), min(self.at + self.count, positions.stop)
        return Bits(self.byte, self.low + start - self.at, end - start, start) if start < end else None


@dataclass(frozen=True)
class Plane:
    """Some bits of consecutive entries of a field.

    ``byte``: where the first entry's word begins in the block; ``axes``: how the entries follow, the slowest axis
    first; ``bits``: how many bits of each entry; ``at``: which bit of the number the lowest is; ``first``: the first
    entry; ``shift``: the lowest bit's position in its word; ``word``: bytes of the little-endian word.
    """

    byte: int
    axes: tuple[Axis, ...]
    bits: int
    at: int = 0
    first: int = 0
    shift: int = 0
    word: int = 1

    @property
    def entries(self) -> int:
        """How many entries of the field the plane covers."""
        return prod(axis.count for axis in self.axes)

    @property
    def _is_whole(self) -> bool:
        """Whether the words hold nothing else, so that they need neither shift nor mask."""
        return self.bits == 8 * self.word

    @property
    def _is_bit_run(self) -> bool:
        """Whether the entries are all bits of consecutive bytes."""
        return self.bits == 1 and not self.shift and self.axes[-1] == Axis(8, bits=1) and self._byte_run

    @property
    def _byte_run(self) -> bool:
        inner = self.axes[:-1]
        return all(a.bytes == prod(b.count for b in inner[i + 1 :]) for i, a in enumerate(inner))

    def _words(self, blocks: Bytes) -> npt.NDArray[Any]:
        """The words of all entries, one axis each, as a view of ``blocks``."""
        shape = (len(blocks), *(axis.count for axis in self.axes))
        strides = (blocks.shape[1], *(axis.bytes for axis in self.axes))
        dtype = np.dtype(f"<u{self.word}")
        if not len(blocks):
            return np.empty(shape, dtype)
        return np.ndarray(shape, dtype, blocks.data, self.byte, strides)

    def _shifts(self) -> npt.NDArray[Any]:
        shifts: npt.NDArray[Any] = np.array(self.shift)
        for axis in self.axes:
            shifts = shifts[..., None] + np.arange(axis.count) * axis.bits
        return shifts.astype(f"<u{self.word}")

    def read(self, blocks: Bytes) -> npt.NDArray[Any]:
        """The plane's bits of every entry, [blocks, *counts of the axes], in the word's unsigned dtype."""
        if self._is_bit_run:
            run = blocks[:, self.byte : self.byte + self.entries // 8]
            return np.unpackbits(run, axis=1, bitorder="little")
        words = self._words(blocks)
        if self._is_whole:
            return words
        shifts = self._shifts()
        found: npt.NDArray[Any] = words >> shifts if shifts.any() else words
        if self.shift + self.bits == 8 * self.word and not any(axis.bits for axis in self.axes):
            return found  # nothing above to mask
        mask = words.dtype.type(2**self.bits - 1)
        if found is words:
            found = words & mask
        else:
            found &= mask
        return found

    def write(self, numbers: npt.NDArray[Any], blocks: Bytes) -> None:
        """Put the plane's bits of ``numbers`` [blocks, entries of the field] into ``blocks``, by OR."""
        words = self._words(blocks)
        part = numbers[:, self.first : self.first + self.entries].reshape(words.shape)
        part = (part >> part.dtype.type(self.at)) & part.dtype.type(2**self.bits - 1)
        shifted = part.astype(words.dtype) << self._shifts()
        # entries of one word, one after the other: a word can be written once in one operation
        inside = tuple(axis.count if axis.bits else 1 for axis in self.axes)
        for index in np.ndindex(*inside):
            here = tuple(
                slice(i, i + 1) if axis.bits else slice(None)
                for i, axis in zip(index, self.axes, strict=True)
            )
            words[:, *here] |= shifted[:, *here]

    def locate(self, entry: int) -> list[Bits]:
        """Where the plane's bits of one entry lie; empty if it does not cover the entry."""
        left, byte, low = entry - self.first, self.byte, self.shift
        if not 0 <= left < self.entries:
            return []
        for axis in reversed(self.axes):
            left, index = divmod(left, axis.count)
            byte, low = byte + index * axis.bytes, low + index * axis.bits
        found, at, end = [], self.at, self.at + self.bits
        while at < end:  # a word's bits may lie in two of its bytes
            count = min(8 - low % 8, end - at)
            found.append(Bits(byte + low // 8, low % 8, count, at))
            low, at = low + count, at + count
        return found


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
        covered: set[tuple[int, int]] = set()
        for plane in self.planes:
            part = plane.read(blocks)
            span = (plane.first, plane.first + plane.entries)
            target = stored[:, span[0] : span[1]].reshape(part.shape)
            if span not in covered:
                np.copyto(target, part, casting="unsafe")
                covered.add(span)
                if plane.at:
                    target <<= target.dtype.type(plane.at)
            else:
                part = (
                    part if part.dtype == target.dtype and part.flags.owndata else part.astype(target.dtype)
                )
                part <<= part.dtype.type(plane.at)
                target |= part
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
        """Where the bits of one number lie, its lowest first."""
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
