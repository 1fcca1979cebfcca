"""What a finding is."""

from dataclasses import dataclass
from typing import Literal

from quantcore.analysis import decibels
from quantcore.scheme import Scheme

# (start, stop) along each axis of x
Box = tuple[tuple[int, int], ...]
Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
MAX_BOXES = 256  # every cell of the largest maps with numbers in them


@dataclass(frozen=True)
class Gain:
    """What the proposed scheme improves, as it was computed.

    ``what``: "SQNR" in dB, "bits per element", "error at 0" (the largest |x̂| where x is 0) or "clipped
    elements"; of SQNR more is better, of the others less.
    """

    what: str
    before: float
    after: float

    def __str__(self) -> str:
        if self.what == "SQNR":
            return f"SQNR {decibels(self.before)} → {decibels(self.after)}"
        return f"{self.what} {self.before:.4g} → {self.after:.4g}"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or could be better, with the numbers of this tensor.

    ``severity``: "error" the result is likely not what was meant · "warning" the same storage could keep more
    of the tensor · "note" worth knowing. ``boxes``: the elements, blocks or channels meant, at most
    `MAX_BOXES`, the worst first or in order; empty where it is the whole tensor. ``fix``: a scheme that was
    computed and found better by ``gain``; both None where no scheme fixes it.
    """

    kind: str
    severity: Severity
    sentence: str
    boxes: tuple[Box, ...] = ()
    fix: Scheme | None = None
    gain: Gain | None = None


def cell(index: tuple[int, ...]) -> Box:
    """The box of one element."""
    return tuple((i, i + 1) for i in index)
