"""How findings write numbers and places."""

from quantcore.diagnose.record import Box


def number(value: float) -> str:
    """Four digits."""
    return f"{value:.4g}"


def decibels(value: float) -> str:
    """One decimal."""
    return f"{value:.1f} dB"


def share(part: float) -> str:
    """A share as per cent, with up to three digits."""
    return f"{100 * part:.3g} %"


def count(n: int, what: str) -> str:
    """``1 element``, ``12 elements``."""
    return f"{n:,} {what}{'s' * (n != 1)}"


def index(place: tuple[int, ...]) -> str:
    """``(3, 17)``."""
    return f"({', '.join(map(str, place))})"


def where(box: Box) -> str:
    """A box in words: ``row 3, columns 0..31`` of a matrix, ``[0, 3, 0..31]`` of other ranks."""
    spans = [f"{a}..{b - 1}" if b - a > 1 else str(a) for a, b in box]
    if len(spans) != 2:
        return f"[{', '.join(spans)}]"
    row, column = (f"{name}{'s' * (b - a > 1)}" for name, (a, b) in zip(("row", "column"), box, strict=True))
    return f"{row} {spans[0]}, {column} {spans[1]}"
