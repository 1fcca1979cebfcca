"""Places in a tensor as visitors type them (an element, a span of rows), and the span around an element."""

from collections.abc import Iterable, Mapping

import quantcore as qc


def around(place: int, length: int) -> tuple[int, int] | None:
    """Return the span of 16 elements around one; None, for all elements, if there are at most 16."""
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


def read_slice(typed: str, axes: Mapping[int, int]) -> tuple[int, ...] | None:
    """Read one index for each of these axes (axis -> length); empty text means none.

    Raises:
        QuantError: the text is not that.
    """
    at = integers(typed, "The slice along the other axes")
    if at is not None and (
        len(at) != len(axes) or any(not 0 <= i < n for i, n in zip(at, axes.values(), strict=True))
    ):
        raise qc.QuantError(f"The slice needs one index for each of {axes_text(axes)}, not {typed[:40]!r}.")
    return at


def axes_text(axes: Mapping[int, int]) -> str:
    """Write axes (axis -> length) with the indices along each."""
    return ", ".join(f"axis {axis} (0–{length - 1})" for axis, length in axes.items())


def index_text(index: Iterable[int]) -> str:
    """Write an index as `read_element` reads it."""
    return ", ".join(map(str, index))


def span_text(span: tuple[int, int] | None) -> str:
    """Write a span as `read_span` reads it."""
    return "" if span is None else f"{span[0]}:{span[1]}"


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
