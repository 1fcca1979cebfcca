"""What a layout is: a record of how stored tensors hold the codes and parameters of one weight.

A format makes it from headers and config: its `fields` (which stored tensor holds which numbers, see
`fields.Field`), what a code means (`element`), which elements share a scale (`granularity`), and the value of
an element as an expression of its level and parameters. Everything else follows and is done here: codes,
parameters and values by rows, the place of each bit, and the encoding back to bytes. The lines of an element,
its script and other readers' values read the same expression. Where a part of it can be computed faster, the
record holds that as a hook. The parameters of blocks are shaped to broadcast with the codes of some rows.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from quantcore.checkpoints.protocol.fields import Field, Location, Place, Rows
from quantcore.checkpoints.protocol.kinds import Reshaped, look_up_pairs
from quantcore.checkpoints.protocol.record import CODES, GROUP_INDEX, MIN, SCALE, ZERO_POINT, Q, Record
from quantcore.checkpoints.statement import Statement, named
from quantcore.errors import QuantError
from quantcore.expressions import run
from quantcore.formats import IntFormat
from quantcore.granularity import Blocks, PerBlock, Shape
from quantcore.numerics import like, round_to

ByRole = Mapping[str, Tensor]  # parameters
Given = Callable[[slice], ByRole]  # those of some rows of blocks; of columns, those of all of them
# of parameters that broadcast, codes, and values to be written
Compute = Callable[[ByRole, Tensor, Tensor], None]


class Parameters(NamedTuple):
    """The parameters of some codes, shaped to broadcast with them; None where there are none."""

    scale: Tensor | None
    zero_point: Tensor | None
    min: Tensor | None

    def each(self, change: Callable[[Tensor], Tensor]) -> "Parameters":
        """Return the changed parameters."""
        return Parameters(*(None if p is None else change(p) for p in self))


def matrix_shape(shape: Shape) -> Shape:
    """Return a shape without the axes of length 1 at its end, but with two axes if it has as many."""
    rank = len(shape)
    while rank > 2 and shape[rank - 1] == 1:
        rank -= 1
    return shape[:rank]


@dataclass(frozen=True)
class Spreading:
    """The blocks of the rows from ``first`` to ``last``.

    ``index``: the group of each column, or of each element, if there is one. ``columns``: the number of
    groups whose elements take turns in the flat weight, else 0.
    """

    blocks: Blocks
    index: Tensor | None
    first: int
    last: int
    columns: int = 0

    def run(self, parameters: Given, codes: Tensor, out: Tensor, compute: Compute) -> None:
        """Compute the values of codes, in parts whose blocks all have the same width along the last axis."""
        boxes = self.blocks.blocked_shape == self.blocks.shape and not self.columns
        (self._boxes if boxes else self._runs)(parameters, codes, out, compute)

    def _boxes(self, parameters: Given, codes: Tensor, out: Tensor, compute: Compute) -> None:
        """Compute blocks that are boxes, of which the last along an axis may be shorter."""
        shape, block = self.blocks.shape, self.blocks.block
        height, width = block[0] if shape else 1, block[-1] if len(shape) > 1 else 1
        grid = slice(self.first // height, -(-self.last // height))
        numbers = {name: self._of_rows(p, grid) for name, p in parameters(grid).items()}
        if self.index is not None:
            return compute({name: self._of_elements(p, name, out) for name, p in numbers.items()}, codes, out)
        if width == 1:
            return compute(numbers, codes, out)
        whole = codes.shape[-1] // width * width
        for elements, groups, size in (
            (slice(0, whole), slice(0, whole // width), width),
            (slice(whole, None), slice(whole // width, None), codes.shape[-1] - whole),
        ):
            if codes[..., elements].numel():
                split = [t[..., elements].view(*t.shape[:-1], -1, size) for t in (codes, out)]
                compute({name: p[..., groups].unsqueeze(-1) for name, p in numbers.items()}, *split)
        return None

    def _runs(self, parameters: Given, codes: Tensor, out: Tensor, compute: Compute) -> None:
        """Compute blocks that are runs of the flat weight, or whose elements take turns in it."""
        rows = max(1, self.blocks.shape[0])
        inner = self.blocks.shape[1] if self.columns else self.blocks.blocked_shape[0] // rows
        start, stop, size = self.first * inner, self.last * inner, self.columns or self.blocks.block[0]
        # a run that began in an earlier row, whole runs, and one that continues in a later row
        cuts = sorted({start, min(stop, -(-start // size) * size), max(start, stop // size * size), stop})
        for a, b in pairwise(cuts):
            width = min(size, b - a)
            if self.columns:
                groups = slice(a % size, a % size + width)
                of_groups = parameters(groups).items()
                numbers = {n: p if p.numel() == 1 else p.view(1, -1)[:, groups] for n, p in of_groups}
            else:
                numbers = {n: p.unsqueeze(-1) for n, p in parameters(slice(a // size, -(-b // size))).items()}
            compute(numbers, *(t.view(-1)[a - start : b - start].view(-1, width) for t in (codes, out)))

    def _of_rows(self, parameter: Tensor, grid: slice) -> Tensor:
        """Return parameters of boxes with one row for each row of the weight; a single number broadcasts."""
        shape = self.blocks.shape
        if len(shape) < 2 or parameter.numel() == 1:
            return parameter
        for axis, b in enumerate(self.blocks.block[:-1]):
            if b > 1 and parameter.shape[axis] > 1:
                rows = torch.arange(self.first, self.last) if axis == 0 else torch.arange(shape[axis])
                parameter = parameter.index_select(axis, rows // b - (grid.start if axis == 0 else 0))
        return parameter

    def _of_elements(self, parameter: Tensor, name: str, out: Tensor) -> Tensor:
        """Return one number per element, by the group of its column."""
        if parameter.numel() == 1:
            return parameter
        assert self.index is not None
        shaped = out[: len(parameter)]  # one row, if all rows share it
        # into reused memory: new pages would cost more than the arithmetic
        found = like(shaped, f"{name} by index")
        return torch.index_select(parameter.to(torch.float32), -1, self.index, out=found)


@dataclass(frozen=True, eq=False, slots=True)
class Layout(Record):
    """How one weight is stored, and what follows from it; see `Record` for what it is made of."""

    def codes(self, rows: Rows = None) -> Tensor:
        """Return the codes of some rows: integers, in logical axes.

        Raises:
            QuantError: there are none, or they can't be read.
        """
        _ = self.element
        return self.fields[CODES].read(rows)

    def scale(self, rows: Rows = None) -> Tensor | None:
        """Return the effective scales in block form, float32; ``rows``: of blocks. None: there are none."""
        return self._parameter(SCALE, rows)

    def zero_point(self, rows: Rows = None) -> Tensor | None:
        """Return the zero points in block form; None if there are none, or all are 0."""
        return self._parameter(ZERO_POINT, rows)

    def min(self, rows: Rows = None) -> Tensor | None:
        """Return the minima in block form, added or subtracted after the multiplication; None without any."""
        return self._parameter(MIN, rows)

    def _parameter(self, role: str, rows: Rows) -> Tensor | None:
        if role in self.computed:
            return self.computed[role](rows)
        if role in self.derived:
            derived = self.derived[role]
            found: Tensor = run(derived, {name: self._read(name, rows) for name in derived.names})
            return found
        return self._read(role, rows) if role in self.fields else None

    def _read(self, role: str, rows: Rows) -> Tensor:
        found = self.fields[role]
        return found.read(None if all(n == 1 for n in found.shape) else rows)

    def parameters(self, rows: Rows = None) -> Parameters:
        """Return the parameters in block form, or one number for all blocks; ``rows``: of blocks.

        `scale`, `zero_point` and `min` return the library's shapes, which may have fewer or other axes. The
        min here is always added, whatever the library does.
        """
        scale = self.in_blocks(SCALE, rows)
        if self.added is None:
            return Parameters(scale, self.in_blocks(ZERO_POINT, rows), None)
        role, sign = self.added
        added = self.in_blocks(role, rows)
        return Parameters(scale, None, -added if added is not None and sign < 0 else added)

    def in_blocks(self, role: str, rows: Rows = None) -> Tensor | None:
        """Return one parameter by its role, in block form or one number for all; ``rows``: of blocks."""
        if self.row_per_group and role not in self.computed:
            return self.with_field(role, transposed=True).fields[role].read(rows)
        found = self._parameter(role, None if self.columns else rows)
        if found is None:
            return None
        if self.columns:
            return found.reshape(1, -1)
        return found.reshape(1) if found.numel() == 1 else found.reshape(-1, *self.blocks.grid[1:])

    def group_index(self) -> Tensor | None:
        """Return the group of each column, or of each element, if groups are not boxes or runs; else None.

        Raises:
            QuantError: it names a group that has no scale.
        """
        if self.columns and self.blocks.grid == self.shape:
            return torch.arange(math.prod(self.shape)).remainder(self.columns).view(self.shape)
        return self._groups

    @cached_property
    def _groups(self) -> Tensor | None:
        index = self._read(GROUP_INDEX, None) if GROUP_INDEX in self.fields else None
        if index is not None and bool((index == -1).all()):  # compressed-tensors: never set
            return None
        if index is not None and not 0 <= int(index.min()) <= int(index.max()) < self.blocks.grid[-1]:
            raise QuantError(
                f"The group index of {named(self.name)} names the groups {int(index.min())} to "
                f"{int(index.max())}, but there are scales for {self.blocks.grid[-1]} groups, numbered from "
                "0; the file is damaged."
            )
        if index is not None and bool((index == torch.arange(len(index)) // self.blocks.block[-1]).all()):
            return None
        return index

    def stored(self) -> dict[str, Tensor]:
        """Return the numbers of every field except the codes, by role, as they are stored."""
        if self.kept is not None:
            return self.kept(self)
        return {role: field.stored() for role, field in self.fields.items() if role != CODES}

    def notes(self) -> tuple[str, ...]:
        """Return sentences about what was decided against the config or without it; may read parameters."""
        return tuple(statement.about(self.name) for statement in self.statements())

    def statements(self) -> tuple[Statement, ...]:
        """Return the same as data; may read parameters."""
        return self.remarks + (self.more(self) if self.more is not None else ())

    def values(self, rows: Rows = None, out: Tensor | None = None, rounded: bool = True) -> Tensor:
        """Return the values of some rows, float32: what the library dequantizes to.

        Args:
            out: a contiguous tensor to write into.
            rounded: round to the library's output dtype; otherwise the same expression stays in float32.
        """
        if self.fast is not None:
            found = self.fast(self, rows, out)
            return round_to(found, self.dtype) if rounded and not self.is_plain else found
        if not self.shape:
            fields = {role: Reshaped(field, (1,)) for role, field in self.fields.items()}
            row = replace(self, shape=(1,), fields=fields)
            return row.values(None, None if out is None else out.view(1), rounded).view(())
        first, last = (0, self.shape[0]) if rows is None else (rows.start, rows.stop)
        out = torch.empty((last - first, *self.shape[1:])) if out is None else out
        levels, expression = self._levels(rows, out), self.expression(rounded, Q)
        parameters = expression.names - Q.names

        def compute(numbers: Mapping[str, Tensor], part: Tensor, target: Tensor) -> None:
            run(expression, {**numbers, CODES: part}, target)

        def of(grid: slice) -> dict[str, Tensor]:
            found = {role: self.in_blocks(role, grid) for role in parameters}
            return {role: number for role, number in found.items() if number is not None}

        self._spreading(slice(first, last)).run(of, levels, out, compute)
        return out

    def as_matrix(self) -> "Layout":
        """Return the weight without axes of length 1 at its end: a 1 × 1 convolution as [out, in]."""
        shape, own = matrix_shape(self.shape), len(self.shape)
        if shape == self.shape:
            return self
        rank = len(shape)
        if self.of_part is not None:  # a plain one's stored tensor has the weight's axes
            (piece,) = self.pieces.values()
            plain: Layout = self.of_part(replace(piece, shape=shape))
            return plain
        boxes = self.blocks.blocked_shape == self.shape
        return replace(
            self,
            shape=shape,
            fields={
                role: Reshaped(field, field.shape[:rank]) if len(field.shape) == own else field
                for role, field in self.fields.items()
            },
            granularity=PerBlock(self.blocks.block[:rank]) if boxes else self.granularity,
        )

    def spread(self, parameter: Callable[[slice | None], Tensor], rows: slice) -> Tensor:
        """Return a number per block for each element of some rows, float32.

        Args:
            parameter: returns the numbers of some rows of blocks, in block form.
        """
        out = torch.empty((rows.stop - rows.start, *self.shape[1:]))

        def copy(numbers: Mapping[str, Tensor], part: Tensor, target: Tensor) -> None:
            target.copy_(numbers[SCALE].expand_as(target))

        def given(grid: slice) -> dict[str, Tensor]:
            return {SCALE: parameter(None if self.columns else grid)}

        self._spreading(rows).run(given, out, out, copy)
        return out

    def _spreading(self, rows: slice) -> Spreading:
        index = None if self.columns else self.group_index()
        return Spreading(self.blocks, index, rows.start, rows.stop, self.columns)

    def _levels(self, rows: Rows, out: Tensor) -> Tensor:
        """Return the integers that codes are, or write what they stand for into ``out``."""
        if self.level is Q:
            return self.fields[CODES].read(rows)
        codes, element = self.fields[CODES], self.element
        assert not isinstance(element, IntFormat)
        start = 0 if rows is None else rows.start * math.prod(self.shape[1:])
        if look_up_pairs(codes, element, start, out):
            return out
        return element.decode_(codes.read(rows), out)

    def locate(self, index: Sequence[int]) -> Location:
        """Return where an element's code and parameters lie."""
        index = tuple(index)
        flat = index
        if self.blocks.blocked_shape != self.shape:
            flat = (int(np.ravel_multi_index(index, self.shape)),)
        position = [i // b for i, b in zip(flat, self.blocks.block, strict=True)]
        if self._groups is not None:
            position[-1] = int(self._groups[index[-1]])
        others = {role: field for role, field in self.fields.items() if role not in self.in_codes}
        places = {role: self._place_of(role, field, index, tuple(position)) for role, field in others.items()}
        return Location(self.fields[CODES].place(index), places)

    def _place_of(self, role: str, field: Field, index: tuple[int, ...], position: tuple[int, ...]) -> Place:
        """Return the place of a parameter for the element at ``index``, in the block at ``position``."""
        shape = field.shape
        if role == GROUP_INDEX:
            return field.place(index[-1:])
        if all(n == 1 for n in shape):
            return field.place((0,) * len(shape))
        if self.row_per_group:
            return field.place(position[::-1])
        if shape == self.shape:
            return field.place(index)
        if self.columns:
            return field.place((0, (index[0] * self.shape[1] + index[1]) % self.columns))
        if math.prod(shape) == math.prod(self.blocks.grid):  # perhaps with other axes of length 1
            block = np.ravel_multi_index(position, self.blocks.grid)
            return field.place([int(i) for i in np.unravel_index(block, shape)])
        is_of_parts = shape[:-1] == self.shape[:-1] and shape[-1] and self.shape[-1] % shape[-1] == 0
        if is_of_parts:  # each of a part of the row
            return field.place((*index[:-1], index[-1] // (self.shape[-1] // shape[-1])))
        raise QuantError(f"{role} has shape {shape}, which is not one number per block.")

    def encode(self, numbers: Mapping[str, Tensor] | None = None) -> dict[str, bytes]:
        """Return the bytes of each stored tensor, by its name in the file.

        Args:
            numbers: by role; the others are read from the file.

        Raises:
            QuantError: the file's packing can't hold a number.
        """
        given = numbers or {}
        if self.write is not None:
            return self.write(given)
        encoded = {
            field.piece.name: field.encode(given[role] if role in given else field.stored())
            for role, field in self.fields.items()
        }
        others = (piece for piece in self.pieces.values() if piece.name not in encoded)
        return encoded | {piece.name: bytes(piece.bytes()) for piece in others}

    def loaded(self, codes: bool = False) -> Self:
        """Return the same layout with its parameters in memory, and its codes if a row's are not contiguous.

        Args:
            codes: load them in any case.
        """

        def kept(role: str, field: Field) -> bool:
            of_elements = role in self.in_codes or field.shape == self.shape
            return of_elements and not codes and not field.across_rows

        fields = {r: field if kept(r, field) else field.in_memory() for r, field in self.fields.items()}
        return replace(self, fields=fields)
