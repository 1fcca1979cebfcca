"""Codes in words: which code sits where, as data, and one kernel that takes codes out and puts them back.

==========================  ==================================================================================
order                       used by
==========================  ==================================================================================
``dense(b, w)``             codes one after another from the lowest bit, across words: compressed-tensors
                            since 0.17.0, MLX, GPTQ (where 3-bit codes cross words too), all FP4 (b=4, w=8)
``padded(b, w)``            whole codes only, from the lowest bit; the rest of each word is empty:
                            compressed-tensors before 0.17.0
``permuted(b, w, places)``  code j at the place ``places[j]`` of its word: AWQ
``high_first(b, w)``        from the highest bits down: bitsandbytes
``planar(b)``               GPTQModel's gptq_p: per 32 codes, planes of 1, 2 and 4 bits one after another
``parts(order)``            the codes of a word lie far apart, one from each of equal parts of the axis: HQQ,
                            quanto, BitNet
==========================  ==================================================================================

Codes are taken out place by place: code j of every period at once, as a plane of contiguous numbers, from
bytes where these lie along the axis; the planes are then interleaved. Taking them period by period costs ten
times as much. Two codes of 4 bits in a byte are looked up at once: a table of 256 pairs takes a third of the
time of unpacking and looking up one by one.
"""

import math
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Codes = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class Fragment:
    """Some bits of a code: ``width`` bits from ``low`` of the code lie at ``shift`` of the word ``word``."""

    word: int
    shift: int
    width: int
    low: int = 0


@dataclass(frozen=True)
class PackingOrder:
    """A period of codes and the words that they fill.

    ``bits``: of a code;
    ``word_bits``: of a word in the file, which is little-endian;
    ``codes``: the fragments of each code of a period;
    ``words``: of a period.
    ``in_parts``: code j of period p is element ``j * periods + p`` of the axis; otherwise ``p * count + j``.
    """

    bits: int
    word_bits: int
    words: int
    codes: tuple[tuple[Fragment, ...], ...]
    in_parts: bool = False

    @property
    def count(self) -> int:
        """Codes of a period."""
        return len(self.codes)

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The unsigned dtype of a word."""
        return np.dtype(f"<u{self.word_bits // 8}")

    def periods(self, n: int) -> int:
        """Return how many periods ``n`` codes take, the last perhaps in part."""
        return -(-n // self.count)

    def words_of(self, n: int) -> int:
        """Return how many words ``n`` codes take."""
        whole, rest = divmod(n, self.count)
        if self.in_parts:
            return self.periods(n) * self.words
        return whole * self.words + (self._words_of_first[rest - 1] if rest else 0)

    @cached_property
    def in_bytes(self) -> "PackingOrder":
        """The same order in words of 8 bits, for codes of up to 8; a code across bytes has two fragments."""
        size = self.word_bits // 8
        if size == 1 or self.bits > 8:
            return self
        in_order = (tuple(replace(f, word=f.word * size) for f in code) for code in self.codes)
        codes = tuple(tuple(part for f in code for part in _cut(f, 8)) for code in in_order)
        total = self.words * size
        # the smallest period, so that planes are long
        while not self.in_parts and total % 2 == len(codes) % 2 == 0 and _repeats(codes, total // 2):
            codes, total = codes[: len(codes) // 2], total // 2
        return PackingOrder(self.bits, 8, total, codes, self.in_parts)

    @cached_property
    def _words_of_first(self) -> tuple[int, ...]:
        used = [max(f.word for f in code) + 1 for code in self.codes]
        return tuple(max(used[: i + 1]) for i in range(len(used)))

    def place(self, index: int, n: int) -> tuple[tuple[int, int], ...]:
        """Return (word, bit in the word) of each bit of code ``index`` of ``n``, the lowest bit first."""
        if self.in_parts:
            code, period = divmod(index, self.periods(n))
        else:
            period, code = divmod(index, self.count)
        found = {
            f.low + i: (period * self.words + f.word, f.shift + i)
            for f in self.codes[code]
            for i in range(f.width)
        }
        return tuple(found[bit] for bit in range(self.bits))


def _cut(f: Fragment, width: int) -> tuple[Fragment, ...]:
    """Cut a fragment where words of ``width`` bits end, each of which lies in the next."""
    end, at, found = f.shift + f.width, f.shift, list[Fragment]()
    while at < end:
        taken = min(width - at % width, end - at)
        found.append(Fragment(f.word + at // width, at % width, taken, f.low + at - f.shift))
        at += taken
    return tuple(found)


def _repeats(codes: tuple[tuple[Fragment, ...], ...], words: int) -> bool:
    """Tell whether the second half of the codes lies as the first, ``words`` words later."""
    half = len(codes) // 2
    moved = tuple(tuple(replace(f, word=f.word + words) for f in code) for code in codes[:half])
    return moved == codes[half:]


@cache
def dense(bits: int, word_bits: int) -> PackingOrder:
    """Place codes one after another from the lowest bit; a code may continue in the next word."""
    period = math.lcm(bits, word_bits)
    codes = tuple(_cut(Fragment(0, start, bits), word_bits) for start in range(0, period, bits))
    return PackingOrder(bits, word_bits, period // word_bits, codes)


@cache
def padded(bits: int, word_bits: int) -> PackingOrder:
    """Place as many whole codes in a word as fit, from the lowest bit."""
    codes = tuple((Fragment(0, bits * j, bits),) for j in range(word_bits // bits))
    return PackingOrder(bits, word_bits, 1, codes)


@cache
def permuted(bits: int, word_bits: int, places: tuple[int, ...]) -> PackingOrder:
    """Place code j of each word at bit ``bits * places[j]``."""
    return PackingOrder(bits, word_bits, 1, tuple((Fragment(0, bits * place, bits),) for place in places))


def high_first(bits: int, word_bits: int) -> PackingOrder:
    """Place codes as `padded`, but from the highest place of the word down."""
    count = word_bits // bits
    return permuted(bits, word_bits, tuple(range(count - 1, -1, -1)))


@cache
def planar(bits: int) -> PackingOrder:
    """Place 32 codes as planes of 4, 2 and 1 bits, each dense in words of 32 bits, the lowest bits first.

    Source: GPTQModel, utils/planar_packing.py.
    """
    planes = [width for width in (4, 2, 1) if bits & width] if bits < 8 else [8]
    codes: list[tuple[Fragment, ...]] = [()] * 32
    word = low = 0
    for width in planes:
        per_word = 32 // width
        codes = [
            (*code, Fragment(word + j // per_word, width * (j % per_word), width, low))
            for j, code in enumerate(codes)
        ]
        word, low = word + width, low + width
    return PackingOrder(bits, 32, bits, tuple(codes))


def parts(order: PackingOrder) -> PackingOrder:
    """Place codes in the same words, each with one code from each of equal parts of the axis."""
    return replace(order, in_parts=True)


def unpack(words: npt.NDArray[Any], order: PackingOrder, n: int, axis: int = -1) -> Codes:
    """Return the ``n`` codes along ``axis`` of words, as unsigned integers."""
    axis %= words.ndim
    outer, inner = words.shape[:axis], words.shape[axis + 1 :]
    periods = order.periods(n)
    words = _whole_periods(words, periods * order.words, axis)
    units = words.reshape(math.prod(outer), periods, order.words, math.prod(inner))
    if math.prod(inner) == 1:  # the bytes of words lie along the axis
        fine = order.in_bytes
        if fine is not order:
            data = np.ascontiguousarray(units).view(np.uint8)
            order, units = fine, data.reshape(len(units), -1, fine.words, 1)
    codes = _interleaved(_planes(units, order), order)
    return codes.reshape(*outer, -1, *inner)[(slice(None),) * axis + (slice(n),)]


def _planes(units: npt.NDArray[Any], order: PackingOrder) -> Codes:
    """Return code j of every period, for each j: (count, outer, periods, inner)."""
    outer, periods, _, inner = units.shape
    sources = [np.ascontiguousarray(units[:, :, k]) for k in range(order.words)]
    planes = np.empty((order.count, outer, periods, inner), np.uint8 if order.bits <= 8 else np.uint16)
    for plane, fragments in zip(planes, order.codes, strict=True):
        for number, f in enumerate(fragments):
            # narrowed before it is masked, since narrow numbers take less time
            shifted = sources[f.word] >> f.shift if f.shift else sources[f.word]
            part = shifted.astype(plane.dtype) if number else plane
            if not number:
                np.copyto(plane, shifted, casting="unsafe")
            if f.shift + f.width < order.word_bits:
                part &= (1 << f.width) - 1
            if f.low:
                part <<= f.low
            if number:
                plane |= part
    return planes


def _interleaved(planes: Codes, order: PackingOrder) -> Codes:
    """Return planes in the order of their elements: (outer, codes, inner)."""
    count, outer, periods, inner = planes.shape
    axes = (1, 0, 2, 3) if order.in_parts else (1, 2, 0, 3)
    if planes.dtype.itemsize == 1:  # numpy takes ten times as long to transpose bytes
        moved = torch.from_numpy(planes).permute(axes).contiguous().numpy()
    else:
        moved = np.ascontiguousarray(planes.transpose(axes))
    return moved.reshape(outer, count * periods, inner)


def pack(codes: npt.NDArray[Any], order: PackingOrder, axis: int = -1) -> npt.NDArray[Any]:
    """Return the words of codes along ``axis``; bits that belong to no code are 0.

    Args:
        codes: unsigned integers of at most ``order.bits`` bits.
    """
    axis %= codes.ndim
    n = codes.shape[axis]
    outer, inner = codes.shape[:axis], codes.shape[axis + 1 :]
    periods = order.periods(n)
    codes = _whole_periods(codes, periods * order.count, axis)
    shape = (order.count, periods) if order.in_parts else (periods, order.count)
    grouped = codes.reshape(math.prod(outer), *shape, math.prod(inner))
    words = np.zeros((len(grouped), periods, order.words, grouped.shape[-1]), order.dtype)
    for j, fragments in enumerate(order.codes):
        source = grouped[:, j] if order.in_parts else grouped[:, :, j]
        for f in fragments:
            part = (source >> f.low) & ((1 << f.width) - 1)
            words[:, :, f.word] |= part.astype(order.dtype) << f.shift
    packed = words.reshape(*outer, periods * order.words, *inner)
    return packed[(slice(None),) * axis + (slice(order.words_of(n)),)]


def _whole_periods(x: npt.NDArray[Any], length: int, axis: int) -> npt.NDArray[Any]:
    """Return x with zeros added along ``axis`` up to ``length``, or cut there."""
    missing = length - x.shape[axis]
    if missing <= 0:
        return x[(slice(None),) * axis + (slice(length),)]
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, missing)
    return np.pad(x, widths)
