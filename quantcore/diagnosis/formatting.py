"""How findings write numbers and places."""

import math
from collections.abc import Sequence

from quantcore.analysis import decibels
from quantcore.numerics import apart
from quantcore.wording import joined

LISTED = 3  # channels that a sentence lists


def number(value: float) -> str:
    """The number with four significant digits."""
    return f"{value:.4g}"


def percent(fraction: float) -> str:
    """A fraction in percent, with three significant digits, or with as many as tell it from all."""
    return f"{apart(100 * fraction, 100, digits=3)} %"


def gains(before: float, after: float) -> str:
    """What another scheme does to the SQNR: ``gains 3.3 dB SQNR``, or both values if one is infinite."""
    gain = after - before
    if math.isfinite(gain):
        return f"gains {decibels(gain)} SQNR"
    return f"takes the SQNR from {decibels(before)} to {decibels(after)}"


def index(place: tuple[int, ...]) -> str:
    """``(3, 17)``."""
    return f"({', '.join(map(str, place))})"


def channels(rank: int, axis: int, places: Sequence[int]) -> str:
    """``Column 8``, ``Columns 3 and 8``, ``Channels 0, 1, 2 and 4 more of axis 1``."""
    name = ("Row", "Column")[axis] if rank == 2 else "Channel"
    listed = [str(place) for place in places[:LISTED]]
    if len(places) > LISTED:
        listed.append(f"{len(places) - LISTED} more")
    return f"{name}{'s' * (len(places) > 1)} {joined(listed)}{'' if rank == 2 else f' of axis {axis}'}"
