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
