"""Readable names of blocks: "row 1", "row 0, columns 0–31", "the whole tensor"."""

from collections.abc import Sequence

Bounds = Sequence[tuple[int, int]]


def block_name(bounds: Bounds, shape: Sequence[int]) -> str:
    """Return a readable name for the part of a tensor that a block covers.

    Args:
        bounds: (start, stop) along each axis, as in `Trace.bounds`; one pair for a run of the flattened tensor.

    >>> block_name([(1, 2), (0, 8)], (4, 8)), block_name([(0, 1), (0, 4)], (4, 8))
    ('row 1', 'row 0, columns 0–3')
    >>> block_name([(2, 3), (0, 8), (4, 8)], (4, 8, 8))
    'axis 0 index 2, axis 2 indices 4–7'
    """
    if len(bounds) != len(shape):
        return f"{_span('element', *bounds[0])} in row-major order"
    names = {1: ("element",), 2: ("row", "column")}.get(len(shape))
    parts = []
    for axis, ((start, stop), length) in enumerate(zip(bounds, shape, strict=True)):
        if stop - start < length:
            parts.append(
                _span(names[axis], start, stop)
                if names
                else f"axis {axis} {_span('index', start, stop, 'indices')}"
            )
    return ", ".join(parts) or "the whole tensor"


def _span(name: str, start: int, stop: int, plural: str = "") -> str:
    return f"{name} {start}" if stop - start == 1 else f"{plural or name + 's'} {start}–{stop - 1}"
