"""The search space: every plausible granularity of a shape, every format that holds the codes."""

import itertools
import math
from collections.abc import Collection

import torch
from torch import Tensor

from quantcore.formats import INT4, INT8, MAX_BITS, MIN_BITS, UINT4, UINT8, IntFormat
from quantcore.granularity import Granularity, PerBlock, PerChannel, PerGroup, PerTensor
from quantcore.numerics import CHUNK

Shape = tuple[int, ...]
MAX_GROUP, MAX_BLOCK = 1024, 256  # longest searched, besides the whole axis
MAX_UNUSUAL_GROUP = 128
COMMON_BITS = (4, 8, 16)
_FEW = 0.01  # fraction of the codes that may lie outside a format that is tried, since codes may be corrupted


def granularities(shape: Shape) -> list[Granularity]:
    """Return the granularities searched for a tensor of ``shape``, one kind after the other.

    Groups: powers of two and divisors of each axis. Blocks: powers of two and the whole axis, on the last
    two axes, and squares whose side divides both.
    """
    found: list[Granularity] = [PerTensor()]
    found += [PerChannel(axis) for axis in range(len(shape))]
    for axis, n in enumerate(shape):
        # the last axis is counted from the end, as `PerGroup` and most libraries do
        place = axis - len(shape) if axis == len(shape) - 1 else axis
        found += [PerGroup(size, place) for size in group_sizes(n)]
    return found + [PerBlock(lengths) for lengths in _blocks(shape)]


def group_sizes(n: int) -> list[int]:
    """Return powers of two and divisors from 2 to the whole axis; only the powers if there are many."""
    powers = {1 << i for i in range(1, 11) if 1 << i < n}
    divisors = {size for size in range(2, min(n - 1, MAX_GROUP) + 1) if n % size == 0}
    sizes = powers | divisors if len(powers | divisors) <= 24 else powers
    return sorted(sizes | ({n} if n > 1 else set()))


def other_groups(shape: Shape) -> list[Granularity]:
    """Return groups of up to 128 that `granularities` leaves out: unusual sizes."""
    return [
        PerGroup(size, axis if axis < len(shape) - 1 else -1)
        for axis, n in enumerate(shape)
        for size in sorted(set(range(2, min(n, MAX_UNUSUAL_GROUP + 1))) - set(group_sizes(n)))
    ]


def _blocks(shape: Shape) -> list[Shape]:
    if len(shape) < 2:
        return []
    height, width = shape[-2:]
    sides = [{1 << i for i in range(1, 9) if 1 << i < n} | {n} for n in (height, width)]
    pairs = set(itertools.product(*sides))
    most = min(height, width, MAX_BLOCK)
    pairs |= {(n, n) for n in range(2, most + 1) if height % n == 0 == width % n}
    per_tensor = {(height, width)} if len(shape) == 2 else set()
    lone = {pair for pair in pairs if 1 in pair}
    return [(1,) * (len(shape) - 2) + pair for pair in sorted(pairs - per_tensor - lone)]


def likely_formats(codes: Tensor) -> list[IntFormat]:
    """Return the formats tried first: the narrowest that hold the codes, or 99 % of them.

    Min-max uses the whole format, so a much wider one is likely only if its width is common.
    """
    low, high = int(codes.min()), int(codes.max())
    cut = math.ceil(_FEW / 2 * codes.numel())
    below = torch.zeros(high - low + 1, dtype=torch.int64)
    for piece in torch.split(codes.reshape(-1), CHUNK):  # it counts in 64 bits
        below += torch.bincount(piece - low, minlength=len(below))
    below = below.cumsum(0)
    most = low + int((below < cut).sum()), low + int((below < codes.numel() - cut + 1).sum())
    narrowest, every = _needed(*most), _needed(low, high)
    held = {bits for bits in COMMON_BITS if bits >= every}
    widths = {narrowest, narrowest + 1, every, every + 1} | held
    return _formats(sorted(b for b in widths if MIN_BITS <= b <= MAX_BITS), *most)


def other_formats(low: int, high: int, tried: Collection[IntFormat]) -> list[IntFormat]:
    """Return the formats that hold low .. high and have not been tried, without narrow ones."""
    every = _formats(range(_needed(low, high), MAX_BITS + 1), low, high)
    return [f for f in every if f not in tried and not f.narrow]


def beyond_formats(low: int, high: int) -> list[IntFormat]:
    """Return common formats that codes from low to high exceed, as they may without a clamp."""
    needed = _needed(low, high)
    return [f for f in (INT8, UINT8, INT4, UINT4) if (low < f.qmin or high > f.qmax) and needed <= 2 * f.bits]


def _needed(low: int, high: int) -> int:
    """Return the fewest bits, signed or not, that hold low .. high; 17 if none of up to 16 do."""
    unsigned = max(MIN_BITS, high.bit_length()) if low >= 0 else MAX_BITS + 1
    signed = max(MIN_BITS, *(signed_bits(end) for end in (low, high)))
    return min(unsigned, signed)


def signed_bits(code: int) -> int:
    """Return the fewest bits of a signed format that holds a code."""
    return (-code - 1 if code < 0 else code).bit_length() + 1


def _formats(widths: "list[int] | range", low: int, high: int) -> list[IntFormat]:
    """Return signed, unsigned and narrow formats of these widths that hold low .. high."""
    every = [
        IntFormat(bits, signed, narrow)
        for bits in widths
        for signed in (True, False)
        for narrow in (False, True)
        if signed or not narrow or low >= 1
    ]
    return [f for f in every if f.qmin <= low and high <= f.qmax]
