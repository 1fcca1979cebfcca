"""A scale derived from the codes alone: every scale that gives them, and the one that a person would write.

|x/s + z - q| <= 1/2 for every code q except qmin and qmax, which satisfy one side only; a code that wrapped
may be off by 2^bits. Codes that are rounded down or toward zero have other bounds. For each zero_point this
leaves intervals of 1/s.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.formats import IntFormat
from quantcore.granularity import PerTensor
from quantcore.matching.hypotheses.corruption import Corruption, Reinterpreted, changed
from quantcore.matching.hypotheses.sample import always_the_same, write_given
from quantcore.matching.hypotheses.scoring import WORKED_OUT, WRITTEN, GivenCodes, Hypothesis
from quantcore.mistakes import Kinds
from quantcore.scheme import Scheme

Values = npt.NDArray[np.float64]
Interval = tuple[float, float]
MOST = 2048  # elements used for the intervals
MAX_BITS = 8  # of the widest format whose zero_points are all tried
EVIDENCE = 20.0  # bits of evidence required beyond the bits of the explanation
SHORT = 2  # digits of a range that a person would write; one less for a scale
_WRAPS = 1  # how often a code may have wrapped
_FEW = 32  # elements that zero_points are tried on first
SLACK = 1e-6  # relative: float32 rounds x/s
# The rounding of codes, as a mistake; "": to nearest
ROUNDED = ("", "floor", "toward_zero")


@dataclass(frozen=True)
class ScaleFit:
    """A zero_point, the scales that give the codes with it, and whether codes wrapped."""

    zero_point: int
    low: float
    high: float
    wrapped: bool

    def holds(self, scale: float) -> bool:
        """Tell whether a scale is in the interval, up to float32 rounding."""
        return self.low * (1 - SLACK) <= scale <= self.high * (1 + SLACK)


def fitted(x: Tensor, reading: GivenCodes) -> Iterator[Hypothesis]:
    """Yield schemes with fitted parameters, the simplest first; some may fit only part of the tensor."""
    values, codes = drawn(x, reading.codes)
    # wrapped codes are the same whether read as signed or unsigned
    wraps = not any(isinstance(step, Reinterpreted) for step in reading.corruption.stored)
    for fmt in reading.formats:
        if fmt.bits > MAX_BITS:
            continue
        found: list[tuple[ScaleFit, Kinds]] = [
            (fit, ("wrapped",) if fit.wrapped else ()) for fit in fits(values, codes, fmt, wraps)
        ]
        for rounding in ROUNDED[1:] if not found else ():
            found += [(fit, (rounding,)) for fit in fits(values, codes, fmt, False, rounding)]
        for fit, kinds in found:
            scale, written = likely(fit.low, fit.high, fmt)
            setting = write_given(torch.tensor(scale), torch.tensor(float(fit.zero_point)))
            scheme = Scheme(fmt, fit.zero_point == fmt.middle, PerTensor(), setting)
            yield Hypothesis(
                changed(scheme, kinds),
                Corruption(kinds, reading.corruption.stored),
                0.0,
                WRITTEN if written else WORKED_OUT,
                rule=_written(scale, fmt) if written else "",
            )


def evidence_of(x: Values, codes: Values, fmt: IntFormat) -> int:
    """Return the bits of the codes beyond those of a scale.

    qmin, qmax and the codes of zeros count for nothing; the scale takes two bits more than a code.
    """
    counted = int(np.count_nonzero((codes > fmt.qmin) & (codes < fmt.qmax) & (x != 0)))
    return fmt.bits * counted - (fmt.bits + 2)


def fits(x: Values, codes: Values, fmt: IntFormat, wraps: bool = True, rounding: str = "") -> list[ScaleFit]:
    """Return every fit that the codes give enough evidence for; ``rounding``: one of `ROUNDED`."""
    evidence, found = evidence_of(x, codes, fmt), []
    if evidence - fmt.bits >= EVIDENCE:
        found += clamped(x, codes, fmt, rounding)
    if wraps and not fmt.narrow and evidence - len(x) * math.log2(2 * _WRAPS + 1) >= EVIDENCE:
        for z in dict.fromkeys((0, fmt.middle)):
            found += [ScaleFit(z, *span, True) for span in _wrapped(x, codes, fmt, z)]
    return found


def clamped(x: Values, codes: Values, fmt: IntFormat, rounding: str = "") -> list[ScaleFit]:
    """Return every fit without wrapped codes, the middle first."""
    return [ScaleFit(z, *span, False) for z, span in _clamped(x, codes, fmt, rounding)]


def interval(
    x: Tensor, codes: Tensor, fmt: IntFormat, zero_point: int, wrapped: bool, near: float, rounding: str = ""
) -> Interval:
    """Return the scales around ``near`` that give codes of x's shape, up to float32 rounding."""
    values, integers = drawn(x, codes.to(torch.float32))
    if wrapped:
        spans = _wrapped(values, integers, fmt, zero_point)
    else:
        spans = [span for z, span in _clamped(values, integers, fmt, rounding) if z == zero_point]
    least, most = near * (1 - SLACK), near * (1 + SLACK)
    return next(((low, high) for low, high in spans if low <= most and high >= least), (near, near))


def likely(low: float, high: float, fmt: IntFormat) -> tuple[float, bool]:
    """Return the scale with the shortest decimal, its own or its range's, and whether that decimal is short.

    >>> likely(0.0995, 0.1004, IntFormat(8)), likely(0.01179, 0.01184, IntFormat(8)) == (1.5 / 127, True)
    ((0.1, True), True)
    """
    ranges = _ranges(fmt)
    found = [(*_shortest(low * n, high * n), n) for n in ranges]
    digits, value, n = min(found, key=lambda f: (f[0] > ranges[f[2]], f[0]))
    return value / n, digits <= ranges[n]


def _ranges(fmt: IntFormat) -> dict[int, int]:
    """Return what a scale is multiplied by to be a range, and the digits of a range that is short."""
    return {1: SHORT - 1, fmt.qmax - fmt.middle: SHORT, fmt.qmax - fmt.qmin: SHORT}


def _written(scale: float, fmt: IntFormat) -> str:
    """Return a scale as a person would write it: itself, or its range."""
    for n, digits in _ranges(fmt).items():
        text = f"{scale * n:.{digits}g}"
        if math.isclose(float(text), scale * n, rel_tol=1e-9):
            return f"{text} / {n}" if n > 1 else text
    return f"{scale:.7g}"


def _shortest(low: float, high: float) -> tuple[int, float]:
    """Return the number between low and high with the fewest digits, and how many."""
    middle = (low + high) / 2
    for digits in range(1, 17):
        value = float(f"{middle:.{digits - 1}e}")
        if low < value < high:
            return digits, value
    return 17, middle


def drawn(x: Tensor, codes: Tensor) -> tuple[Values, Values]:
    """Return the largest elements, which constrain the scale most, and some others, as float64."""
    x, codes = x.reshape(-1), codes.reshape(-1)
    if x.numel() > MOST:
        places = x.abs().topk(MOST // 2).indices
        others = torch.randint(x.numel(), (MOST // 2,), generator=always_the_same())
        x, codes = (t[torch.cat([places, others])] for t in (x, codes))
    values, integers = x.double().numpy(), codes.double().numpy()
    kept = np.isfinite(values)
    return (values, integers) if kept.all() else (values[kept], integers[kept])


def _clamped(x: Values, codes: Values, fmt: IntFormat, rounding: str = "") -> list[tuple[int, Interval]]:
    """Return zero_points, the middle first, with the scales that give the codes, clamped to qmin and qmax."""
    zs = _tried(fmt)
    zero = x == 0
    if zero.any():  # their code is the zero_point
        zs = zs[np.isin(zs, codes[zero])] if len(np.unique(codes[zero])) == 1 else zs[:0]
        x, codes = x[~zero], codes[~zero]
    if len(x) > _FEW:  # the first few usually rule out most zero_points
        zs = np.array([z for z, _ in _spans(x[:_FEW], codes[:_FEW], fmt, zs, rounding)], dtype=np.float64)
    return _spans(x, codes, fmt, zs, rounding) if len(zs) else []


@lru_cache(64)
def _tried(fmt: IntFormat) -> Values:
    """Return the zero_points that are tried, the middle first; shared: do not write to it."""
    every: Sequence[int] = range(fmt.qmin, fmt.qmax + 1)
    if fmt.bits > MAX_BITS:
        every = [z for z in {0, fmt.middle, fmt.middle - 1} if fmt.qmin <= z]
    return np.array(sorted(every, key=lambda z: abs(z - fmt.middle)), dtype=np.float64)


def _spans(x: Values, codes: Values, fmt: IntFormat, zs: Values, rounding: str) -> list[tuple[int, Interval]]:
    steps = codes[None] - zs[:, None]
    below, above = steps - 0.5, steps + 0.5  # bounds of x / s
    if rounding == "floor":
        below, above = steps, steps + 1
    elif rounding == "toward_zero":
        below, above = steps - (steps <= 0), steps + (steps >= 0)
    below = np.where(codes == fmt.qmin, -np.inf, below)
    above = np.where(codes == fmt.qmax, np.inf, above)
    low = (np.where(x < 0, -above, below) / np.abs(x)).max(1, initial=0.0)
    high = (np.where(x < 0, -below, above) / np.abs(x)).min(1, initial=np.inf)
    fine = (high > low * (1 + SLACK)) & (low > 0) & np.isfinite(high)
    return [(int(z), (1 / b, 1 / a)) for z, a, b in zip(zs[fine], low[fine], high[fine], strict=True)]


def _wrapped(x: Values, codes: Values, fmt: IntFormat, z: int) -> list[Interval]:
    """Return the scales that give the codes with one zero_point if some codes wrapped, at most once each."""
    if not x.any() or (codes[x == 0] != z).any():
        return []
    turns = np.arange(-_WRAPS, _WRAPS + 1) * float(1 << fmt.bits)
    spans = np.array([[np.finfo(np.float64).tiny, np.inf]])
    for xi, q in sorted(zip(x[x != 0], codes[x != 0], strict=True), key=lambda pair: -abs(pair[0])):
        bounds = np.sort(np.stack([q + turns - z - 0.5, q + turns - z + 0.5]) / xi, 0).T
        low = np.maximum(spans[:, None, 0], bounds[None, :, 0]).ravel()
        high = np.minimum(spans[:, None, 1], bounds[None, :, 1]).ravel()
        fine = high > low * (1 + SLACK)
        spans = np.stack([low[fine], high[fine]], 1)
        if not len(spans):
            return []
    return [(1 / b, 1 / a) for a, b in spans.tolist() if _wraps(x, (a + b) / 2, z, fmt)]


def _wraps(x: Values, inverse: float, z: int, fmt: IntFormat) -> bool:
    values = np.round(x * inverse) + z
    return bool(((values < fmt.qmin) | (values > fmt.qmax)).any())
