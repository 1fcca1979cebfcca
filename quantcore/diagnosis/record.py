"""What a finding is, and how findings write numbers and places."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from quantcore.analysis import decibels
from quantcore.displayed import Displayed
from quantcore.numerics import apart
from quantcore.scheme import Scheme
from quantcore.wording import joined

# (start, stop) along each axis of x
Box = tuple[tuple[int, int], ...]
Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
MAX_BOXES = 256  # all cells of the largest map that shows numbers

Measure = Literal["SQNR", "bits per element", "error at 0"]
LISTED = 3  # channels that a sentence lists


@dataclass(frozen=True)
class Gain:
    """What the proposed scheme improves, computed on the same tensor.

    ``what``: "SQNR" in dB (more is better), "bits per element" or "error at 0", the largest |x̂| where x is 0
    (less is better).
    """

    what: Measure
    before: float
    after: float

    def __str__(self) -> str:
        if self.what == "SQNR":
            return f"SQNR {decibels(self.before)} → {decibels(self.after)}"
        return f"{self.what} {self.before:.4g} → {self.after:.4g}"


@dataclass(frozen=True, repr=False)
class Finding(Displayed):
    """Something that is wrong or could be better, with the numbers of this tensor.

    ``severity``: "error" if the result is probably wrong, "warning" if about the same storage could give a
    smaller error, "note" if worth knowing. ``boxes``: the affected elements, blocks or channels, at most
    `MAX_BOXES`, the worst first or in order; empty for the whole tensor. ``fix``: a scheme that was computed
    and is better by ``gain``; both None if no scheme fixes it. ``facts``: the numbers and names that the
    sentence is made from, at full precision: numbers, texts, and tuples of them.
    """

    kind: str
    severity: Severity
    sentence: str
    boxes: tuple[Box, ...] = ()
    fix: Scheme | None = None
    gain: Gain | None = None
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)


def cell(index: tuple[int, ...]) -> Box:
    """Return the box of one element."""
    return tuple((i, i + 1) for i in index)


def number(value: float) -> str:
    """Write a number with four significant digits."""
    return f"{value:.4g}"


def percent(fraction: float) -> str:
    """Write a fraction in percent, with three significant digits, or with as many as tell it from all."""
    return f"{apart(100 * fraction, 100, digits=3)} %"


def gains(before: float, after: float) -> str:
    """Say what another scheme does to the SQNR: ``gains 3.3 dB SQNR``, or both values if one is infinite."""
    gain = after - before
    if math.isfinite(gain):
        return f"gains {decibels(gain)} SQNR"
    return f"takes the SQNR from {decibels(before)} to {decibels(after)}"


def index(place: tuple[int, ...]) -> str:
    """Write an index: ``(3, 17)``."""
    return f"({', '.join(map(str, place))})"


def channels(rank: int, axis: int, places: Sequence[int]) -> str:
    """Name channels: ``Column 8``, ``Columns 3 and 8``, ``Channels 0, 1, 2 and 4 more of axis 1``."""
    name = ("Row", "Column")[axis] if rank == 2 else "Channel"
    listed = [str(place) for place in places[:LISTED]]
    if len(places) > LISTED:
        listed.append(f"{len(places) - LISTED} more")
    return f"{name}{'s' * (len(places) > 1)} {joined(listed)}{'' if rank == 2 else f' of axis {axis}'}"
