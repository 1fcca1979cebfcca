"""Schemes of the same bits and at most 5 % more storage that lose much less, where much is lost.

They have any of the `granularities` and a range that may be narrower, are symmetric or not, and of the same
library or the textbook. `better_scheme` estimates which are better, computes the best few, and proposes the
best. `estimate` says how.
"""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from quantcore.analysis import decibels, sqnr_of
from quantcore.conventions import TEXTBOOK
from quantcore.diagnosis.context import ALIKE_DB, Alternative, Context
from quantcore.diagnosis.estimate import Estimate
from quantcore.diagnosis.kind import FindingExample, kind
from quantcore.diagnosis.record import Finding, percent
from quantcore.formats import IntFormat
from quantcore.granularity import (
    Blocks,
    Granularity,
    PerBlock,
    PerChannel,
    PerFlatGroup,
    PerGroup,
    PerTensor,
    Shape,
    shared_by,
)
from quantcore.notation import write_call
from quantcore.range_setting import MIN_MAX, Fixed, MinMse, Percentile, RangeSetting
from quantcore.scheme import Scheme
from quantcore.wording import joined

LOSSY_DB = 30.0  # above this, x̂ loses little
BETTER_DB = 6.0  # one bit's worth
STORAGE = 1.05  # times the storage
MISSED_DB = 1.5  # the estimate may be this much too low
# half a bit: a fix within this of a better scheme leads there, too, and the same library is kept
NEAR_DB = 3.0
NARROWED = 0.9  # a range to be searched is at most this fraction of min-max
COMPUTED = 3  # estimates that are computed exactly
# elements up to which min-MSE is quick: of integers, of other formats
SEARCHED = {True: 1 << 20, False: 1 << 16}
SIZES = tuple(1 << k for k in range(1, 11))  # of groups and, squared, of blocks
_COLUMNS = """1.44, 0.75, -0.6, -0.21, -0.07, 0.06, 0.06, -0.04
3.26, 0.61, 0.4, 0.2, 0.12, 0.07, 0.08, 0.1
2, 1.21, -0.55, 0.15, 0.06, -0.1, 0.05, -0.05
-3.7, -1.14, -0.44, -0.25, 0.06, -0.08, 0.06, 0.04
-3.05, -1.52, -0.31, -0.22, -0.1, -0.08, -0.08, 0.05
3.52, 1.22, 0.54, 0.26, -0.12, -0.08, 0.09, 0.04
3.58, 0.92, 0.45, -0.12, -0.16, 0.05, 0.09, -0.05
-2.77, 0.93, -0.51, 0.13, 0.09, 0.08, -0.08, 0.07"""


def granularities(shape: Shape) -> Iterator[Granularity]:
    """Yield every granularity that is offered for a tensor of ``shape``, the simplest first."""
    yield PerTensor()
    rank = len(shape)
    if rank > 1:
        yield from map(PerChannel, range(rank))
    for axis in reversed(range(rank)):
        place = axis if axis < rank - 1 else -1
        yield from (PerGroup(size, place) for size in SIZES if size < shape[axis])
    if rank > 1:
        yield from (PerBlock((*(1,) * (rank - 2), size, size)) for size in SIZES if size <= min(shape[-2:]))
        yield from (PerFlatGroup(size) for size in SIZES if size < math.prod(shape))


def _written(
    scheme: Scheme, granularity: Granularity, symmetric: bool, setting: RangeSetting
) -> tuple[Scheme, ...]:
    """Return schemes with these parts: of the same library, in the other signedness, of the textbook."""
    same = dataclasses.replace(scheme, granularity=granularity, symmetric=symmetric, range_setting=setting)
    convention = TEXTBOOK.changed(overflow=scheme.convention.coding.overflow)
    textbook = dataclasses.replace(same, convention=convention, scales=None)
    fmt = scheme.format
    if not isinstance(fmt, IntFormat):
        return same, textbook
    return same, dataclasses.replace(same, format=IntFormat(fmt.bits, not fmt.signed, fmt.narrow)), textbook


@kind(
    FindingExample("Scales along the wrong axis", _COLUMNS, "int4 per_channel(0)"),
    ("granularity", "cost"),
    finite=True,
)
def better_scheme(context: Context) -> Iterator[Finding]:
    """Find a scheme of the same bits and about the same storage that loses much less, where much is lost."""
    best = best_alternative(context)
    if best is None:
        return
    now, more = context.report.sqnr_db, best.bits_per_element / context.bits - 1
    cost = f"{percent(more)} more" if more > 0 else f"{percent(-more)} less" if more < 0 else "the same"
    yield better_scheme.finding(
        f"The SQNR is {decibels(now)}. With {changes(context, best.scheme)} it is "
        f"{decibels(best.sqnr_db)}, for {cost} storage.",
        **context.fixed_by(best),
        facts={"sqnr_db": now, "sqnr_db_after": best.sqnr_db, "more_storage": more},
    )


def best_alternative(context: Context) -> Alternative | None:
    """Return the best scheme offered, if it gains `BETTER_DB` where x̂ is worse than `LOSSY_DB`."""
    now = context.report.sqnr_db
    if not now < LOSSY_DB or not context.largest.any():
        return None
    least = max(now + BETTER_DB, context.reached + NEAR_DB)
    enough: list[Alternative] = []
    for estimate, shrink, expected in _promising(context):
        # what is computed on all of x settles it, unless more is to be expected of the others
        if any(trial.sqnr_db >= expected - ALIKE_DB for trial in enough):
            break
        setting = MIN_MAX if shrink == 1 else narrowed(context, estimate.granularity, shrink)
        tried = _computed(context, estimate, setting)
        enough += [trial for trial in tried if trial.sqnr_db >= least]
    return _kept(context.scheme.convention.name, enough)


def _kept(own: str, enough: list[Alternative]) -> Alternative | None:
    """Return the best, or that of the library ``own`` if it is nearly as good; None if there are none."""
    best = max(enough, key=lambda t: t.sqnr_db, default=None)
    if best is None:
        return None
    same = [t for t in enough if t.scheme.convention.name == own and t.sqnr_db >= best.sqnr_db - NEAR_DB]
    return max(same, key=lambda t: t.sqnr_db, default=best)


def _promising(context: Context) -> list[tuple[Estimate, float, float]]:
    """Return the `COMPUTED` best estimates, each with its shrink (1 for min-max) and expected SQNR in dB."""
    least = max(context.report.sqnr_db + BETTER_DB - MISSED_DB, context.reached + NEAR_DB)
    found = []
    for estimate in context.estimates(_pairs(context)):
        for shrink, mse in ((1.0, estimate.min_max), (min(estimate.shrink, NARROWED), estimate.searched)):
            expected = context.report.sqnr_db + sqnr_of(context.report.mse, mse)
            if expected >= least:
                found.append((estimate, shrink, expected))
    found.sort(key=lambda f: ALIKE_DB * _changed(context, f[0], f[1]) - f[2])
    chosen = found[:COMPUTED]
    # what clips can be misjudged by elements that were not drawn, what does not clip can't
    if not any(shrink == 1 for _, shrink, _ in chosen):
        chosen += [f for f in found[COMPUTED:] if f[1] == 1][:1]
    return chosen


def _changed(context: Context, estimate: Estimate, shrink: float) -> int:
    """Count the changed parts of the scheme; of two that gain the same, the one with fewer is proposed."""
    own = context.scheme
    setting = own.range_setting.ends_are_elements == (shrink < 1)
    return (estimate.granularity != own.granularity) + (estimate.symmetric != own.symmetric) + setting


def _pairs(context: Context) -> Iterator[tuple[Granularity, bool]]:
    """Yield what may be best, symmetric and not: the scheme's granularity, the finest per kind and axis."""
    fmt, shape, own = context.scheme.format, context.shape, context.scheme.granularity
    most = STORAGE * context.bits
    room = (most - fmt.bits) * math.prod(shape)  # bits for scales and zero points
    for symmetric in (True, False) if fmt.has_zero_point else (True,):
        if any(context.storage_of(s) <= most for s in _written(context.scheme, own, symmetric, MIN_MAX)):
            yield own, symmetric
        each = 32 + (0 if symmetric else fmt.bits)
        seen: set[tuple[type[Granularity], int | None]] = set()
        for granularity in granularities(shape):
            kind = type(granularity), getattr(granularity, "axis", None)
            if isinstance(granularity, PerFlatGroup) and (PerGroup, -1) in seen:
                continue  # runs across the ends of rows are for rows too short for groups
            if kind in seen or Blocks.of(granularity, shape).count * each > room:
                continue
            seen.add(kind)
            if granularity != own:
                yield granularity, symmetric


def _computed(context: Context, estimate: Estimate, setting: RangeSetting) -> list[Alternative]:
    """Return the scheme as the library writes it and, if that does not gain enough, as the textbook does."""
    *own, textbook = _written(context.scheme, estimate.granularity, estimate.symmetric, setting)
    fits = [s for s in (*own, textbook) if context.storage_of(s) <= STORAGE * context.bits]
    tried = []
    for scheme in dict.fromkeys((*fits[:1], *fits[-1:])):
        trial = context.trial(scheme)
        if trial:
            tried.append(trial)
            if trial.sqnr_db >= context.report.sqnr_db + BETTER_DB:
                break
    return tried


def narrowed(context: Context, granularity: Granularity, shrink: float) -> RangeSetting:
    """Return a setting that narrows ranges to about ``shrink``: min-MSE, or one quick on a large tensor."""
    if context.x_blocked.numel() <= SEARCHED[context.scheme.format.has_zero_point]:
        return MinMse()
    if isinstance(granularity, PerTensor):
        return shrunk(context, shrink)
    low, high = context.drawn(granularity).range(granularity)
    inside = abs(context.drawn(granularity).values) <= shrink * np.maximum(-low, high)
    return Percentile(round(min(max(90.0, 100 * float(inside.mean())), 99.99), 2))


def shrunk(context: Context, shrink: float) -> RangeSetting:
    """Narrow the range of the whole tensor, to three digits; min-MSE if that is too narrow for float32."""
    low, high = (float(f"{bound * shrink:.3g}") for bound in context.bounds)
    low, high = min(low, 0.0), max(high, 0.0)
    return Fixed(low, high) if np.float32(low) < np.float32(high) else MinMse()


def changes(context: Context, scheme: Scheme) -> str:
    """Say what another scheme does differently: ``one scale per column (axis 1) and the min-MSE range``."""
    own, words = context.scheme, []
    if scheme.symmetric != own.symmetric:
        words.append(f"{'symmetric' if scheme.symmetric else 'asymmetric'} {scheme.format}")
    elif scheme.format != own.format:
        words.append(str(scheme.format))
    if scheme.granularity != own.granularity:
        words.append(_shared(scheme.granularity, len(context.shape)))
    if scheme.range_setting != own.range_setting:
        words.append(f"the range {write_call(scheme.range_setting)}")
    if scheme.convention != own.convention:
        words.append(f"{scheme.convention.name}'s arithmetic")
    elif scheme.scales != own.scales:
        words.append("float32 scales")
    return joined(words)


def _shared(granularity: Granularity, rank: int) -> str:
    elements = "for all elements" if granularity == PerTensor() else f"per {shared_by(granularity, rank)}"
    return f"one scale {elements}"
