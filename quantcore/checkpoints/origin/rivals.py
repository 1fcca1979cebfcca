"""The values that other readings give for one element, and how many elements they change."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np
import torch

from quantcore.checkpoints.layouts.gguf import rotary
from quantcore.checkpoints.origin.arithmetic import Origin, origin_of
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.reading import Reading

COUNTED = 1 << 20  # elements that are compared by default, and at most at once
_MOST = 1 << 24  # elements per row above which nothing is counted


@dataclass(frozen=True)
class Rival:
    """Another reading of one element.

    ``key``, ``name``, ``reader``: see `Reading`;
    ``difference``: what it does, in one sentence;
    ``origin``: the element in this reading, None if the weight has no such element there;
    ``differing``: how many of the ``counted`` elements in ``rows`` it changes, None if the weight has another
        shape there, its rows are too long to count, or there are none.
    """

    key: str
    name: str
    reader: str
    difference: str
    origin: Origin | None
    differing: int | None
    counted: int
    rows: slice

    @property
    def value(self) -> float | None:
        """The value that it gives."""
        return None if self.origin is None else self.origin.value


def readings(layout: Layout, heads: int = 0) -> Iterator[Reading]:
    """Yield the other readings of a weight, those that change most first.

    Args:
        heads: the number of attention heads of a weight whose rows llama.cpp may have permuted, else 0.

    Raises:
        QuantError: the tensor can't be read.
    """
    _ = layout.fields  # raises if it can't be read
    if layout.rivals is not None:
        yield from layout.rivals(layout)
    if heads and layout.format_name == "gguf":
        yield from rotary(layout, heads)
    yield from _precision(layout)


def _precision(layout: Layout) -> Iterator[Reading]:
    """Yield other roundings of the result."""
    name = str(layout.dtype).removeprefix("torch.")
    if layout.dtype in (torch.float16, torch.bfloat16) and not layout.is_plain:
        if layout.rounds_each:
            yield Reading(
                "rounded_once", "rounded once", "readers that compute in float32 and round at the end",
                layout.changed(rounds_each=False),
                lambda here, there: f"Rounds to {name} once, not after each operation.",
            )  # fmt: skip
        yield Reading(
            "float32", "kept in float32", "readers that don't round to the output dtype",
            layout.changed(dtype=torch.float32), lambda here, there: f"Does not round to {name}.",
        )  # fmt: skip
    if layout.dtype == torch.float32 and layout.narrowed is not None:
        narrow = str(layout.narrowed).removeprefix("torch.")
        reader = "float16 kernels" if layout.narrowed == torch.float16 else "converters that cast to bfloat16"
        yield Reading(
            narrow, f"rounded to {narrow}", reader, layout.changed(dtype=layout.narrowed),
            lambda here, there: f"Rounds the value to {narrow}.",
        )  # fmt: skip


def rivals(
    layout: Layout, index: tuple[int, ...], rows: slice | None = None, heads: int = 0
) -> tuple[Rival, ...]:
    """Return the other readings of an element, without those that change neither it nor any element counted.

    Args:
        index: one per axis, none of them negative.
        rows: the rows whose elements are counted, an empty slice for none; by default all, or in a large
            weight those around the element.
        heads: see `readings`.

    Raises:
        QuantError: the tensor can't be read.
    """
    here = origin_of(layout, index)
    span = rows if rows is not None else window(layout.shape, index)
    found = tuple(readings(layout, heads))
    counted = _counted(layout, tuple(reading.layout for reading in found), span)
    made = (_rival(r, layout, here, span, n) for r, n in zip(found, counted, strict=True))
    equal = partial(np.array_equal, here.value, equal_nan=True)
    return tuple(r for r in made if r.differing != 0 or not (r.value is None or equal(r.value)))


def window(shape: tuple[int, ...], index: tuple[int, ...]) -> slice:
    """Return the rows around an element whose elements are counted; all rows if they are few."""
    if not shape:
        return slice(0, 1)
    count = _at_once(shape)
    start = max(0, min(index[0] // count * count, shape[0] - count))
    return slice(start, min(shape[0], start + count))


def _rival(reading: Reading, layout: Layout, here: Origin, rows: slice, differing: int | None) -> Rival:
    other = reading.layout
    inside = all(i < n for i, n in zip(here.index, other.shape, strict=True))
    there = origin_of(other, here.index) if inside else None
    counted = 0 if differing is None else (rows.stop - rows.start) * prod(layout.shape[1:])
    sentence = reading.difference(here, there or here)
    return Rival(reading.key, reading.name, reading.reader, sentence, there, differing, counted, rows)


def _counted(layout: Layout, others: tuple[Layout, ...], rows: slice) -> list[int | None]:
    """Count the elements of some rows that layouts read differently; None if they can't be compared.

    The rows are read box by box, so that any number of them takes the same memory.
    """
    if rows.stop <= rows.start or prod(layout.shape[1:]) > _MOST:
        return [None] * len(others)
    found = [0 if other.shape == layout.shape else None for other in others]
    step = _at_once(layout.shape)
    boxes = [slice(start, min(start + step, rows.stop)) for start in range(rows.start, rows.stop, step)]
    for box in boxes if layout.shape else (None,):
        mine = layout.values(box)
        for i, (other, count) in enumerate(zip(others, found, strict=True)):
            if count is not None:
                theirs = other.values(box)
                found[i] = count + int(((mine != theirs) & ~(mine.isnan() & theirs.isnan())).sum())
    return found


def _at_once(shape: tuple[int, ...]) -> int:
    """Return how many rows are counted at once."""
    return max(1, COUNTED // prod(shape[1:]))
