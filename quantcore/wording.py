"""Counts and lists for sentences."""

from collections.abc import Sequence


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


def joined(items: Sequence[str]) -> str:
    """Write a list as in a sentence.

    >>> joined(["3", "5", "6"])
    '3, 5 and 6'
    """
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last


def printable(text: str, most: int = 200) -> str:
    """Return untrusted text as one line of at most ``most`` characters; control characters become \ufffd.

    >>> printable("a" + chr(10) + "b", 9), printable("abcdef", 4)
    ('a\ufffdb', 'abc…')
    """
    shown = "".join(c if c.isprintable() else "\ufffd" for c in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"
