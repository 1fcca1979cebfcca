"""Every convention on a sample, for one format: how many of the sampled codes differ."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.conventions import INTEGER_CONVENTIONS, Convention
from quantcore.formats import IntFormat
from quantcore.granularity import Granularity, PerGroup, block_shape
from quantcore.matching.hypotheses.corruption import OVERFLOWS, ZERO_POINTS, Corruption, changed
from quantcore.matching.hypotheses.sample import (
    Counts,
    Sample,
    Source,
    code_numbers,
    is_lost,
    numbers_of,
    values_of,
)
from quantcore.mistakes import IN_CODES, Kinds, codes_of_values
from quantcore.qparams import QParams
from quantcore.scheme import PRESETS, Scheme, unsupported_format, unsupported_reason

Shape = tuple[int, ...]
NEAREST = 3  # granularities kept per convention and format if none fits
# `Hypothesis.doubt` of a scale that no library computes: by a rule that the codes leave little doubt about, a
# number that a person would write, an unusual percentile, any other number derived from the codes
NAMED, WRITTEN, OF_PERCENTILE, WORKED_OUT = 1, 2, 3, 4
# Those of calls that only presets use, too, unless scales are quantized as well
_SEARCHED = tuple(
    dict.fromkeys(
        (
            *INTEGER_CONVENTIONS.values(),
            *(s.convention for s in PRESETS.values() if isinstance(s.format, IntFormat) and not s.scales),
        )
    )
)


@dataclass(frozen=True, eq=False)
class GivenCodes:
    """Given codes with a corruption undone, on the axes of the original, and the formats they may have."""

    corruption: Corruption
    codes: Tensor
    formats: tuple[IntFormat, ...]
    _drawn: dict[Sample, Tensor] = field(default_factory=dict)

    def drawn(self, sample: Sample) -> Tensor:
        """Return the codes of the sample's elements, float32."""
        if sample not in self._drawn:
            self._drawn[sample] = self.codes.reshape(-1)[sample.index].to(torch.float32)
        return self._drawn[sample]


@dataclass(eq=False)
class SearchTask:
    """What is tried together: a source of scales, readings of the codes, mistakes in the arithmetic.

    ``uniform``: libraries support all or none of the granularities along an axis, and only those that fit are
    kept, not the nearest; ``symmetries``: tried, of those that the source has; ``conventions``: tried, None
    for all; ``tried``: schemes compared so far.
    """

    source: Source
    readings: list[GivenCodes]
    computed: tuple[Kinds, ...] = ((),)
    uniform: bool = False
    symmetries: tuple[bool, ...] = (True, False)
    conventions: tuple[Convention, ...] | None = None
    tried: int = 0

    def formats(self) -> list[IntFormat]:
        """Return all formats of the readings, narrower ones first."""
        every = {f for reading in self.readings for f in reading.formats}
        return sorted(every, key=lambda f: (f.bits, not f.signed, f.narrow))


@dataclass(frozen=True)
class Hypothesis:
    """A scheme and a corruption, and the fraction of the sampled codes that differ.

    ``doubt``: 0 if a library computes the scale from x, else `NAMED`, `WRITTEN`, `OF_PERCENTILE` or
    `WORKED_OUT`; ``dtype``: in which the library is given x; None: in its own; ``rule``: see `Candidate`;
    ``said``: sentences on scale and zero_point, without full stops.
    """

    scheme: Scheme
    corruption: Corruption
    fraction: float
    doubt: int = 0
    dtype: torch.dtype | None = None
    rule: str = ""
    said: tuple[str, ...] = ()


def score(task: SearchTask, fmt: IntFormat, shape: Shape, limit: float) -> Iterator[Hypothesis]:
    """Yield what fits the sample, and the nearest per convention, kind of granularity, reading and mistake.

    ``limit``: the fraction of wrong codes above which nothing counts as near.
    """
    readings = [r for r in task.readings if fmt in r.formats]
    for symmetric in task.source.symmetries(fmt):
        for sample in task.source.samples if symmetric in task.symmetries else ():
            known: dict[Any, dict[tuple[int, Kinds], Counts]] = {}
            for convention in task.conventions or _SEARCHED:
                supported = _Supported(
                    task.source, sample, Scheme(fmt, symmetric, convention=convention), shape
                )
                if not supported.any(task.uniform):
                    continue
                resolved = _in_dtype(convention, sample.dtype).at(sample.granularities[0])
                coding = resolved.coding
                arithmetic = coding.kernel, coding.rounding, coding.coding_dtype
                key = resolved.parameter_stages, *arithmetic
                if key not in known:
                    grid = task.source.grid(sample, symmetric, fmt, resolved)
                    same = numbers_of(grid), *arithmetic
                    if same not in known:
                        kinds = tuple(each for each in task.computed if _can_be(each, symmetric))
                        known[same] = _counts(sample, grid, resolved, fmt, readings, kinds)
                    known[key] = known[same]
                for (i, computed), wrong in known[key].items():
                    task.tried += len(wrong)
                    fractions = wrong / sample.sizes
                    if fractions.min() < (0.0 if task.uniform else limit) or not fractions.all():
                        corruption = Corruption(task.source.mistake + computed, readings[i].corruption.stored)
                        yield from supported.hypotheses(corruption, fractions)


def _in_dtype(convention: Convention, dtype: torch.dtype) -> Convention:
    """Return the convention with its choices for x of a dtype; in float32 it has them already."""
    return convention if dtype == torch.float32 else convention.in_dtype(str(dtype).removeprefix("torch."))


def _can_be(kinds: Kinds, symmetric: bool) -> bool:
    return all(IN_CODES[kind].symmetric in (None, symmetric) for kind in kinds)


@dataclass(eq=False)
class _Supported:
    """The hypotheses of a convention and format on a sample that its library supports."""

    source: Source
    sample: Sample
    scheme: Scheme
    shape: Shape

    def __post_init__(self) -> None:
        own = self.scheme.convention, self.scheme.format, self.scheme.symmetric, self.source.scales
        # checking a library's limits costs more than the arithmetic on a sample, so it is cached
        self._schemes: dict[Granularity, Scheme | None] = self.sample.schemes.setdefault(
            (*own, self.sample.dtype), {}
        )

    def any(self, uniform: bool) -> bool:
        """Tell whether the library supports any granularity; first and last represent ``uniform`` ones."""
        if unsupported_format(self.scheme):
            return False
        count = len(self.sample.granularities)
        return any(self._at(i) for i in ((0, count - 1) if uniform else range(count)))

    def hypotheses(self, corruption: Corruption, fractions: Any) -> Iterator[Hypothesis]:
        """Yield the granularities that fit, or else the nearest."""
        fits = np.flatnonzero(fractions == 0).tolist()
        for i in fits or np.argsort(fractions, kind="stable")[:NEAREST].tolist():
            scheme = self._at(i)
            if scheme:
                yield Hypothesis(
                    changed(scheme, corruption.computed),
                    corruption,
                    float(fractions[i]),
                    dtype=self.sample.dtype,
                )

    def _at(self, i: int) -> Scheme | None:
        granularity = self.sample.granularities[i]
        if granularity not in self._schemes:
            s = self.scheme
            setting = self.source.setting(granularity)
            scheme = Scheme(s.format, s.symmetric, granularity, setting, s.convention, self.source.scales)
            alike = itertools.chain((scheme,), _in_groups(scheme, self.shape))
            self._schemes[granularity] = next(filter(self._supports, alike), None)
        return self._schemes[granularity]

    def _supports(self, scheme: Scheme) -> bool:
        return unsupported_reason(scheme, self.shape, self.sample.dtype) is None


def _in_groups(scheme: Scheme, shape: Shape) -> Iterator[Scheme]:
    """Yield the scheme in groups that have the same blocks, if each block is the whole of one axis.

    Libraries that support groups alone refuse it per channel. MatMulNBits has a list of sizes besides, and of
    an axis that is shorter it makes one short group.
    """
    block = block_shape(scheme.granularity, shape)
    long = [axis for axis, n in enumerate(block) if n > 1]
    if len(long) != 1 or block[long[0]] != shape[long[0]]:
        return
    axis, n = long[0], block[long[0]]
    listed = [
        size for limit in scheme.convention.limits if limit.of == "group_size" for size in limit.allowed
    ]
    for size in (n, *(size for size in listed if size > n)):
        yield replace(scheme, granularity=PerGroup(size, axis if axis < len(shape) - 1 else -1))


def _counts(
    sample: Sample,
    grid: QParams,
    resolved: Convention,
    fmt: IntFormat,
    readings: list[GivenCodes],
    computed: tuple[Kinds, ...],
) -> dict[tuple[int, Kinds], Counts]:
    """Count wrong codes per granularity, for each reading and combination of mistakes."""
    drawn = [r.drawn(sample) for r in readings]
    coding, shifted = resolved.coding, bool(grid.zero_point.any())
    numbers = code_numbers(sample, grid, coding)
    found: dict[tuple[int, Kinds], Counts] = {}
    before: dict[Kinds, Tensor] = {}  # shared by mistakes that come after the arithmetic
    for kinds in computed:
        if ZERO_POINTS & set(kinds) and not shifted:
            continue
        own = tuple(kind for kind in kinds if kind not in OVERFLOWS)
        if own not in before:
            before[own] = values_of(sample, numbers, coding, own)
        values = before[own]
        codes, lost = codes_of_values(values, coding, kinds, fmt), is_lost(values)
        for i, given in enumerate(drawn):
            found[i, kinds] = sample.count((codes != given) & ~lost)
    return found
