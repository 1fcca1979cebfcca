"""Where the bits of numbers are in a block, as data, from which reading, writing and locating follow.

GGUF scatters a number over a block: the low four bits of a Q5_K code are in one byte, the fifth in another;
the scale codes of Q4_K follow three patterns. A `BitPlane` says where some consecutive bits of some
consecutive entries of a field are; a `StructField` is one kind of number, which a block holds once or often.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

_DTYPES = {size: np.dtype(f"<u{size}") for size in (1, 2, 4, 8)}
Bytes = npt.NDArray[np.uint8]  # [blocks, bytes per block], contiguous
_Axes = tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides
_KINDS = {"u": "<u", "i": "<i", "f": "<f"}
_FEW = 4  # integers of a block


@dataclass(frozen=True)
class Axis:
    """``count`` consecutive entries: each is ``bytes`` bytes or ``bits`` bits after the previous one."""

    count: int
    bytes: int = 0
    bits: int = 0


@dataclass(frozen=True)
class BitRange:
    """Where some bits of one number are: ``count`` bits from bit ``low`` (0 the lowest) of byte ``byte``.

    ``at``: which bit of the number the lowest of them is. ``byte`` counts from the start of the block.
    """

    byte: int
    low: int
    count: int
    at: int

    def part(self, positions: range) -> "BitRange | None":
        """Return only the bits at these consecutive positions of the number; None if none of them is here."""
        start, end = max(self.at, positions.start), min(self.at + self.count, positions.stop)
        return BitRange(self.byte, self.low + start - self.at, end - start, start) if start < end else None


@dataclass(frozen=True)
class BitPlane:
    """Some bits of consecutive entries of a field.

    ``byte``: where the first entry's word begins in the block;
    ``axes``: how the entries follow, the slowest axis first;
    ``bits``: how many bits of each entry;
    ``at``: which bit of the number the lowest is;
    ``first``: the first entry;
    ``shift``: the lowest bit's position in its word;
    ``word``: bytes of the little-endian word.
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

    def _words(self, blocks: Bytes) -> npt.NDArray[Any]:
        """Return the words of all entries, one axis each, as a view of ``blocks``."""
        shape, strides = (tuple(getattr(axis, what) for axis in self.axes) for what in ("count", "bytes"))
        return _view(blocks, self.word, self.byte, shape, strides)

    @cached_property
    def _shifts(self) -> npt.NDArray[Any]:
        """The position of each entry's lowest bit in its word, one axis each."""
        shifts: npt.NDArray[Any] = np.array(self.shift)
        for axis in self.axes:
            shifts = shifts[..., None] + np.arange(axis.count) * axis.bits
        return shifts.astype(f"<u{self.word}")

    def read(self, blocks: Bytes, stored: npt.NDArray[Any], add: bool) -> None:
        """Put the plane's bits of every entry into ``stored`` [blocks, entries of the field].

        Args:
            add: combine them with what is stored, by OR; otherwise the entries have not been written yet.
        """
        if stored.itemsize == self.word == 1 and self.axes[-1].bytes == 1:
            self._read_lanes(blocks, stored, add)
        elif stored.itemsize == self.word == 1 and self.axes[-1].bits and self.axes[-1].count in (2, 4, 8):
            self._read_table(blocks, stored, add)
        else:
            self._read_words(blocks, stored, add)

    def _read_lanes(self, blocks: Bytes, stored: Bytes, add: bool) -> None:
        """Read consecutive bytes, up to eight at once, shifted and masked as one integer."""
        size, held, into, mask, boxes = self._lanes
        source = _view(blocks, size, self.byte, *held)
        target = _view(stored, size, self.first, *into)
        if self.bits == 8:
            target[...] = source
            return
        source = np.ascontiguousarray(source)
        for shift, box in boxes:
            # bits shifted in from a neighboring byte are outside the mask
            moved = source >> shift if shift > 0 else source << -shift if shift else source
            if add:
                target[box] |= moved & mask
            else:
                np.bitwise_and(moved, mask, out=target[box])

    @cached_property
    def _lanes(self) -> tuple[int, _Axes, _Axes, Any, list[tuple[int, tuple[slice, ...]]]]:
        """How the plane is read in integers of some bytes.

        Their size; shape and strides in blocks, and in the entries, both without the axis of blocks; the
        mask; and for each shift to the right, where in the entries the shifted integers belong.
        """
        *outer, last = self.axes
        size = gcd(last.count, 8)
        width = last.count // size
        # the bytes themselves, without the axes that only shift them
        held = [Axis(1) if axis.bits else axis for axis in outer]
        counts = (*(axis.count for axis in outer), width)
        mask = np.dtype(f"<u{size}").type(int.from_bytes(bytes([self._mask << self.at] * size), "little"))
        boxes = [
            (self.shift - self.at + sum(i * axis.bits for i, axis in zip(index, outer, strict=True)), box)
            for index, box in _inside(outer)
        ]
        of_bytes = (*(axis.count for axis in held), width), (*(axis.bytes for axis in held), size)
        return size, of_bytes, (counts, _strides(counts, size)), mask, boxes

    def _read_table(self, blocks: Bytes, stored: Bytes, add: bool) -> None:
        """Read consecutive entries of a byte: all of them are looked up by the byte."""
        outer, lane = self.axes[:-1], self.axes[-1].count
        shape = tuple(axis.count for axis in outer)
        source = _view(blocks, 1, self.byte, shape, tuple(axis.bytes for axis in outer))
        target = _view(stored, lane, self.first, shape, _strides(shape, lane))
        found = np.take(self._entries_of_bytes, source, mode="clip")
        if add:
            target |= found
        else:
            target[...] = found

    def _read_words(self, blocks: Bytes, stored: npt.NDArray[Any], add: bool) -> None:
        """Read words of any size, each shifted once for each of its entries."""
        found = self._words(blocks)
        if self._shifts.any():
            found = found >> self._shifts
        if self.bits < 8 * self.word:
            found = found & found.dtype.type(self._mask)
        part = found.astype(stored.dtype, copy=False).reshape(len(blocks), self.entries)
        target = stored[:, self.first : self.first + self.entries]
        if add:
            target |= part << stored.dtype.type(self.at)
        else:
            np.left_shift(part, stored.dtype.type(self.at), out=target)

    @property
    def _mask(self) -> int:
        return (1 << self.bits) - 1

    @cached_property
    def _entries_of_bytes(self) -> npt.NDArray[Any]:
        """For each byte value, the entries of the last axis that it holds, as one integer of equal size."""
        last = self.axes[-1]
        shifts = self.shift + np.arange(last.count) * last.bits
        entries = (np.arange(256)[:, None] >> shifts & self._mask) << self.at
        return np.ascontiguousarray(entries.astype(np.uint8)).view(f"<u{last.count}").ravel()

    def write(self, numbers: npt.NDArray[Any], blocks: Bytes) -> None:
        """Put the plane's bits of ``numbers`` [blocks, entries of the field] into ``blocks``, by OR."""
        if numbers.itemsize == self.word == 1 and self.axes[-1].bytes == 1:
            self._write_lanes(numbers, blocks)
            return
        if numbers.itemsize == self.word == 1 and self._fills_bytes:
            self._write_bytes(numbers, blocks)
            return
        words = self._words(blocks)
        part = numbers[:, self.first : self.first + self.entries].reshape(words.shape)
        # one entry of each word at a time: an operation can write each word only once
        for index, box in _inside(self.axes):
            bits = part[box]
            if self.at:
                bits = bits >> bits.dtype.type(self.at)
            bits = (bits & bits.dtype.type(self._mask)).astype(words.dtype, copy=False)
            if shift := self.shift + sum(i * axis.bits for i, axis in zip(index, self.axes, strict=True)):
                np.left_shift(bits, words.dtype.type(shift), out=bits)
            words[box] |= bits

    def _write_lanes(self, numbers: Bytes, blocks: Bytes) -> None:
        """Write consecutive bytes, up to eight at once, masked and shifted as one integer."""
        size, held, into, mask, boxes = self._lanes
        source = _view(np.ascontiguousarray(numbers), size, self.first, *into)
        target = _view(blocks, size, self.byte, *held)
        # NumPy takes as long to begin a row of few integers as to compute it: then all blocks at once
        few = prod(target.shape[1:]) <= _FEW
        places = [(slice(None), *i) for i in np.ndindex(target.shape[1:])] if few else [(slice(None),)]
        for (shift, box), place in itertools.product(boxes, places):
            # after the mask, no bit is shifted into a neighboring byte
            bits = source[box][place] & mask
            if shift:
                (np.left_shift if shift > 0 else np.right_shift)(bits, bits.dtype.type(abs(shift)), out=bits)
            np.bitwise_or(target[place], bits, out=target[place])

    @property
    def _fills_bytes(self) -> bool:
        """Whether the last axis divides each byte evenly among two, four or eight entries."""
        *outer, last = self.axes
        whole = last.bits * last.count == 8 and last.count > 1 and self.shift + self.bits <= last.bits
        return whole and not any(axis.bits for axis in outer)

    def _write_bytes(self, numbers: Bytes, blocks: Bytes) -> None:
        """Write the entries of a byte at once: one product moves all of them, as one integer, to its top."""
        outer, last = self.axes[:-1], self.axes[-1]
        shape = tuple(axis.count for axis in outer)
        into = shape, _strides(shape, last.count)
        source = _view(np.ascontiguousarray(numbers), last.count, self.first, *into)
        top = 8 * (last.count - 1)
        # entry i, at bit 8·i, belongs at bit i·bits of the top byte; what lands below never carries into it
        factor = sum(1 << top - (8 - last.bits) * i for i in range(last.count))
        word = source.dtype.type
        packed = source & word(int.from_bytes(bytes([self._mask << self.at] * last.count), "little"))
        if self.at:
            packed >>= word(self.at)
        packed *= word(factor)
        packed >>= word(top)
        bits = packed.astype(np.uint8)
        if self.shift:
            bits <<= np.uint8(self.shift)
        target = _view(blocks, 1, self.byte, shape, tuple(axis.bytes for axis in outer))
        np.bitwise_or(target, bits, out=target)

    def locate(self, entry: int) -> list[BitRange]:
        """Return where the plane's bits of one entry are; empty if it does not cover the entry."""
        left, byte, low = entry - self.first, self.byte, self.shift
        if not 0 <= left < self.entries:
            return []
        for axis in reversed(self.axes):
            left, index = divmod(left, axis.count)
            byte, low = byte + index * axis.bytes, low + index * axis.bits
        found, at, end = [], self.at, self.at + self.bits
        while at < end:  # the bits may span bytes of the word
            count = min(8 - low % 8, end - at)
            found.append(BitRange(byte + low // 8, low % 8, count, at))
            low, at = low + count, at + count
        return found


def _inside(axes: Sequence[Axis]) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Yield each place of entries within a word, as indices of the axes, and the entries of all blocks."""
    for index in np.ndindex(*(axis.count if axis.bits else 1 for axis in axes)):
        box = [slice(i, i + 1) if axis.bits else slice(None) for i, axis in zip(index, axes, strict=True)]
        yield index, (slice(None), *box)


def _strides(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Return the strides of a row-major array with elements of ``size`` bytes."""
    return tuple(size * prod(shape[i + 1 :]) for i in range(len(shape)))


def _view(
    array: npt.NDArray[Any], size: int, first: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> npt.NDArray[Any]:
    """View a contiguous array of rows as integers of ``size`` bytes, from byte ``first`` of each row."""
    if not len(array):
        return np.empty((0, *shape), _DTYPES[size])
    row = array.shape[1] * array.itemsize
    return np.ndarray((len(array), *shape), _DTYPES[size], array.data, first, (row, *strides))


@dataclass(frozen=True)
class StructField:
    """One kind of number that a block holds ``count`` times: its codes, its scale codes, its d.

    ``kind``: "u" unsigned, "i" two's complement, "f" IEEE 754 half precision. ``offset`` is what the format
    subtracts from the stored bits (Q6_K's codes are stored plus 32).
    """

    name: str
    count: int
    planes: tuple[BitPlane, ...]
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
            # integers of any size wrap to the bits that are stored; floats go by the largest
            whole = given if given.dtype.kind in "iu" else given.astype("<i8")
            stored = whole.astype(f"<u{self._size}", copy=False)
            if self.offset:
                stored = stored + stored.dtype.type(self.offset)
        for plane in self.planes:
            plane.write(stored.reshape(len(blocks), self.count), blocks)

    def locate(self, entry: int) -> tuple[BitRange, ...]:
        """Return where the bits of one number are, the lowest first."""
        found = [bits for plane in self.planes for bits in plane.locate(entry)]
        return tuple(sorted(found, key=lambda bits: bits.at))


def half(name: str, byte: int) -> StructField:
    """Return a float16 at ``byte`` of the block."""
    return StructField(name, 1, (BitPlane(byte, (Axis(1),), 16, word=2),), "f")


def nibbles(byte: int, run: int, runs: int = 1) -> BitPlane:
    """Return runs of bytes: a run's low nibbles are its first ``run`` entries, its high nibbles the next."""
    return BitPlane(byte, (Axis(runs, run), Axis(2, bits=4), Axis(run, 1)), 4)


def crumbs(byte: int, at: int = 0) -> BitPlane:
    """Return two runs of 32 bytes, each with 32 entries in bits 0-1, the next 32 in bits 2-3, and so on."""
    return BitPlane(byte, (Axis(2, 32), Axis(4, bits=2), Axis(32, 1)), 2, at)


def nibble_pairs(byte: int, count: int, bits: int = 4, at: int = 0, shift: int = 0) -> BitPlane:
    """Return two entries per byte, the first in the low nibble: ``bits`` bits of each, from ``shift`` on."""
    return BitPlane(byte, (Axis(count // 2, 1), Axis(2, bits=4)), bits, at, shift=shift)
