"""One walk over the rows of a weight and of its original, for all that is gathered from them.

The original is read in the shape and order in which the release has the weight. llama.cpp permutes the rows
of q and k. Experts are stacked on one side, q, k and v or gate and up fused, the matrices of GPT-2's Conv1D
transposed: what `comparison.pairing` pairs part by part is put together here.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from quantcore.checkpoints.comparison.orders import Order, row_order
from quantcore.checkpoints.comparison.pairing import Pair
from quantcore.checkpoints.comparison.parts import rows_of
from quantcore.checkpoints.comparison.sides import Opened, is_gguf
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.rows import boxes
from quantcore.checkpoints.tensor import CheckpointTensor
from quantcore.errors import QuantError
from quantcore.granularity import Shape


@dataclass(frozen=True)
class Ordered:
    """A weight of the original.

    ``tensor``: of the original, the first if there are several; ``shape``: that of the release, in which axes
    of length 1 may be others; ``order``: that of its rows in the release, None if it is the same.
    ``is_exact``: whether this is what was quantized, to the last bit.
    """

    is_exact: ClassVar[bool] = True

    tensor: CheckpointTensor
    shape: Shape
    order: Order | None = None

    @property
    def name(self) -> str:
        """Its name in the original."""
        return self.tensor.name

    @property
    def layout(self) -> Layout:
        """How the original stores it."""
        return self.tensor.layout

    def read(self, rows: slice) -> Tensor:
        """Return the values of the rows that the release has at ``rows``."""
        if self.order is not None:
            (low, high), places = self.order.originals(rows.start, rows.stop)
            return self.tensor.read(slice(low, high)).index_select(0, places.to(torch.int64))
        if tuple(self.tensor.shape[:1]) == self.shape[:1]:
            return self.tensor.read(rows).reshape(-1, *self.shape[1:])
        return self.tensor.read().reshape(self.shape)[rows]


@dataclass(frozen=True)
class Assembled(Ordered):
    """A weight of which the original has parts, or of which it is a part.

    ``pairs``: its parts, which cover it, with those of the original; ``layouts``: of the original's tensors,
    by name.
    """

    pairs: tuple[Pair, ...] = ()
    layouts: Mapping[str, Layout] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The parts of the original: ``experts.up_proj[3]``, or the first and the number of the others."""
        first, others = str(self.pairs[0].original), len(self.pairs) - 1
        return f"{first} and {others} more" if others else first

    def read(self, rows: slice) -> Tensor:
        """Return the values of the rows that the release has at ``rows``."""
        out = torch.zeros((rows.stop - rows.start, *self.shape[1:]))
        for pair in self.pairs:
            self._copy(pair, rows, out)
        return out

    def _copy(self, pair: Pair, rows: slice, out: Tensor) -> None:
        """Write what a part of the original has in these rows."""
        part, own = pair.original, pair.other
        if own.transposed:
            part = replace(part, transposed=not part.transposed)
        if own.index is None:
            start, stop, step = own.rows or (0, self.shape[0], 1)
            first = max(0, -(-(rows.start - start) // step))
            last = min(len(range(start, stop, step)), -(-(rows.stop - start) // step))
            target = out[start + first * step - rows.start :: step][: max(0, last - first)]
        elif rows.start <= own.index < rows.stop:
            target = out[own.index - rows.start]
            if own.rows is not None:  # of a transpose, these are columns
                target = target[:, slice(*own.rows)] if own.transposed else target[slice(*own.rows)]
            first, last = 0, len(target)
        else:
            return
        if last > first:
            source = rows_of(self.layouts[part.name], part)
            values = torch.empty(last - first, source.width)
            source.read(first, last, values)
            target.copy_(values.view(target.shape))


def in_order(source: Opened, release: Opened, pairs: Sequence[Pair], name: str) -> Ordered | None:
    """Return a weight of the original as the release has it; None if only some of its parts are there."""
    shape = tuple(release.tensors[name].shape)
    first = pairs[0]
    tensor = source.tensors[first.original.name]
    if not (len(pairs) == 1 and first.original.is_whole and first.other.is_whole):
        if sum(math.prod(pair.shape) for pair in pairs) != math.prod(shape):
            return None
        layouts = {pair.original.name: source.tensors[pair.original.name].layout for pair in pairs}
        return Assembled(tensor, shape, None, tuple(pairs), layouts)
    if is_gguf(source) == is_gguf(release):
        return Ordered(tensor, shape)
    try:
        return Ordered(tensor, shape, row_order(source, release, tensor.name, name))
    except QuantError:  # said when the weight is read
        return Ordered(tensor, shape)


@dataclass(eq=False)
class Box:
    """Some rows of a weight: each kind of number is read when it is first asked for, and then kept.

    ``source``: its original, if there is one.
    """

    layout: Layout
    rows: slice
    source: Ordered | None = None

    @cached_property
    def codes(self) -> Tensor:
        """The codes."""
        return self.layout.codes(self.rows)

    @cached_property
    def values(self) -> Tensor:
        """The values, rounded as the library does."""
        return self.layout.values(self.rows)

    @cached_property
    def exact(self) -> Tensor:
        """The values, not rounded to the output dtype."""
        return self.values if self.layout.is_plain else self.layout.values(self.rows, rounded=False)

    @cached_property
    def original(self) -> Tensor:
        """The original's values of these rows."""
        assert self.source is not None
        return self.source.read(self.rows)


def walk(layout: Layout, source: Ordered | None = None) -> Iterator[Box]:
    """Yield the boxes of rows that cover a weight.

    Raises:
        TooLong: even one row would have too many elements.
    """
    for rows in boxes(layout):
        yield Box(layout, rows, source)
