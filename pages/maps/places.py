"""Places in a tensor as visitors type them (an element, a span of rows), and the span around an element."""

import quantcore as qc


def around(place: int, length: int) -> tuple[int, int] | None:
    """The span of 16 elements around one; None, for all elements, if there are at most 16."""
    if length <= 16:
        return None
    start = min(max(0, place - 8), length - 16)
    return start, start + 16


def read_span(typed: str, what: str) -> tuple[int, int] | None:
    """Read ``3:17``; empty text means all.

    Raises:
        QuantError: the text is not a slice.
    """
    if not typed.strip():
        return None
    parts = typed.replace("..", ":").split(":")
    try:
        start, stop = (int(p) for p in parts)
    except ValueError:
        raise qc.QuantError(
            f"{what} must be two integers such as 0:16, or empty for all, not {typed[:40]!r}."
        ) from None
    return start, stop


def read_element(typed: str, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Read ``3, 17``; empty text means none.

    Raises:
        QuantError: the text is not an index of a tensor of ``shape``.
    """
    index = integers(typed, "The element")
    if index is None:
        return () if not shape else None
    if len(index) != len(shape) or any(not -n <= i < n for i, n in zip(index, shape, strict=True)):
        raise qc.QuantError(
            f"The element {typed[:40]!r} is not in a tensor of shape {shape}; write one index per axis."
        )
    return tuple(i % n for i, n in zip(index, shape, strict=True))


def integers(typed: str, what: str) -> tuple[int, ...] | None:
    """Read ``3, 17``; empty text means none.

    Raises:
        QuantError: the text is not a list of integers; the message begins with ``what``.
    """
    words = typed.strip().strip("()").replace(",", " ").split()
    try:
        return tuple(int(word) for word in words) or None
    except ValueError:
        raise qc.QuantError(f"{what} must be integers such as 3, 17, not {typed[:40]!r}.") from None
