"""What a layout is: how the stored tensors of one weight hold its codes and parameters, as a record.

A format makes it from headers and config: its `fields` (which stored tensor holds which numbers, see `fields.Field`),
what a code means (`element`), which elements share a scale (`granularity`), and the value of an element as an expression
of its level and parameters. Everything else follows and is done here: codes, parameters and values by rows, the place of
each bit, and the encoding back to bytes. The lines of an element, its script and other readers' values read the same
expression. Where a part of it can be computed faster, the record holds that as a hook.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.packing import fits_pairs, look_up_pairs, pairs_of
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.fields import Field, Place, Rows
from quantcore.checkpoints.protocol.location import Location
from quantcore.checkpoints.protocol.pairs import bytes_of, first_is_low
from quantcore.checkpoints.protocol.reading import Reading
from quantcore.checkpoints.protocol.spreading import Parameters, Spreading
from quantcore.checkpoints.protocol.value import (
    CODES,
    GROUP_INDEX,
    MIN,
    PLAIN,
    SCALE,
    SYMBOLS,
    ZERO_POINT,
    Q,
    rounded_to,
    value_of,
)
from quantcore.checkpoints.protocol.views import Reshaped, View
from quantcore.checkpoints.statement import Statement
from quantcore.errors import QuantError
from quantcore.expressions import Expression, run
from quantcore.formats import Format, IntFormat
from quantcore.granularity import Blocks, Granularity, PerBlock, Shape
from quantcore.numerics import round_to


@dataclass(frozen=True)
class GroupOrder:
    """What a config says of the order in which columns were quantized, and so of an unsorted group index.

    ``option``: as the config says it; ``unsorted``: what an unsorted index means if the config says so, ``unsaid``: if it
    does not; ``said``: whether it does.
    """

    option: str
    unsorted: str
    unsaid: str
    said: bool = False


@dataclass(frozen=True, eq=False)
class Layout:
    """How one weight is stored.

    ``name``: of the weight, such as ``model.layers.0.self_attn.q_proj.weight``; ``shape``: logical, [out, in] for a
    linear layer; ``dtype``: the library's output dtype, to which values are rounded; ``pieces``: the stored tensors by
    their names within the module (``qweight``); ``fields``: of each role, "codes" is one of them. ``format_name``:
    ``gptq``; ``storage``: how it is stored, in words: ``gptq int4 per_group(128) asymmetric``. ``coded``: what a code is,
    or why there are none, or a function that reads it. ``granularity``: which elements share a scale, with a group index
    as if the columns of a group were adjacent. ``is_symmetric``: whether the zero point is the middle of the codes, or
    there is none; None: whether there is neither a zero point nor a min.

    The value of an element: ``decoding``: its level times the scale, divided by it, or for "of_largest" times the scale,
    which is then the largest magnitude, times 1 / the element's max. ``added``: a role that is added (or with -1
    subtracted) after the multiplication; otherwise a zero point is subtracted before it. ``level``: what a code stands
    for, ``level_at``: of one element, if it differs. ``derived``: parameters that are computed from several stored
    numbers; ``divides_by``: the role of the one that divides. ``rounds_each``: whether the library rounds to its output
    dtype after each operation, not only at the end. ``own_value``: the value, if it is none of these.

    ``columns``: the number of groups whose elements take turns in the flat weight. ``row_per_group``: whether parameters
    are stored with a row per group. ``in_codes``: roles that codes are made of. ``symbols``: names in formulas.
    ``block_type``: of ggml. ``remarks``: what was decided against the config, or because no file says it; ``more``: what
    else, if it must be read; ``checks``: what the format's own parameters say; ``group_order``: of the columns, if the
    format has a group index. ``refuse``: raises if only reading shows that codes can't be read. ``rivals``: yields other
    readings of the same bytes; ``narrowed``: the dtype that readers round to, although the format defines float32.
    ``of_part``: the layout of a part of its stored tensor, where rows are ranges of bytes.

    Faster or other ways, equal bit for bit: ``computed``: parameters by role, (rows of blocks) -> numbers; ``fast``:
    (layout, rows, out) -> values before rounding; ``write``: numbers by role -> bytes by name; ``kept``: what `stored`
    returns.
    """

    name: str
    shape: Shape
    dtype: torch.dtype
    pieces: Mapping[str, StoredTensor]
    fields: Mapping[str, Field]
    format_name: str
    storage: str
    coded: Format | str | Callable[[], Format | str]
    granularity: Granularity
    is_symmetric: bool | None = None
    decoding: Literal["scaled", "divided", "of_largest"] = "scaled"
    added: tuple[str, Literal[1, -1]] | None = None
    level: Expression = Q
    divides_by: str = ""
    level_at: Callable[[tuple[int, ...]], Expression] | None = None
    derived: Mapping[str, Expression] = field(default_factory=dict)
    rounds_each: bool = False
    own_value: Expression | None = None
    columns: int = 0
    row_per_group: bool = False
    in_codes: frozenset[str] = frozenset((CODES,))
    symbols: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[Statement, ...] = ()
    more: Callable[["Layout"], tuple[Statement, ...]] | None = None
    checks: Callable[["Layout"], Iterator[Statement]] | None = None
    group_order: GroupOrder | None = None
    refuse: Callable[[], None] | None = None
    rivals: Callable[["Layout"], Iterator[Reading]] | None = None
    narrowed: torch.dtype | None = None
    block_type: str = ""
    of_part: Callable[[StoredTensor], "Layout"] | None = None
    computed: Mapping[str, Callable[[Rows], Tensor]] = field(default_factory=dict)
    fast: Callable[["Layout", Rows, Tensor | None], Tensor] | None = None
    write: Callable[[Mapping[str, Tensor]], dict[str, bytes]] | None = None
    kept: Callable[["Layout"], dict[str, Tensor]] | None = None

    def changed(self, **changes: Any) -> "Layout":
        """Return the record with other values."""
        return replace(self, **changes)

    def with_field(self, role: str, **changes: Any) -> "Layout":
        """Return the record with a field that reads its bytes in another way."""
        return replace(self, fields={**self.fields, role: _changed(self.fields[role], changes)})

    def without(self, role: str) -> "Layout":
        """Return the record without one of its fields."""
        return replace(self, fields={key: kept for key, kept in self.fields.items() if key != role})

    @property
    def element(self) -> Format:
        """What a code is: an integer, the bits of a small float, or an index into a codebook.

        Raises:
            QuantError: there are no codes.
        """
        if isinstance(self._coded, str):
            raise QuantError(self._coded)
        return self._coded

    @cached_property
    def _coded(self) -> Format | str:
        return self.coded() if callable(self.coded) else self.coded

    @property
    def is_plain(self) -> bool:
        """Whether the stored numbers are the values."""
        return self.own_value is PLAIN

    @property
    def holds_values(self) -> bool:
        """Whether the file holds values, or what they are computed from, but no codes."""
        return self.own_value is not None

    @property
    def symmetric(self) -> bool:
        """Whether the zero point is the middle of the codes, or there is none."""
        if self.is_symmetric is not None:
            return self.is_symmetric
        return ZERO_POINT not in self.fields and MIN not in self.fields

    @property
    def num_bytes(self) -> int:
        """Bytes that its stored tensors take."""
        return sum(piece.num_bytes for piece in self.pieces.values())

    @cached_property
    def blocks(self) -> Blocks:
        """The layout of the weight in blocks."""
        return Blocks.of(self.granularity, self.shape)

    def symbol(self, role: str) -> str:
        """Return the name of one of its numbers in formulas."""
        if role == SCALE and self.decoding == "of_largest":
            return "amax"
        return self.symbols.get(role) or SYMBOLS.get(role, role)

    def expression(self, rounded: bool = True, level: Expression | None = None) -> Expression:
        """Return the value of an element: from its level, its parameters and the roundings of the library.

        Args:
            rounded: round to the output dtype; otherwise the same expression stays in float32.
            level: of an element, if not that of all.
        """
        dtype = None if self.is_plain or self.dtype == torch.float32 or not rounded else self.dtype
        if self.own_value is not None:
            return rounded_to(self.own_value, dtype)
        role, sign = self.added or ("", 1)
        most = self.element.symmetric_max if self.decoding == "of_largest" else 1.0
        scaled = SCALE in self.fields or SCALE in self.derived
        shifted = ZERO_POINT in self.fields and not role
        return value_of(level or self.level, self.decoding if scaled else "", shifted, role, sign, most, dtype, self.rounds_each)

    def codes(self, rows: Rows = None) -> Tensor:
        """Return the codes of some rows: integers, in logical axes.

        Raises:
            QuantError: there are none, or they can't be read.
        """
        _ = self.element
        return self._codes(rows)

    def _codes(self, rows: Rows) -> Tensor:
        if self.refuse is not None:
            self.refuse()
        return self.fields[CODES].read(rows)

    def scale(self, rows: Rows = None) -> Tensor | None:
        """Return the effective scales in block form, float32; ``rows``: of blocks. None: there are none."""
        return self._parameter(SCALE, rows)

    def zero_point(self, rows: Rows = None) -> Tensor | None:
        """Return the zero points in block form; None if there are none, or all are 0."""
        return self._parameter(ZERO_POINT, rows)

    def min(self, rows: Rows = None) -> Tensor | None:
        """Return the minima in block form, added or subtracted after the multiplication; None if there are none."""
        return self._parameter(MIN, rows)

    def _parameter(self, role: str, rows: Rows) -> Tensor | None:
        if role in self.computed:
            return self.computed[role](rows)
        if role in self.derived:
            found: Tensor = run(self.derived[role], {name: self._read(name, rows) for name in self.derived[role].names})
            return found
        return self._read(role, rows) if role in self.fields else None

    def _read(self, role: str, rows: Rows) -> Tensor:
        found = self.fields[role]
        return found.read(None if all(n == 1 for n in found.shape) else rows)

    def parameters(self, rows: Rows = None) -> Parameters:
        """Return the parameters in block form, or one number for all blocks; ``rows``: of blocks.

        `scale`, `zero_point` and `min` return the library's shapes, which may have fewer or other axes. The min here is
        always added, whatever the library does.
        """
        scale = self._in_blocks(SCALE, rows)
        if self.added is None:
            return Parameters(scale, self._in_blocks(ZERO_POINT, rows), None)
        role, sign = self.added
        added = self._in_blocks(role, rows)
        return Parameters(scale, None, -added if added is not None and sign < 0 else added)

    def _in_blocks(self, role: str, rows: Rows) -> Tensor | None:
        if self.row_per_group:
            turned = _changed(self.fields[role], {"transposed": True})
            return turned.read(rows)
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
                f"The group index of {named(self.name)} names the groups {int(index.min())} to {int(index.max())}, "
                f"but there are scales for {self.blocks.grid[-1]} groups, numbered from 0; the file is damaged."
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
            out: a tensor to write into.
            rounded: round to the library's output dtype; otherwise the same expression stays in float32.
        """
        if self.fast is not None:
            found = self.fast(self, rows, out)
            return round_to(found, self.dtype) if rounded and not self.is_plain else found
        if not self.shape:
            return self._as_row().values(None, None if out is None else out.view(1), rounded).view(())
        first, last = (0, self.shape[0]) if rows is None else (rows.start, rows.stop)
        out = torch.empty((last - first, *self.shape[1:])) if out is None else out
        levels, expression = self._levels(rows, out), self.expression(rounded, Q)
        parameters = expression.names - Q.names

        def compute(numbers: Mapping[str, Tensor], part: Tensor, target: Tensor) -> None:
            run(expression, {**numbers, CODES: part}, target)

        def of(grid: slice) -> dict[str, Tensor]:
            found = {role: self._in_blocks(role, grid) for role in parameters}
            return {role: number for role, number in found.items() if number is not None}

        self._by_parts(slice(first, last), levels, out, of, compute)
        return out

    def _as_row(self) -> "Layout":
        """Return a weight that is a single number as one of a row."""
        return replace(self, shape=(1,), fields={role: Reshaped(kept, (1,)) for role, kept in self.fields.items()})

    def as_matrix(self) -> "Layout":
        """Return the weight without the axes of length 1 at its end: a 1 × 1 convolution as [out, in], others unchanged."""
        rank = max((i + 1 for i, n in enumerate(self.shape) if n > 1), default=1)
        rank, own = max(2, rank), len(self.shape)
        if rank >= own:
            return self
        if self.of_part is not None:  # a plain one's stored tensor has the weight's axes
            (piece,) = self.pieces.values()
            return self.of_part(replace(piece, shape=self.shape[:rank]))
        boxes = self.blocks.blocked_shape == self.shape
        return replace(
            self,
            shape=self.shape[:rank],
            fields={r: Reshaped(f, f.shape[:rank]) if len(f.shape) == own else f for r, f in self.fields.items()},
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

        self._by_parts(rows, out, out, lambda grid: {SCALE: parameter(None if self.columns else grid)}, copy)
        return out

    def _by_parts(
        self,
        rows: slice,
        codes: Tensor,
        out: Tensor,
        parameters: Callable[[slice], dict[str, Tensor]],
        compute: Callable[[Mapping[str, Tensor], Tensor, Tensor], None],
    ) -> None:
        index = None if self.columns else self.group_index()
        spreading = Spreading(self.blocks, index, rows.start, rows.stop, self.columns)
        for part in spreading.parts():
            spreading.run(part, parameters(part.grid), codes, out, compute)

    def _levels(self, rows: Rows, out: Tensor) -> Tensor:
        """Return the integers that codes are, or write what they stand for into ``out``."""
        if self.level is Q:
            return self._codes(rows)
        codes, start = self.fields[CODES], 0 if rows is None else rows.start * math.prod(self.shape[1:])
        low_first = first_is_low(codes)
        if low_first is not None and fits_pairs(start, out):
            span = slice(start // 2, (start + out.numel()) // 2)
            look_up_pairs(bytes_of(codes.piece, span), self._pairs, out.view(-1))
            return out
        element = self.element
        assert not isinstance(element, IntFormat)
        read = codes.read(rows)
        if out.is_contiguous():
            return element.decode_(read, out)
        return out.copy_(element.decode_(read, torch.empty(out.shape)))

    @cached_property
    def _pairs(self) -> Tensor:
        element, low_first = self.element, first_is_low(self.fields[CODES])
        assert not isinstance(element, IntFormat)
        return pairs_of(element.table, bool(low_first))

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
        if shape[:-1] == self.shape[:-1] and shape[-1] and self.shape[-1] % shape[-1] == 0:  # each of a part of the row
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

    def loaded(self, codes: bool = False) -> "Layout":
        """Return the same layout with its parameters in memory, and its codes if those of a row are not contiguous.

        Args:
            codes: load them in any case.
        """
        def kept(role: str, field: Field) -> bool:
            of_elements = role in self.in_codes or field.shape == self.shape
            return of_elements and not codes and not field.across_rows

        fields = {role: field if kept(role, field) else field.in_memory() for role, field in self.fields.items()}
        return replace(self, fields=fields)


def _changed(field: Field, changes: Mapping[str, Any]) -> Field:
    """Return a field with other attributes; those of a view are the attributes of what it views."""
    if isinstance(field, View):
        return replace(field, field=_changed(field.field, changes))
    return replace(field, **changes)  # type: ignore[type-var]


def words(format_name: str, *parts: Any) -> str:
    """Join the words of `Layout.storage`; empty ones are left out."""
    return " ".join(str(part) for part in (format_name, *parts) if part)


