"""Parts of sentences: counts, lists, sizes, shapes, positions in a text, and a user's words."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any


def count(n: int, what: str) -> str:
    """Write a number of things, in the plural unless it is 1.

    >>> count(1, "element"), count(1200, "code")
    ('1 element', '1,200 codes')
    """
    return f"{n:,} {what}{'s' * (n != 1)}"


def along(rank: int, axis: int) -> str:
    """Name one index along an axis.

    >>> along(2, 0), along(3, 1)
    ('row (axis 0)', 'index of axis 1')
    """
    return f"{('row', 'column')[axis]} (axis {axis})" if rank == 2 else f"index of axis {axis}"


def difference(one: float, other: float, digits: int = 1) -> float:
    """Return one - other of two numbers that are shown with so many digits, as a reader subtracts them.

    >>> f"{24.26 - 22.04:.1f}", f"{difference(24.26, 22.04):.1f}"
    ('2.2', '2.3')
    """
    return round(one, digits) - round(other, digits) + 0.0


def joined(items: Sequence[str], last_by: str = "and") -> str:
    """Write a list as in a sentence.

    >>> joined(["3", "5", "6"])
    '3, 5 and 6'
    """
    *most, last = items
    return f"{', '.join(most)} {last_by} {last}" if most else last


def signed(text: str) -> str:
    """Return a text with a minus sign for each hyphen that does not follow a letter or digit.

    >>> signed("x - 2, int4: -8..7, min-max")
    'x − 2, int4: −8..7, min-max'
    """
    return re.sub(r"(?<!\w)-", "−", text)


def printable(text: str, most: int = 200) -> str:
    """Return untrusted text as one line of at most ``most`` characters; control characters become \ufffd.

    >>> printable("a" + chr(10) + "b", 9), printable("abcdef", 4)
    ('a\ufffdb', 'abc…')
    """
    shown = "".join(c if c.isprintable() else "\ufffd" for c in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


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


def passed(value: Any) -> str:
    """Say what was passed instead of what is needed.

    >>> passed("int4"), passed(4), passed(None), passed(dict), passed([1])
    ("the text 'int4'", 'the number 4', 'None', 'the class dict, not an instance', 'a list')
    """
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return f"the text {short(value)}"
    if isinstance(value, int | float):
        return f"the number {value:.10g}"
    if isinstance(value, type):
        return f"the class {value.__name__}, not an instance"
    name = type(value).__name__
    shape = getattr(value, "shape", None)
    shaped = f" of shape {tuple(shape)}" if isinstance(shape, tuple) else ""
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}{shaped}"


def nearest(word: str, names: Iterable[str]) -> str | None:
    """Return the name that a mistyped word most resembles, or that it begins; None if there is none.

    >>> nearest("per_tenser", ["per_tensor", "per_group"]), nearest("x", ["per_tensor"])
    ('per_tensor', None)
    """
    by_lower = {name.lower(): name for name in names}
    typed = word.lower()
    begun = [name for name in by_lower if len(typed) >= 3 and name.startswith(typed)]
    found = [*begun, *get_close_matches(typed, by_lower, 1, 0.75)]
    return by_lower[found[0]] if found else None
