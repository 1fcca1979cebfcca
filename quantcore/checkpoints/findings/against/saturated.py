"""Codes that saturate: the original goes on where the codes end, so that all that lies beyond is clipped.

Scales that are too small, codes without their negative half or in half of their range, and scales that
saturate themselves leave codes that agree with each other in all layers: only the original shows the loss. It
is compared with what the same number of bits reaches: the codes of the whole range on the stored scales, on
larger ones, or on those of min-max. Clipping that a search chose, which loses little or gains, is sound.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from quantcore.analysis import relative_error, sqnr_of
from quantcore.checkpoints.findings.against.measure import Measure
from quantcore.checkpoints.findings.against.suspect import Suspect
from quantcore.checkpoints.findings.record import CheckpointFinding, error
from quantcore.checkpoints.statement import Facts
from quantcore.formats import IntFormat

_SAMPLE = 1 << 18  # elements on which saturation is looked for
_LOUD = 2.0  # times the squared error of rounding to the steps of the stored scales
_CLIPPED, _LOST = 0.01, 0.7  # fraction of the codes, and of the squared error, that is clipped
# dB below what the bits reach, and how much of that: 2 bits reach 7. Searches that minimize the error of
# outputs lose less
_LESS_DB, _LESS_OF = 4.0, 0.4
_TYPICAL = 0.95  # of the mean |error| that is left: half as much where outliers are clipped on purpose
_AS_WELL = 0.5  # dB: of two ways to reach as much, the first is said
_FACTORS = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 16.0, 64.0)  # by which scales may be too small


@dataclass(frozen=True)
class Saturated:
    """The codes of a weight that saturate.

    ``low``, ``high``: the levels at which the codes end, and ``clipped``: the fraction that lies beyond one
    of them, ``below``: beyond the lower one; ``lost``: the fraction of the squared error there.
    ``sqnr``: in dB, and ``reach`` of the same bits; ``factor``: of the scales that reach it, 0 for those of
    min-max. ``relative``: the relative error that is left; ``typical``: the mean |error| now, over what is
    left, which a search that clips outliers makes smaller.
    """

    low: float
    high: float
    clipped: float
    below: float
    lost: float
    sqnr: float
    reach: float
    factor: float
    relative: float
    typical: float

    @property
    def matters(self) -> bool:
        """Whether clipping costs more than a search for the best scale gives away."""
        much = self.clipped >= _CLIPPED and self.lost >= _LOST and self.typical >= _TYPICAL
        return much and self.reach - self.sqnr >= min(_LESS_DB, _LESS_OF * self.reach)


def saturated(s: Suspect) -> Saturated | None:
    """Return how the codes of a weight saturate; None if that is not what makes its error."""
    if s.grid is None or not s.measure.sums.ee > _LOUD * s.measure.rounded:
        return None
    few = _of(replace(s, most=_SAMPLE))
    if few is None or not few.matters:
        return None
    found = _of(s)
    return found if found is not None and found.matters else None


def of_saturated(measure: Measure, found: Saturated) -> CheckpointFinding:
    """Return the finding on codes that saturate."""
    layout = measure.layout
    element, negative = layout.element, found.below > 0.9 * found.clipped
    facts: Facts = {
        "share": found.clipped, "low": found.low, "high": found.high, "lost": found.lost,
        "sqnr": found.sqnr, "reach": found.reach, "factor": found.factor, "format": str(element),
        "before": measure.relative, "after": found.relative,
    }  # fmt: skip
    ends = "beyond the largest one, {high}"
    if negative:
        ends = "below the smallest one, {low}"
    elif found.below > 0.1 * found.clipped:
        ends = "beyond the ends of {its} codes, {low} and {high}"
    way = {
        0.0: "min-max scales and zero points with all codes of {format} reach",
        1.0: "all codes of {format} on the same scales reach",
    }.get(found.factor, "{format} with scales {factor} times as large reaches")
    words = (
        f"{{has}} {{share:%}} of {{its}} codes clipped: the original goes on {ends}. {{lost:%}} of the "
        f"squared error is there; SQNR {{sqnr}} dB, where {way} {{reach}} dB."
    )
    return error(layout, "saturated", words, **facts)


def _of(s: Suspect) -> Saturated | None:
    assert s.grid is not None
    known = s.scales != 0
    if not bool(known.any()):
        return None
    low, high = float(s.values[known].min()), float(s.values[known].max())
    if low == high:  # of one number nothing is known
        return None
    upward = ((s.x - s.y) / s.scales).nan_to_num(0.0, 0.0, 0.0)
    room = s.grid.gaps[s.codes] / 2
    above, below = (s.values == high) & (upward > room), (s.values == low) & (upward < -room)
    squares = (s.x - s.y).double().square_()
    total, power = float(squares.sum()), float(s.x.double().square().sum())
    if not total or not power:
        return None
    clipped = above | below
    lost = float(squares[clipped].sum()) / total
    if lost < _LOST:
        return None
    reach = [(sqnr_of(power, float(e.double().square().sum())), factor, e) for factor, e in _reached(s)]
    best = max(db for db, _, _ in reach)
    db, factor, left = next(one for one in reach if one[0] >= best - _AS_WELL)
    typical = float((s.x - s.y).abs().mean() / left.abs().mean().clamp(min=1e-30))
    relative = relative_error(power, float(left.double().square().sum()))
    return Saturated(
        low, high, float(clipped.double().mean()), float(below.double().mean()), lost,
        sqnr_of(power, total), db, factor, relative, typical,
    )  # fmt: skip


def _reached(s: Suspect) -> Iterator[tuple[float, Tensor]]:
    """Yield factors of the scales, 0 for min-max ones, and the errors of rounding to nearest with them."""
    assert s.grid is not None
    levels = torch.unique(s.grid.table[s.grid.table.isfinite()])
    middles = (levels[1:] + levels[:-1]) / 2
    for factor in _FACTORS:
        scale = s.scales * factor
        shift = s.shift if s.measure.has_min else s.shift * factor
        at = ((s.x - shift) / scale).nan_to_num(0.0, 0.0, 0.0)
        yield factor, s.x - (scale * levels[torch.bucketize(at, middles)] + shift)
    if isinstance(s.layout.element, IntFormat) and not s.layout.symmetric:
        yield 0.0, s.x - _min_max(s, 2**s.layout.element.bits - 1)


def _min_max(s: Suspect, steps: int) -> Tensor:
    """Return integers of min-max for each run of columns."""
    columns = torch.arange(s.x.shape[1])
    order = columns if s.measure.order is None else s.measure.order
    size = s.measure.run if s.layout.shape[-1] == s.measure.width else s.x.shape[1]
    parts = []
    for x in torch.split(s.x[:, order], size, 1):
        low, high = x.amin(1, keepdim=True).clamp(max=0.0), x.amax(1, keepdim=True).clamp(min=0.0)
        scale = (high - low) / steps
        parts.append(low + scale * ((x - low) / scale).nan_to_num(0.0).round())
    return torch.cat(parts, 1)[:, order.argsort()]
