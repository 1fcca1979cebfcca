"""Rules that libraries and people compute scales by, the likeliest first."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.formats import IntFormat

Values = npt.NDArray[np.float64]
# Lower bounds of scales and ranges in the code of libraries
FLOORS = (float(np.finfo(np.float32).eps), 1e-5, 1e-8, 1e-6, 1e-4, 1e-3, 1e-7, 1e-2, 1e-10, 1e-12)
DEVIATIONS = (3.0, 2.0, 4.0, 1.0, 6.0, 5.0, 2.5, 3.5)
CLIPPED = (0.9, 0.95, 0.8, 0.99, 0.5, 0.85, 0.7, 0.75)  # parts of the range that people keep
STANDARD, USUAL, UNUSUAL = range(3)
ROUND = (100, 200, 10, 50, 20, 500, 1000)  # integers that people divide by
MOST_DIVIDED = 512  # of the integers that a range may be divided by
_MANTISSA_BITS = {"bfloat16": 8, "float16": 11}


class ScaleRule(NamedTuple):
    """``words``: the formula; ``scale``: one per block; ``low``: of the range, for the zero_point.

    ``tier``: `STANDARD` for those of libraries, which are found otherwise if nothing went wrong; `USUAL`;
    `UNUSUAL`.
    """

    words: str
    scale: Values
    low: Values
    tier: int = USUAL


@dataclass(frozen=True, eq=False)
class BlockStatistics:
    """Statistics of each block, float64."""

    low: Values
    high: Values
    largest: Values
    mean: Values
    mean_abs: Values
    std: Values
    sample_std: Values

    @classmethod
    def of(cls, blocks: Tensor) -> "BlockStatistics":
        """Return those of x, one block per row."""
        x = blocks.to(torch.float64).numpy()
        std, count = x.std(1), x.shape[1]
        sample = std * np.sqrt(count / max(count - 1, 1))
        return cls(x.min(1), x.max(1), np.abs(x).max(1), x.mean(1), np.abs(x).mean(1), std, sample)


def rules(of: BlockStatistics, fmt: IntFormat, symmetric: bool, near: float) -> Iterator[ScaleRule]:
    """Yield the rules, the likeliest first; the first is that of min-max.

    Args:
        near: the scale of a single block; the power of two nearest to it is tried.
    """
    yield from _symmetric(of, fmt, near) if symmetric else _asymmetric(of, fmt, near)


def _symmetric(of: BlockStatistics, fmt: IntFormat, near: float) -> Iterator[ScaleRule]:
    half = 1 << (fmt.bits - 1)
    top, low = half - 1, -of.largest
    if fmt.bits == 2:
        yield ScaleRule("mean|x|", of.mean_abs, low)
    for divisor in (top, half, half - 0.5):
        yield ScaleRule(f"max|x| / {divisor:g}", of.largest / divisor, low, STANDARD)
    yield from _at_least(of.largest / top, f"max|x| / {top}", top, low)
    yield from _powers_of_two(f"max|x| / {top}", of.largest / top, fmt, near, low)
    yield from _deviations(of, top, (3.0,))
    if fmt.bits > 2:
        yield ScaleRule("mean|x|", of.mean_abs, low)
    root = f" / √{top}" if top > 1 else ""
    yield ScaleRule(f"2 · mean|x|{root}", 2 * of.mean_abs / np.sqrt(top), low)
    for name, highest in (("max(x)", of.high), ("-min(x)", -of.low)):
        if (highest < of.largest).any() and (highest > 0).all():
            yield ScaleRule(f"{name} / {top}", highest / top, low)
    yield from _deviations(of, top, DEVIATIONS[1:])
    if fmt.bits > 2:
        yield ScaleRule(f"mean|x| / {top}", of.mean_abs / top, low)
    width = of.high - of.low
    yield ScaleRule(f"(max - min) / {2 * half - 1}", width / (2 * half - 1), low, UNUSUAL)
    yield from _divided("max|x|", of.largest, low)
    for part in CLIPPED:
        yield ScaleRule(f"{part:g} · max|x| / {top}", part * of.largest / top, low)
    yield from _added("max|x|", of.largest, top, low)
    yield from _unusual("max|x|", of.largest, top, low)
    for divisor in (half, half - 0.5):
        yield from _in_half(f"max|x| / {divisor:g}", of.largest / divisor, low)


def _asymmetric(of: BlockStatistics, fmt: IntFormat, near: float) -> Iterator[ScaleRule]:
    codes = 1 << fmt.bits
    low, high = np.minimum(of.low, 0), np.maximum(of.high, 0)
    ranges = [("(max - min)", high - low, low)]
    if (low != of.low).any() or (high != of.high).any():  # 0 is not in the range of x
        ranges = [("(max(x, 0) - min(x, 0))", high - low, low), ("(max - min)", of.high - of.low, of.low)]
    if not low.any():
        ranges = [("max(x)", high, low), *ranges[1:]]
    for divisor in (codes - 1, codes, codes - 2):
        for name, width, start in ranges:
            tier = STANDARD if divisor == codes - 1 else USUAL
            yield ScaleRule(f"{name} / {divisor}", width / divisor, start, tier)
    for name, width, start in ranges:
        yield from _at_least(width / (codes - 1), f"{name} / {codes - 1}", codes - 1, start)
    name, width, start = ranges[0]
    yield from _powers_of_two(f"{name} / {codes - 1}", width / (codes - 1), fmt, near, start)
    yield from _deviations(of, codes - 1, DEVIATIONS[:3], centered=False)
    for name, width, start in ranges:
        yield from _divided(name, width, start)
        yield from _added(name, width, codes - 1, start)
        yield from _unusual(name, width, codes - 1, start)


def _powers_of_two(
    words: str, scale: Values, fmt: IntFormat, near: float, low: Values
) -> Iterator[ScaleRule]:
    if len(scale) > 1:
        logs = np.log2(np.maximum(scale, 1e-38))
        for way, rounded in (("up", np.ceil), ("down", np.floor), ("to the nearest exponent", np.round)):
            powers = np.exp2(rounded(logs))
            yield ScaleRule(f"power of two, {words} rounded {way}", powers, low)
        return
    power = round(math.log2(near))
    whole = fmt.bits - 1 + power
    fixed = f", fixed point Q{whole}.{-power}" if fmt.signed and whole >= 0 and power <= 0 else ""
    yield ScaleRule(f"2^{power}, a power of two{fixed}", np.array([2.0**power]), low)


def _deviations(
    of: BlockStatistics, divisor: int, counts: tuple[float, ...], centered: bool = True
) -> Iterator[ScaleRule]:
    for k in counts:
        for std, how in ((of.std, ""), (of.sample_std, ", the std with n - 1")):
            if centered:
                yield ScaleRule(f"{k:g} · std(x) / {divisor}{how}", k * std / divisor, -k * std)
            else:  # mean ± k·std
                words = f"{2 * k:g} · std(x) / {divisor}{how}"
                yield ScaleRule(words, 2 * k * std / divisor, of.mean - k * std)


def _at_least(scale: Values, words: str, divisor: int, low: Values) -> Iterator[ScaleRule]:
    """Yield the scale or its range with a lower bound, where that changes it."""
    for floor in FLOORS:
        name = "eps of float32" if floor == FLOORS[0] else f"{floor:g}"
        if (scale < floor).any():
            yield ScaleRule(f"{words}, at least {name}", np.maximum(scale, floor), low)
        if (scale * divisor < floor).any():
            least = np.maximum(scale * divisor, floor) / divisor
            yield ScaleRule(f"{words}, the range at least {name}", least, low)


def _divided(name: str, width: Values, low: Values) -> Iterator[ScaleRule]:
    for n in ROUND:
        yield ScaleRule(f"{name} / {n}", width / n, low)


def _added(name: str, width: Values, steps: int, low: Values) -> Iterator[ScaleRule]:
    """Yield the scale or its range plus a small number, where that changes it a little."""
    for floor in FLOORS:
        for words, added in (
            (f"{name} / {steps} + {floor:g}", floor),
            (f"({name} + {floor:g}) / {steps}", floor / steps),
        ):
            if ((width * 1e-4 < added * steps) & (added * steps < width)).all():
                yield ScaleRule(words, width / steps + added, low)


def _in_half(words: str, scale: Values, low: Values) -> Iterator[ScaleRule]:
    for dtype, bits in _MANTISSA_BITS.items():
        unit = 2.0 ** (np.floor(np.log2(np.maximum(scale, 1e-30))) + 1 - bits)
        yield ScaleRule(f"{words}, rounded to {dtype}", np.round(scale / unit) * unit, low, UNUSUAL)


def _unusual(name: str, width: Values, steps: int, low: Values) -> Iterator[ScaleRule]:
    """Yield the scale rounded to decimals or half precision, and the range divided by any integer."""
    scale, words = width / steps, f"{name} / {steps}"
    for decimals in range(1, 9):
        found = np.round(scale, decimals)
        if (found > 0).all():
            yield ScaleRule(f"{words}, rounded to {decimals} decimals", found, low, UNUSUAL)
    yield from _in_half(words, scale, low)
    by_distance = sorted(set(range(2, MOST_DIVIDED + 1)) - {*ROUND}, key=lambda n: abs(n - steps))
    for n in by_distance if steps < MOST_DIVIDED else ():
        yield ScaleRule(f"{name} / {n}", width / n, low, UNUSUAL)
