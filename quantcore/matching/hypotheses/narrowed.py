"""Granularities that codes may have: those that cannot are not searched again.

In a block, a larger x has no smaller code, or no larger one if the scale is below 0: every scheme and most
mistakes keep this order, and a code that wrapped or is damaged breaks it once. Where the order is broken
nearly as often as by chance, nothing fits. If one scale, or one per channel, gives all codes, other
granularities explain nothing.
"""

from functools import cached_property

import numpy as np
import numpy.typing as npt
from torch import Tensor

from quantcore.conventions import Convention
from quantcore.granularity import Granularity, PerChannel, PerTensor
from quantcore.matching.hypotheses.corruption import Stored
from quantcore.matching.hypotheses.mistaken_scales import sortable
from quantcore.matching.hypotheses.named_scales import BlockFits, block_fits
from quantcore.matching.hypotheses.sample import Counts, Sample, Source
from quantcore.matching.hypotheses.scoring import GivenCodes, SearchTask
from quantcore.mistakes import Kinds

MOST_FALLING = 0.35  # fraction of neighbors whose order is reversed; by chance it is a half
FEWEST = 8  # neighbors that tell


class Narrowed:
    """The granularities of each reading of the codes; ``base``: of the codes as they are given."""

    def __init__(self, x: Tensor, every: Source, base: GivenCodes) -> None:
        self.x, self.every, self.base = x, every, base
        self._granularities: dict[tuple[Stored, ...], tuple[Granularity, ...]] = {}
        self._sources: dict[tuple[Granularity, ...], Source] = {}

    @cached_property
    def fits(self) -> list[BlockFits]:
        """What scales the given codes allow per tensor, or else per channel or group."""
        return block_fits(self.x, self.base) if sortable(self.x) else []

    def tasks(
        self,
        readings: list[GivenCodes],
        computed: tuple[Kinds, ...] = ((),),
        conventions: tuple[Convention, ...] | None = None,
    ) -> list[SearchTask]:
        """Return tasks with the granularities that each reading may have."""
        alike: dict[tuple[Granularity, ...], list[GivenCodes]] = {}
        for reading in readings:
            alike.setdefault(self.granularities(reading), []).append(reading)
        return [
            SearchTask(self._source(kept), own, computed, conventions=conventions)
            for kept, own in alike.items()
            if kept
        ]

    def granularities(self, reading: GivenCodes) -> tuple[Granularity, ...]:
        """Return those that a reading may have."""
        key = reading.corruption.stored
        if key not in self._granularities:
            is_base = key == self.base.corruption.stored
            every = [g for sample in self.every.samples for g in sample.granularities]
            found: list[Granularity]
            if self.fits and isinstance(self.fits[0].granularity, PerTensor | PerChannel):
                found = [self.fits[0].granularity] if is_base else []
            else:
                found = in_order(self.every.samples, reading, None if is_base else self.base)
            # a task for every reading costs more than some granularities
            self._granularities[key] = tuple(found if 2 * len(found) < len(every) else every)
        return self._granularities[key]

    def _source(self, kept: tuple[Granularity, ...]) -> Source:
        if kept not in self._sources:
            self._sources[kept] = self.every.only(kept)
        return self._sources[kept]


def in_order(samples: list[Sample], reading: GivenCodes, base: GivenCodes | None = None) -> list[Granularity]:
    """Return the granularities whose sampled blocks mostly keep the order of x.

    ``base``: the codes as they are given; where these keep the order everywhere, they are not corrupted.
    """
    found: list[Granularity] = []
    for sample in samples:
        kept = _keeps_order(sample, reading, base, False) | _keeps_order(sample, reading, base, True)
        found += [sample.granularities[i] for i in np.flatnonzero(kept).tolist()]
    return found


def _keeps_order(
    sample: Sample, reading: GivenCodes, base: GivenCodes | None, signed_scale: bool
) -> npt.NDArray[np.bool_]:
    """Return a mask of the granularities that `in_order` keeps; ``signed_scale``: see `_steps`."""
    falling, rising = _steps(sample, reading, signed_scale)
    kept: npt.NDArray[np.bool_] = (falling + rising < FEWEST) | (falling <= MOST_FALLING * (falling + rising))
    if base is not None:
        of_base, rising = _steps(sample, base, signed_scale)
        kept &= ~((of_base == 0) & (rising >= FEWEST) & (falling > 0))
    return kept


def _steps(sample: Sample, reading: GivenCodes, signed_scale: bool) -> tuple[Counts, Counts]:
    """Return per granularity how often the code falls and rises from one x of a block to the next larger.

    ``signed_scale``: the largest |x| of a block has the lowest code, so where it is positive, codes fall.
    """
    order, larger = sample.neighbors
    steps = np.append(np.where(larger, np.diff(reading.drawn(sample).numpy()[order]), 0), 0)
    if signed_scale:
        below_0 = (sample.high > -sample.low).numpy()
        steps[below_0[sample.block.numpy()[order]]] *= -1
    falling: Counts = np.add.reduceat(steps < 0, sample.starts, dtype=np.int64)
    rising: Counts = np.add.reduceat(steps > 0, sample.starts, dtype=np.int64)
    return falling, rising
