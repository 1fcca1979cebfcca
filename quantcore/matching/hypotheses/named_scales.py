"""The rule of a scale that no library has: of the scales that the codes allow, the one that a rule gives.

A rule may be in an interval by chance: the wider the interval, and the more rules are likelier, the likelier
that is. It is named only if that is improbable.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from quantcore.formats import IntFormat
from quantcore.granularity import (
    Granularity,
    PerBlock,
    PerChannel,
    PerTensor,
    block_bounds,
    block_shape,
    grid_shape,
    shared_by,
    to_blocks,
)
from quantcore.matching.hypotheses.corruption import Corruption, changed
from quantcore.matching.hypotheses.sample import write_given
from quantcore.matching.hypotheses.scale_from_codes import (
    EVIDENCE,
    ROUNDED,
    ScaleFit,
    clamped,
    drawn,
    evidence_of,
    likely,
)
from quantcore.matching.hypotheses.scale_rules import (
    STANDARD,
    UNUSUAL,
    BlockStatistics,
    ScaleRule,
    Values,
    rules,
)
from quantcore.matching.hypotheses.scoring import NAMED, WORKED_OUT, GivenCodes, Hypothesis
from quantcore.matching.hypotheses.search_space import granularities, other_groups
from quantcore.mistakes import Kinds
from quantcore.numerics import apart, rounding
from quantcore.scheme import Scheme
from quantcore.wording import joined

SURE, CERTAIN = 0.05, 0.005  # chance up to which a rule is named: once all else was tried, and before
BLOCKS = 16  # whose intervals are computed
MOST_BLOCKS = 512  # whose scales are worked out one by one
MOST_LISTED = 3  # other rules that fit
MOST_VERIFIED = 1 << 18  # elements: codes of larger tensors are computed in evaluation alone
_AS_LIKELY = 1.5  # times the chance of the likeliest rule: the same rule in another format
_NEIGHBORS = 4.0  # rules whose scales are within this factor are counted
_SHORT = {True: 11, False: 216}  # of short numbers within it: one digit, or a range of two
# How a zero_point may have been rounded; "": half to even
_ZERO_POINTS: dict[str, Callable[[Values], Values]] = {
    "": np.round,
    "away from zero": lambda v: np.sign(v) * np.floor(np.abs(v) + 0.5),  # if it is a tie
    "toward zero": np.trunc,
    "down": np.floor,
    "up": np.ceil,
}
_TIES = ("", "half_away", "half_up")


@dataclass(frozen=True, eq=False)
class BlockFits:
    """The scales that the codes of some blocks allow, by zero_point, for a format, a rounding, a granularity.

    ``places``: of these blocks.
    """

    x: Tensor
    reading: GivenCodes
    granularity: Granularity
    format: IntFormat
    rounding: str
    places: list[int]
    fits: list[dict[int, ScaleFit]]

    @cached_property
    def statistics(self) -> BlockStatistics:
        """Of all blocks."""
        return BlockStatistics.of(_rows(self.x, self.granularity))

    @property
    def is_whole(self) -> bool:
        """Whether there is one block."""
        return isinstance(self.granularity, PerTensor)

    @property
    def centers(self) -> list[int]:
        """The zero_points of symmetric schemes that all blocks allow."""
        fmt = self.format
        every = dict.fromkeys((fmt.middle, 0, *(() if fmt.signed else (fmt.middle - 1,))))
        return [z for z in every if all(z in found for found in self.fits)]

    def width(self, zero_point: int | None = None) -> float:
        """Return how likely a scale is in all intervals by chance, if it may be off by a factor of 4."""
        spans = [
            found[zero_point] if zero_point in found else next(iter(found.values())) for found in self.fits
        ]
        logs = [math.log(fit.high / fit.low) / (2 * math.log(_NEIGHBORS)) for fit in spans]
        return math.prod(min(1.0, each) for each in logs)


class _Named(NamedTuple):
    """A rule that gives a scale in every interval, and zero_points; ``said``: why these."""

    chance: float
    rule: ScaleRule
    symmetric: bool
    zero_points: Values
    said: str


def block_fits(x: Tensor, reading: GivenCodes) -> list[BlockFits]:
    """Return what fits per tensor, or else per channel, or in the largest groups or blocks.

    Codes that are rounded to nearest, if that fits.
    """
    for granularity in _largest_first(tuple(x.shape)):
        blocks = _SomeBlocks.of(x, reading, granularity)
        formats = [fmt for fmt in reading.formats if blocks.are_evidence(fmt)]
        for rounded in ROUNDED if formats else ():
            found = [blocks.fits(fmt, rounded) for fmt in formats]
            kept = [each for each in found if each is not None]
            if kept:
                return kept
    return []


def _largest_first(shape: tuple[int, ...]) -> list[Granularity]:
    """Return the granularities whose blocks are all of one size: the tensor, channels, then the rest."""
    every = [*granularities(shape), *other_groups(shape)]
    blocks = {granularity: block_shape(granularity, shape) for granularity in every}
    alike = [g for g, block in blocks.items() if all(n % b == 0 for n, b in zip(shape, block, strict=True))]

    def order(granularity: Granularity) -> tuple[bool, int]:
        of_channel = isinstance(granularity, PerTensor | PerChannel)
        return not of_channel, 0 if of_channel else -math.prod(blocks[granularity])

    return sorted(alike, key=order)


class _SomeBlocks(NamedTuple):
    """Up to `BLOCKS` blocks of a tensor, as x and codes of each."""

    x: Tensor
    reading: GivenCodes
    granularity: Granularity
    places: list[int]
    elements: list[tuple[Values, Values]]

    @classmethod
    def of(cls, x: Tensor, reading: GivenCodes, granularity: Granularity) -> "_SomeBlocks":
        shape = tuple(x.shape)
        block = block_shape(granularity, shape)
        grid = grid_shape(shape, block)
        places, elements = [], []
        for place in sorted({int(i) for i in np.linspace(0, math.prod(grid) - 1, BLOCKS)}):
            spans = block_bounds(shape, block, tuple(int(i) for i in np.unravel_index(place, grid)))
            inside = tuple(slice(*span) for span in spans)
            if x[inside].any():
                places.append(place)
                elements.append(drawn(x[inside], reading.codes[inside]))
        return cls(x, reading, granularity, places, elements)

    def are_evidence(self, fmt: IntFormat) -> bool:
        """Tell whether the codes say enough of each block's scale, and of its own zero_point."""
        evidence = [evidence_of(x, codes, fmt) - fmt.bits for x, codes in self.elements]
        return min(evidence, default=-1) >= 0 and sum(evidence) >= EVIDENCE

    def fits(self, fmt: IntFormat, rounded: str) -> BlockFits | None:
        """Return what fits in every block; None if nothing does in one of them.

        Blocks of zeros, such as pruned channels, fit every scale and are not asked.
        """
        fitting = []
        for values, codes in self.elements:
            found = clamped(values, codes, fmt, rounded)
            if not found:
                return None
            fitting.append({fit.zero_point: fit for fit in found})
        return BlockFits(self.x, self.reading, self.granularity, fmt, rounded, self.places, fitting)


def _rows(x: Tensor, granularity: Granularity) -> Tensor:
    return to_blocks(x.to(torch.float32), block_shape(granularity, tuple(x.shape)))


def named(every_fit: list[BlockFits], every: bool) -> Iterator[Hypothesis]:
    """Yield the likeliest rule that gives a scale in every interval, unless that may be by chance.

    Args:
        every_fit: of all formats.
        every: whether to try unusual rules too, and to name those of libraries, which a mistake may explain.
    """
    best, likeliest = math.inf, None
    pairs = [(hit, found) for found in every_fit for hit in _hits(found, every)]
    if not every and any(hit.rule.tier == STANDARD and not hit.said for hit, _ in pairs):
        return
    for hit, found in sorted(pairs, key=lambda pair: pair[0].chance):
        alike = likeliest is not None and np.array_equal(hit.rule.scale, likeliest)  # in a wider format
        if hit.chance > (SURE if every else CERTAIN) or (hit.chance > best * _AS_LIKELY and not alike):
            continue
        # a block of zeros has any scale
        scale = torch.from_numpy(np.where(hit.rule.scale > 0, hit.rule.scale, 1.0).astype(np.float32))
        kinds = _kinds(found, scale, hit.zero_points)
        if kinds is None:
            continue
        if hit.chance < best:
            best, likeliest = hit.chance, hit.rule.scale
        others = [h for h, f in pairs if f is found and h.chance <= SURE and h.rule.words != hit.rule.words]
        said = _said(found, hit, sorted(others, key=lambda other: other.chance))
        plain = _hypothesis(found, scale, hit.zero_points, hit.symmetric, kinds)
        yield replace(plain, doubt=NAMED, rule=hit.rule.words, said=said)


def worked_out(every_fit: list[BlockFits]) -> Iterator[Hypothesis]:
    """Yield scales and zero_points derived from the codes of each channel or group, for each of the fits."""
    for found in every_fit:
        yield from _worked_out(found)


def _worked_out(found: BlockFits) -> Iterator[Hypothesis]:
    blocks, codes = _rows(found.x, found.granularity), _rows(found.reading.codes, found.granularity)
    if found.is_whole or len(blocks) > MOST_BLOCKS:
        return
    chosen: list[tuple[float, int]] = []
    for i in range(len(blocks)):
        if not blocks[i].any():  # of any scale
            chosen.append((1.0, int(codes[i, 0])))
            continue
        spans = clamped(*drawn(blocks[i], codes[i]), found.format, found.rounding)
        if not spans:
            return
        fit = next((f for f in spans if f.zero_point in found.centers), spans[0])
        chosen.append((likely(fit.low, fit.high, found.format)[0], fit.zero_point))
    scales, zs = zip(*chosen, strict=True)
    scale, z = torch.tensor(scales, dtype=torch.float32), np.array(zs, dtype=np.float64)
    kinds: Kinds = (found.rounding,) if found.rounding else ()
    yield _hypothesis(found, scale, z, bool((z == found.format.middle).all()), kinds)


def _hypothesis(
    found: BlockFits, scale: Tensor, zero_points: Values, symmetric: bool, kinds: Kinds
) -> Hypothesis:
    shape = tuple(found.x.shape)
    grid = grid_shape(shape, block_shape(found.granularity, shape))
    z = torch.from_numpy(np.broadcast_to(zero_points, scale.shape).astype(np.float32))
    setting = write_given(scale.reshape(grid), z.reshape(grid))
    scheme = Scheme(found.format, symmetric, found.granularity, setting)
    corruption = Corruption(kinds, found.reading.corruption.stored)
    return Hypothesis(changed(scheme, kinds), corruption, 0.0, WORKED_OUT)


def _hits(found: BlockFits, every: bool) -> Iterator[_Named]:
    """Yield the rules that give a scale in every interval."""
    fmt = found.format
    written = _SHORT[False] + _SHORT[True] if every else 0
    for z in found.centers:
        if not every and z == 0 and not fmt.signed:
            continue  # a middle that is omitted is a mistake
        said = "" if z in (0, fmt.middle) else f"the zero point is {z}: the codes are symmetric around it"
        for count, rule in _near(found, True, z):
            held = all(fit[z].holds(rule.scale[i]) for fit, i in zip(found.fits, found.places, strict=True))
            if not held or (rule.tier == UNUSUAL and not every):
                continue
            least = (2 if said else 1) * (count + written * (rule.tier == UNUSUAL))
            chance, center = least * found.width(z), np.array([float(z)])
            yield _Named(chance, rule, z == fmt.middle, center, said)
    for count, rule in _near(found, False):
        for times, zs, said in _zero_points(found, rule):
            if every or rule.tier != UNUSUAL:
                least = times * (count + written * (rule.tier == UNUSUAL))
                yield _Named(least * found.width(int(zs[found.places[0]])), rule, False, zs, said)


def _near(
    found: BlockFits, symmetric: bool, zero_point: int | None = None
) -> Iterator[tuple[int, ScaleRule]]:
    """Yield the rules, each with how many up to it give a scale within a factor of those in the intervals."""
    first = found.fits[0]
    fit = first[zero_point] if zero_point is not None else next(iter(first.values()))
    middle, count = (fit.low + fit.high) / 2, 0
    for rule in rules(found.statistics, found.format, symmetric, middle):
        value = rule.scale[found.places[0]]
        if value > 0 and 1 / _NEIGHBORS <= value / middle <= _NEIGHBORS:
            count += 1
            yield count, rule


def _zero_points(found: BlockFits, rule: ScaleRule) -> Iterator[tuple[int, Values, str]]:
    """Yield how the zero_points may come from the rule's range, and how many ways are likelier."""
    held = [
        {z for z, fit in fitting.items() if fit.holds(rule.scale[i])}
        for fitting, i in zip(found.fits, found.places, strict=True)
    ]
    if not all(held):
        return
    fmt = found.format
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = rule.low.astype(np.float32) / rule.scale.astype(np.float32)
    exact: Values = np.nan_to_num((np.float32(fmt.qmin) - quotient).astype(np.float64))
    ways: dict[str, Values] = {}
    for times, (way, rounded) in enumerate(_ZERO_POINTS.items(), 1):
        z = np.clip(rounded(exact), fmt.qmin, fmt.qmax)
        if all(z[i] in allowed for i, allowed in zip(found.places, held, strict=True)):
            ways[way] = z
        if ways and times <= 2:  # the other ways differ from these more often
            break
    if ways:
        first, z = next(iter(ways.items()))
        yield 1 + [*_ZERO_POINTS].index(first), z, _because(z, exact, joined([*ways], "or"))
        return
    if found.is_whole:
        z = np.array([float(min(held[0], key=lambda each: abs(each - exact[0])))])
        if abs(z[0] - exact[0]) > 1:
            yield len(_ZERO_POINTS) + 1, z, f"zero point {z[0]:g}, although qmin - low / s = {exact[0]:.7g}"


def _because(z: Values, exact: Values, way: str) -> str:
    if not way:
        return ""
    if len(z) > 1:
        return f"the zero points qmin - low / s are rounded {way}"
    return f"zero point {z[0]:g}, because qmin - low / s = {exact[0]:.7g} is rounded {way}"


def _kinds(found: BlockFits, scale: Tensor, zero_points: Values) -> Kinds | None:
    """Return how codes are rounded, as mistakes; None if no rounding gives them."""
    ways = (found.rounding,) if found.rounding else _TIES
    if found.x.numel() > MOST_VERIFIED:
        return tuple(filter(None, ways[:1]))
    x, codes = _rows(found.x, found.granularity), _rows(found.reading.codes, found.granularity)
    z = torch.from_numpy(np.broadcast_to(zero_points, scale.shape).astype(np.float32))[:, None]
    for way in ways:
        made = rounding(way or "half_even")(x / scale[:, None]) + z
        if torch.equal(made.clamp(found.format.qmin, found.format.qmax), codes):
            return (way,) if way else ()
    return None


def _said(found: BlockFits, hit: _Named, others: list[_Named]) -> tuple[str, ...]:
    """Return sentences on the zero_point, the scale and its interval, and on other rules."""
    words, scale = hit.rule.words, hit.rule.scale[hit.rule.scale > 0]
    chance = f"{100 * hit.chance:.1f} %" if hit.chance >= 0.0005 else "less than 0.1 %"
    if found.is_whole:
        s, fit = float(scale[0]), found.fits[0][int(hit.zero_points[0])]
        allowed = f"the codes allow scales from {apart(fit.low, s)} to {apart(fit.high, s)}"
        first = f"{allowed}; {words} = {s:.7g} is one of them (by chance in {chance} of cases)"
    else:
        block = shared_by(found.granularity, found.x.dim())
        each = block if isinstance(found.granularity, PerChannel | PerBlock) else f"group of {block}"
        first = f"the scales, {words} of each {each}, range from {scale.min():.7g} to {scale.max():.7g}"
    sentences = [hit.said, first]
    if others:
        words_of = dict.fromkeys(f"{each.rule.words} ({each.rule.scale[0]:.7g})" for each in others)
        listed = [*words_of][:MOST_LISTED]
        sentences.append(f"less likely, but also allowed: {joined(listed, 'or')}")
    return tuple(filter(None, sentences))
