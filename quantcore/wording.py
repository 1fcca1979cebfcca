"""Counts and lists as sentences write them."""

from collections.abc import Sequence


def count(n: int, what: str) -> str:
    """Write how many there are.

    >>> count(1, "element"), count(1200, "code")
    ('1 element', '1,200 codes')
    """
    return f"{n:,} {what}{'s' * (n != 1)}"


def joined(items: Sequence[str]) -> str:
    """Write a list as a sentence has it.

    >>> joined(["3", "5", "6"])
    '3, 5 and 6'
    """
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last


def printable(text: str, most: int = 200) -> str:
    """Return a foreign text for one line: control characters are shown as \ufffd, and it is no longer than ``most``.

    >>> printable("a" + chr(10) + "b", 9), printable("abcdef", 4)
    ('a\ufffdb', 'abc…')
    """
    shown = "".join(c if c.isprintable() else "\ufffd" for c in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"
