"""What a finding is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from quantcore.analysis import decibels
from quantcore.scheme import Scheme

# (start, stop) along each axis of x
Box = tuple[tuple[int, int], ...]
Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
MAX_BOXES = 256  # all cells of the largest map that shows numbers


Measure = Literal["SQNR", "bits per element", "error at 0"]


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


@dataclass(frozen=True)
class Finding:
    """Something that is wrong or could be better, with the numbers of this tensor.

    ``severity``: "error" if the result is probably wrong, "warning" if about the same storage could give a smaller
    error, "note" if worth knowing. ``boxes``: the affected elements, blocks or channels, at most `MAX_BOXES`, the
    worst first or in order; empty for the whole tensor. ``fix``: a scheme that was computed and is better by
    ``gain``; both None if no scheme fixes it. ``facts``: the numbers and names that the sentence is made from, at full
    precision: numbers, texts, and tuples of them.
    """

    kind: str
    severity: Severity
    sentence: str
    boxes: tuple[Box, ...] = ()
    fix: Scheme | None = None
    gain: Gain | None = None
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)


def cell(index: tuple[int, ...]) -> Box:
    """The box of one element."""
    return tuple((i, i + 1) for i in index)
