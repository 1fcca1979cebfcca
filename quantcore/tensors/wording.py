"""Parts of error messages: positions in a text, shortened words, sizes."""

import math


def short(text: str, limit: int = 30) -> str:
    """Quote a user's word, truncated to ``limit`` characters, with control characters escaped."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def place(text: str, position: int) -> str:
    """Return the position of a character: ``line 3, column 5``, both counted from 1."""
    line = text.count("\n", 0, position) + 1
    return f"line {line}, column {position - text.rfind(chr(10), 0, position)}"


def sentence(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]


def megabytes(size: int) -> str:
    """Return a number of bytes as text: ``12 bytes``, ``3.4 kB``, ``268.4 MB``, ``56.4 GB``."""
    if size < 1000:
        return f"{size} bytes"
    if size < 10**6:
        return f"{size / 1e3:.1f} kB"
    if size < 10**10:
        return f"{size / 1e6:,.1f} MB"
    return f"{size / 1e9:,.1f} GB" if size < 10**15 else "over a million GB"


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as text, even one that a hostile header claims: ``(4096, 14336)``."""
    if len(shape) > 20 or any(abs(n) >= 10**15 for n in shape):
        return f"of {len(shape)} axes"
    return str(shape)


def element_count(shape: tuple[int, ...]) -> int:
    """Return the number of elements of a tensor of ``shape``; a scalar has one."""
    return math.prod(shape)
