"""Every convention on a sample, for one format: how many of the drawn codes do not fit."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from quantcore.conventions import CONVENTIONS, Convention
from quantcore.formats import IntFormat
from quantcore.match.damage import Damage, brought, changed
from quantcore.match.sample import Counts, Grid, Sample, is_lost, parameter_key, values_of
from quantcore.match.sources import Source
from quantcore.refusal import refusal
from quantcore.scheme import Scheme

Shape = tuple[int, ...]
NEAREST = 3  # granularities that are kept of one convention and format, where none fits
# Mistakes that come after the plain arithmetic, and those that matter only where a zero_point is not 0
_CLAMPS = ("", "wrapped", "narrow")
_ZERO_POINT = ("zero_point_negated", "zero_point_left_out")


_OF_INTEGERS = [c for c in CONVENTIONS.values() if "int" in c.formats]


@dataclass(frozen=True, eq=False)
class Reading:
    """Given codes with a damage undone, as float32 on the axes of the original, and the formats they may have."""

    damage: Damage
    codes: Tensor
    formats: tuple[IntFormat, ...]
    _drawn: dict[Sample, Tensor] = field(default_factory=dict)

    def drawn(self, sample: Sample) -> Tensor:
        """The codes of the sample's elements."""
        if sample not in self._drawn:
            self._drawn[sample] = self.codes.reshape(-1)[sample.index]
        return self._drawn[sample]


@dataclass(eq=False)
class Task:
    """What is tried together: where scales come from, readings of the codes, mistakes in the arithmetic.

    ``uniform``: granularities that a library takes all or none of along an axis, and of which only those that
    fit are kept, not the near; ``tried``: schemes compared so far.
    """

    source: Source
    readings: list[Reading]
    computed: tuple[str, ...] = ("",)
    uniform: bool = False
    tried: int = 0

    def formats(self) -> list[IntFormat]:
        """All formats of the readings, narrower ones first."""
        every = {f for reading in self.readings for f in reading.formats}
        return sorted(every, key=lambda f: (f.bits, not f.signed, f.narrow))


@dataclass(frozen=True)
class Hypothesis:
    """A scheme and a damage, and the share of the sampled codes that do not fit."""

    scheme: Scheme
    damage: Damage
    share: float


def score(task: Task, fmt: IntFormat, shape: Shape, limit: float) -> Iterator[Hypothesis]:
    """Yield what fits the sample, and of each convention, granularity kind, reading and mistake the nearest.

    ``limit``: the share of wrong codes from which on nothing is near.
    """
    readings = [r for r in task.readings if fmt in r.formats]
    for symmetric in task.source.symmetries(fmt):
        for sample in task.source.samples:
            known: dict[Any, dict[tuple[int, str], Counts]] = {}
            for convention in _OF_INTEGERS:
                kept = _Kept(task.source, sample, Scheme(fmt, symmetric, convention=convention), shape)
                if not kept.any(task.uniform):
                    continue
                resolved = convention.at(sample.granularities[0])
                key = parameter_key(resolved), resolved.kernel, resolved.rounding
                if key not in known:
                    grid = task.source.grid(sample, symmetric, fmt, resolved)
                    same = grid.key(), resolved.kernel, resolved.rounding
                    if same not in known:
                        known[same] = _counts(sample, grid, resolved, fmt, readings, task.computed)
                    known[key] = known[same]
                for (i, computed), wrong in known[key].items():
                    task.tried += len(wrong)
                    shares = wrong / sample.sizes
                    if shares.min() < (0.0 if task.uniform else limit) or not shares.all():
                        damage = Damage(task.source.mistake or computed, readings[i].damage.stored)
                        yield from kept.hypotheses(damage, shares)


@dataclass(eq=False)
class _Kept:
    """Makes hypotheses of a convention and format on a sample: of what the library can do."""

    source: Source
    sample: Sample
    scheme: Scheme
    shape: Shape

    def __post_init__(self) -> None:
        key = self.scheme.convention.name, self.scheme.format, self.scheme.symmetric
        # asking a library's limits costs more than the arithmetic on a sample, so it is done once
        self._taken: dict[int, Scheme | None] = self.sample.schemes.setdefault(key, {})

    def any(self, uniform: bool) -> bool:
        """Whether the library can do any of the granularities; of ``uniform`` ones the ends stand for all."""
        count = len(self.sample.granularities)
        return any(self._at(i) for i in ((0, count - 1) if uniform else range(count)))

    def hypotheses(self, damage: Damage, shares: Any) -> Iterator[Hypothesis]:
        """Yield the granularities that fit, or else the nearest."""
        fits = np.flatnonzero(shares == 0).tolist()
        for i in fits or np.argsort(shares, kind="stable")[:NEAREST].tolist():
            scheme = self._at(i)
            if scheme:
                yield Hypothesis(changed(scheme, damage.computed), damage, float(shares[i]))

    def _at(self, i: int) -> Scheme | None:
        if i not in self._taken:
            granularity, s = self.sample.granularities[i], self.scheme
            scheme = Scheme(
                s.format, s.symmetric, granularity, self.source.setting(granularity), s.convention
            )
            self._taken[i] = None if refusal(scheme, self.shape) else scheme
        return self._taken[i]


def _counts(
    sample: Sample,
    grid: Grid,
    resolved: Convention,
    fmt: IntFormat,
    readings: list[Reading],
    computed: tuple[str, ...],
) -> dict[tuple[int, str], Counts]:
    """Wrong codes per granularity, for each reading and mistake."""
    drawn = [r.drawn(sample) for r in readings]
    shifted = bool(grid.zero_point.any())
    found, plain = {}, None
    for kind in computed:
        if kind in _ZERO_POINT and not shifted:
            continue
        if kind in _CLAMPS:
            plain = values_of(sample, grid, resolved) if plain is None else plain
            values = plain
        else:
            values = values_of(sample, grid, resolved, kind)
        codes, lost = brought(kind, values.clone(), fmt), is_lost(values)
        for i, given in enumerate(drawn):
            found[i, kind] = sample.count((codes != given) & ~lost)
    return found
