"""A tensor or a part of one (an expert of a stack, some of its rows, its transpose), read by rows."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.protocol.fields import Numbers
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import CODES
from quantcore.checkpoints.rows import ready, refuse_long
from quantcore.granularity import Shape
from quantcore.numerics import scratch


@dataclass(frozen=True)
class Part:
    """A tensor, or a part of it, by the tensor's name.

    ``index``: of an expert along axis 0 of a stack; ``transposed``: whether the last two axes are swapped, after
    ``index`` is applied; ``rows``: start, stop and step, after both, so that those of a transpose are stored columns.
    """

    name: str
    index: int | None = None
    rows: tuple[int, int, int] | None = None
    transposed: bool = False

    def __str__(self) -> str:
        """``blk.0.ffn_up_exps.weight[3]``, ``qkv_proj.weight rows 0–4095``, ``gate_up_proj[3] columns 0–63 transposed``."""
        text = self.name if self.index is None else f"{self.name}[{self.index}]"
        if self.rows is not None:
            start, stop, step = self.rows
            ordinal = {2: "2nd", 3: "3rd"}.get(step, f"{step}th")
            axis = "columns" if self.transposed else "rows"
            text += f" {axis} {start}–{stop - 1}" + (f", every {ordinal}" if step > 1 else "")
        return f"{text} transposed" if self.transposed else text

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the tensor, as it is stored."""
        return self == Part(self.name)

    def shape_of(self, whole: Shape) -> Shape:
        """Return the part's shape, given the tensor's shape ``whole``."""
        shape = whole if self.index is None else whole[1:]
        if self.transposed:
            shape = (*shape[:-2], shape[-1], shape[-2])
        return shape if self.rows is None else (len(range(*self.rows)), *shape[1:])

    def whole_index(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """Return the index in the tensor of an element of the part."""
        at = index if self.rows is None else (self.rows[0] + index[0] * self.rows[2], *index[1:])
        if self.transposed:
            at = (*at[:-2], at[-1], at[-2])
        return at if self.index is None else (self.index, *at)


class Rows(ABC):
    """The values of a part by rows: along its first axis, or along all axes but the last if its bytes allow that.

    ``count``: the number of rows; ``width``: elements per row.
    """

    count: int
    width: int

    @abstractmethod
    def read(self, start: int, stop: int, out: Tensor) -> None:
        """Write the values of some rows into ``out``, float32 [rows, width], contiguous."""


class _OfLayout(Rows):
    """Every ``step``-th row of a layout, starting at ``first``."""

    def __init__(self, layout: Layout, count: int, first: int = 0, step: int = 1) -> None:
        shape = layout.shape or (1,)
        self.layout, self.first, self.step = layout, first, step
        self.count, self.width = count, math.prod(shape[1:])
        self._inner = shape[1:]
        refuse_long(self.width, "its rows have {:,} elements")

    def read(self, start: int, stop: int, out: Tensor) -> None:
        if not self.layout.shape:
            out.copy_(self.layout.values(None).reshape(1, 1))
            return
        box = slice(self.first + start * self.step, self.first + (stop - 1) * self.step + 1)
        if self.step == 1:
            self.layout.values(box, out.view(stop - start, *self._inner))
        else:
            out.copy_(self.layout.values(box)[:: self.step].reshape(out.shape))


class _Held(Rows):
    """Rows of a part that are not contiguous in the file: all are read when the first is needed."""

    def __init__(self, layout: Layout, part: Part) -> None:
        self._layout, self._part = layout, part
        self.shape = part.shape_of(layout.shape)
        self.count, self.width = self.shape[0], math.prod(self.shape[1:])
        whole = layout.shape if part.index is None else layout.shape[1:]
        refuse_long(math.prod(whole))

    @cached_property
    def _values(self) -> Tensor:
        index, rows = self._part.index, self._part.rows
        if index is None:
            values = self._layout.values(None)
        else:
            values = self._layout.values(slice(index, index + 1))[0]
        values = values.mT if self._part.transposed else values
        return (values if rows is None else values[slice(*rows)]).contiguous().reshape(self.count, -1)

    def read(self, start: int, stop: int, out: Tensor) -> None:
        out.copy_(self._values[start:stop])


def rows_of(layout: Layout, part: Part) -> Rows:
    """Return the rows of a part; what every row needs is read now, unless it is large.

    Raises:
        QuantError: the tensor can't be read.
        TooLong: a row, or what must be read at once, has too many elements.
    """
    _ = layout.fields  # raises if it can't be read
    if layout.of_part is not None:
        return _by_bytes(layout, part)
    if part.transposed or part.index is not None:
        return _Held(layout, part)
    first, stop, step = part.rows or (0, layout.shape[0] if layout.shape else 1, 1)
    return _OfLayout(ready(layout), len(range(first, stop, step)), first, step)


def _by_bytes(layout: Layout, part: Part) -> Rows:
    """Return the rows of a tensor whose rows are ranges of bytes, however many axes it has."""
    piece = layout.pieces[""]
    if part.index is not None:
        piece = _cut(piece, part.index, part.index + 1, piece.shape[1:])
    step = 1
    assert layout.of_part is not None
    if part.transposed and layout.is_plain:
        turned = layout.changed(shape=piece.shape[::-1], fields={CODES: Numbers(piece, transposed=True)})
        start, stop, step = part.rows or (0, turned.shape[0], 1)
        return _OfLayout(ready(turned), len(range(start, stop, step)), start, step)
    if part.rows is not None and not part.transposed:
        start, stop, step = part.rows
        piece = _cut(piece, start, stop, (stop - start, *piece.shape[1:]))
    if len(piece.shape) > 2:
        piece = replace(piece, shape=(math.prod(piece.shape[:-1]), piece.shape[-1]))
    cut = layout.of_part(piece)
    if part.transposed:
        return _Held(cut, replace(part, index=None))
    count = piece.shape[0] if piece.shape else 1
    return _OfLayout(cut, -(-count // step), 0, step)


def _cut(piece: StoredTensor, start: int, stop: int, shape: Shape) -> StoredTensor:
    """Return some rows of axis 0 as a stored tensor of its own."""
    size = piece.num_bytes // piece.shape[0]
    return replace(piece, shape=shape, offset=piece.offset + start * size, num_bytes=(stop - start) * size)


class Both:
    """Two parts with the same elements, in rows that both can read.

    ``count``: the number of rows; ``width``: elements per row; ``columns``: the length of the last axis, 0 for a vector.
    """

    def __init__(self, a: Rows, b: Rows, shape: Shape) -> None:
        self.sides = (a, b)
        self.count = min(a.count, b.count)
        self.width = math.prod(shape) // self.count if self.count else 0
        self.columns = shape[-1] if len(shape) > 1 else 0

    def read(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return the values of some rows of both, float32 [lines, columns]; valid until this thread reads again."""
        found = []
        for place, side in zip(("original", "other"), self.sides, strict=True):
            times = side.count // self.count
            rows = (stop - start) * times
            out = scratch(place, (rows, side.width))
            side.read(start * times, stop * times, out)
            found.append(out.view(-1, self.columns) if self.columns else out.view(1, -1))
        return found[0], found[1]
