"""Readings of the codes as unsigned ones: as they are, or before their middle was subtracted."""

from collections.abc import Iterable

from quantcore.formats import IntFormat
from quantcore.matching.hypotheses.corruption import Corruption, Lowered
from quantcore.matching.hypotheses.scoring import GivenCodes

_LOWERED = (4, 8)  # widths of the codes that int4 or int8 is to hold


def unsigned(readings: Iterable[GivenCodes]) -> list[GivenCodes]:
    """Return the readings whose formats start at 0, with these formats."""
    found = [
        GivenCodes(r.corruption, r.codes, tuple(f for f in r.formats if not (f.signed or f.narrow)))
        for r in readings
    ]
    return [reading for reading in found if reading.formats]


def from_lowest(readings: list[GivenCodes]) -> list[GivenCodes]:
    """Return the unsigned readings, and signed ones whose lowest code is reached, counted from there."""
    found = unsigned(readings)
    for reading in readings:
        low, high = int(reading.codes.min()), int(reading.codes.max())
        bits = next((bits for bits in _LOWERED if low == -(1 << bits - 1) and high < -low), 0)
        if bits:
            lowered = Corruption((), (*reading.corruption.stored, Lowered(-low)))
            codes = (reading.codes.int() - low).contiguous()
            found.append(GivenCodes(lowered, codes, (IntFormat(bits, False),)))
    return found
