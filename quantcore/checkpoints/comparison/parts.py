"""A tensor or a part of one (an expert of a stack, some of its rows, its transpose), read by rows."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from torch import Tensor

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.protocol.fields import Numbers
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import CODES
from quantcore.checkpoints.rows import ready, refuse_long
from quantcore.granularity import Shape


@dataclass(frozen=True)
class Part:
    """A tensor, or a part of it, by the tensor's name.

    ``index``: of an expert along axis 0 of a stack; ``transposed``: whether the last two axes are swapped,
    after ``index`` is applied; ``rows``: start, stop and step, after both, so that those of a transpose are
    stored columns.
    """

    name: str
    index: int | None = None
    rows: tuple[int, int, int] | None = None
    transposed: bool = False

    def __str__(self) -> str:
        """Write ``blk.0.ffn_up_exps.weight[3]``, ``qkv_proj rows 0–9``, ``gate_up_proj[3] transposed``."""
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


@dataclass(frozen=True)
class Rows:
    """The values of a part by rows: along axis 0, or along all axes but the last if its bytes allow that.

    ``count``: the number of rows; ``width``: elements per row; ``read``: writes the values of the rows from
    start to stop into a tensor, float32 [rows, width], contiguous.
    """

    count: int
    width: int
    read: Callable[[int, int, Tensor], None]


def _of_layout(layout: Layout, count: int, first: int = 0, step: int = 1) -> Rows:
    """Return every ``step``-th row of a layout, starting at ``first``."""
    inner = layout.shape[1:]
    refuse_long(math.prod(inner), "its rows have {:,} elements")

    def read(start: int, stop: int, out: Tensor) -> None:
        box = slice(first + start * step, first + (stop - 1) * step + 1)
        if not layout.shape:
            out.copy_(layout.values(None).reshape(1, 1))
        elif step == 1:
            layout.values(box, out.view(stop - start, *inner))
        else:
            out.copy_(layout.values(box)[::step].reshape(out.shape))

    return Rows(count, math.prod(inner), read)


def _held(layout: Layout, part: Part) -> Rows:
    """Return rows of a part that are not contiguous in the file: all are read when the first is needed."""
    shape = part.shape_of(layout.shape)
    refuse_long(math.prod(layout.shape if part.index is None else layout.shape[1:]))

    @cache
    def values() -> Tensor:
        rows = None if part.index is None else slice(part.index, part.index + 1)
        found = layout.values(rows) if rows is None else layout.values(rows)[0]
        found = found.mT if part.transposed else found
        return (found if part.rows is None else found[slice(*part.rows)]).contiguous().reshape(shape[0], -1)

    def read(start: int, stop: int, out: Tensor) -> None:
        out.copy_(values()[start:stop])

    return Rows(shape[0], math.prod(shape[1:]), read)


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
        return _held(layout, part)
    first, stop, step = part.rows or (0, layout.shape[0] if layout.shape else 1, 1)
    return _of_layout(ready(layout), len(range(first, stop, step)), first, step)


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
        return _of_layout(ready(turned), len(range(start, stop, step)), start, step)
    if part.rows is not None and not part.transposed:
        start, stop, step = part.rows
        piece = _cut(piece, start, stop, (stop - start, *piece.shape[1:]))
    if len(piece.shape) > 2:
        piece = replace(piece, shape=(math.prod(piece.shape[:-1]), piece.shape[-1]))
    cut = layout.of_part(piece)
    if part.transposed:
        return _held(cut, replace(part, index=None))
    count = piece.shape[0] if piece.shape else 1
    return _of_layout(cut, -(-count // step), 0, step)


def _cut(piece: StoredTensor, start: int, stop: int, shape: Shape) -> StoredTensor:
    """Return some rows of axis 0 as a stored tensor of its own."""
    size = piece.num_bytes // piece.shape[0]
    return replace(piece, shape=shape, offset=piece.offset + start * size, num_bytes=(stop - start) * size)
