"""What a layout is: how the stored tensors of one weight hold its codes and parameters.

A layout is a frozen record made from headers and config alone. It must define its `fields` (which stored tensor holds
which numbers, see `fields.Field`), what a code means (`element`), which elements share a scale (`granularity`, or
`group_index` if groups are not boxes), and the library's output dtype. Everything else follows and is done here: codes,
parameters and values by rows, the place of each bit, and the encoding back to bytes. A format overrides only what it
computes differently, such as `scale` if a global scale is folded in, or `dequantize` if the library rounds between its
operations.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.fields import Field, Place, Rows
from quantcore.checkpoints.protocol.location import Location
from quantcore.checkpoints.protocol.spreading import Parameters, Spreading
from quantcore.checkpoints.statement import Statement
from quantcore.errors import QuantError
from quantcore.formats import Format
from quantcore.granularity import Blocks, Granularity, Shape
from quantcore.numerics import round_to
from quantcore.qparams import Dequantizer, decode

# roles of fields, as golden checkpoints name them; a format may add its own
CODES, SCALE, ZERO_POINT, MIN, GROUP_INDEX = "codes", "scale", "zero_point", "min", "g_idx"


@dataclass(frozen=True, eq=False)
class Layout(ABC):
    """How one weight is stored.

    ``name``: of the weight, such as ``model.layers.0.self_attn.q_proj.weight``; ``shape``: logical, [out, in] for a
    linear layer; ``dtype``: the library's output dtype, to which values are rounded; ``pieces``: the stored tensors by
    their names within the module (``qweight``). ``given_shape``, ``given_dtype``: the shape and dtype, or a function
    that reads them from a stored tensor. ``remarks``: what was decided against the config, or because no
    file says it.
    ``format``: the first word of `storage`, if the rest needs more than headers. ``decoding``: how a scale is used, see
    `coding.Dequantizer`; ``rounds_each``: whether the library rounds to its output dtype after each operation, not only
    at the end.
    """

    name: str
    given_shape: Shape | Callable[[], Shape]
    given_dtype: torch.dtype | Callable[[], torch.dtype]
    pieces: Mapping[str, StoredTensor]
    remarks: tuple[Statement, ...] = field(default=(), kw_only=True)
    format: ClassVar[str] = ""
    decoding: ClassVar[Literal["scaled", "divided", "of_largest"]] = "scaled"
    rounds_each: ClassVar[bool] = False

    @cached_property
    def shape(self) -> Shape:
        """The logical shape."""
        return self.given_shape() if callable(self.given_shape) else self.given_shape

    @cached_property
    def dtype(self) -> torch.dtype:
        """The library's output dtype."""
        return self.given_dtype() if callable(self.given_dtype) else self.given_dtype

    def check(self) -> None:
        """Check what the headers say.

        Raises:
            QuantError: the stored tensors don't fit each other or the config.
        """
        if not callable(self.given_shape):
            _ = self.fields

    @property
    @abstractmethod
    def storage(self) -> str:
        """How it is stored, in words: ``gptq int4 per_group(128) asymmetric``."""

    @property
    def format_name(self) -> str:
        """The first word of `storage`: ``gptq``."""
        return self.format or self.storage.partition(" ")[0]

    @property
    @abstractmethod
    def element(self) -> Format:
        """What a code is: an integer, the bits of a small float, or an index into a codebook."""

    @property
    @abstractmethod
    def granularity(self) -> Granularity:
        """Which elements share a scale; with a `group_index`, as if the columns of a group were adjacent."""

    @property
    def symmetric(self) -> bool:
        """Whether the zero point is the middle of the codes, or there is none."""
        return ZERO_POINT not in self.fields and MIN not in self.fields

    @cached_property
    @abstractmethod
    def fields(self) -> Mapping[str, Field]:
        """The field of each role, made from ``pieces``; "codes" is one of them."""

    @property
    def num_bytes(self) -> int:
        """Bytes that its stored tensors take."""
        return sum(piece.num_bytes for piece in self.pieces.values())

    @cached_property
    def blocks(self) -> Blocks:
        """The layout of the weight in blocks."""
        return Blocks.of(self.granularity, self.shape)

    def codes(self, rows: Rows = None) -> Tensor:
        """Return the codes of some rows: integers, in logical axes."""
        return self.fields[CODES].read(rows)

    def scale(self, rows: Rows = None) -> Tensor | None:
        """Return the effective scales in block form, float32; ``rows``: of blocks. None: there are none."""
        return self._read(SCALE, rows)

    def zero_point(self, rows: Rows = None) -> Tensor | None:
        """Return the zero points in block form; None if there are none, or all are 0."""
        return self._read(ZERO_POINT, rows)

    def min(self, rows: Rows = None) -> Tensor | None:
        """Return the minima in block form, which are added after the multiplication; None if there are none."""
        return self._read(MIN, rows)

    @property
    def min_sign(self) -> int:
        """1, or -1 for a format that subtracts its minima."""
        return 1

    def group_index(self) -> Tensor | None:
        """Return the group of each column, or of each element, if groups are not boxes or runs; else None.

        Raises:
            QuantError: it names a group that has no scale.
        """
        return self._groups

    @cached_property
    def _groups(self) -> Tensor | None:
        index = self._read(GROUP_INDEX, None)
        if index is not None and not 0 <= int(index.min()) <= int(index.max()) < self.blocks.grid[-1]:
            raise QuantError(
                f"The group index of {named(self.name)} names the groups {int(index.min())} to {int(index.max())}, "
                f"but there are scales for {self.blocks.grid[-1]} groups, numbered from 0; the file is damaged."
            )
        if index is not None and bool((index == torch.arange(len(index)) // self.blocks.block[-1]).all()):
            return None
        return index

    def _read(self, role: str, rows: Rows) -> Tensor | None:
        return self.fields[role].read(rows) if role in self.fields else None

    def stored(self) -> dict[str, Tensor]:
        """Return the numbers of every field except the codes, by role, as they are stored."""
        return {role: field.read() for role, field in self.fields.items() if role != CODES}

    def notes(self) -> tuple[str, ...]:
        """Return sentences about what was decided against the config or without it; may read parameters."""
        return tuple(statement.about(self.name) for statement in self.statements())

    def statements(self) -> tuple[Statement, ...]:
        """Return the same as data; may read parameters."""
        return self.remarks

    def values(self, rows: Rows = None, out: Tensor | None = None, rounded: bool = True) -> Tensor:
        """Return the values of some rows, float32: what the library dequantizes to.

        Args:
            out: a tensor to write into.
            rounded: round to the library's output dtype; otherwise the same expression stays in float32.
        """
        codes = self.codes(rows)
        out = torch.empty(codes.shape) if out is None else out
        span = (0, self.shape[0]) if rows is None else (rows.start, rows.stop)
        spreading = Spreading(self.blocks, self.group_index(), *span)
        for part in spreading.parts():
            parameters = spreading.by_rows(self.parameters(part.grid), part, out)
            spreading.run(part, parameters, codes, out, partial(self.dequantize, rounded=rounded))
        return round_to(out, self.dtype) if rounded and not self.rounds_each else out

    def dequantize(self, codes: Tensor, parameters: Parameters, out: Tensor, rounded: bool = True) -> None:
        """Write the values of codes into ``out``, float32.

        The value of a code is (q - zero_point) · scale + min, in float32 (or in the output dtype, if ``rounded`` and
        the library computes in it). A format whose library computes otherwise overrides this.
        """
        scale = torch.ones(()) if parameters.scale is None else parameters.scale
        dequantizer = Dequantizer(self.decoding if parameters.min is None else "shifted")
        if self.decoding != "scaled":
            constant = float(torch.tensor(1.0) / self.element.symmetric_max)
            dequantizer = dequantizer._replace(number=scale, constant=constant)
        if self.rounds_each and rounded:
            dequantizer = dequantizer._replace(dtype=self.dtype)
        shift = parameters.zero_point if parameters.min is None else parameters.min
        decode(codes, scale, shift, out, self.element, dequantizer)

    def parameters(self, rows: Rows = None) -> Parameters:
        """Return the parameters in block form, or one number for all blocks; ``rows``: of blocks.

        `scale`, `zero_point` and `min` return the library's shapes, which may have fewer or other axes. The min here is
        always added, even if the format subtracts it.
        """
        minimum = self.min(rows)
        added = minimum if minimum is None or self.min_sign > 0 else -minimum
        found = Parameters(self.scale(rows), self.zero_point(rows), added)
        return found.each(lambda p: p.reshape(1) if p.numel() == 1 else p.reshape(-1, *self.blocks.grid[1:]))

    def locate(self, index: Sequence[int]) -> Location:
        """Return where an element's code and parameters lie."""
        index = tuple(index)
        flat = index
        if self.blocks.blocked_shape != self.shape:
            flat = (int(np.ravel_multi_index(index, self.shape)),)
        position = [i // b for i, b in zip(flat, self.blocks.block, strict=True)]
        groups = self._groups  # not `group_index`, which may have an entry for each element
        if groups is not None:
            position[-1] = int(groups[index[-1]])
        places = {
            role: self.place_of(role, field, index, tuple(position))
            for role, field in self.fields.items()
            if role != CODES
        }
        return Location(self.fields[CODES].place(index), places)

    def place_of(self, role: str, field: Field, index: tuple[int, ...], position: tuple[int, ...]) -> Place:
        """Return the place of a parameter for the element at ``index``, in the block at ``position``."""
        if role == GROUP_INDEX:
            return field.place(index[-1:])
        if all(n == 1 for n in field.shape):
            return field.place((0,) * len(field.shape))
        if math.prod(field.shape) == math.prod(self.blocks.grid):  # perhaps with other axes of length 1
            block = np.ravel_multi_index(position, self.blocks.grid)
            return field.place([int(i) for i in np.unravel_index(block, field.shape)])
        raise QuantError(f"{role} has shape {field.shape}, which is not one number per block.")

    def encode(self, numbers: Mapping[str, Tensor] | None = None) -> dict[str, bytes]:
        """Return the bytes of each stored tensor, by its name in the file.

        Args:
            numbers: by role; the others are read from the file.
        """
        given = numbers or {}
        encoded = {
            field.piece.name: field.encode(given[role] if role in given else field.read())
            for role, field in self.fields.items()
        }
        others = (piece for piece in self.pieces.values() if piece.name not in encoded)
        return encoded | {piece.name: bytes(piece.bytes()) for piece in others}

    def loaded(self) -> Self:
        """Return the same layout with its parameters in memory, and its codes if those of a row are not contiguous."""
        fields = self.fields.items()
        needed = {field.piece.name for role, field in fields if role != CODES or field.across_rows}
        pieces = {k: p.in_memory() if p.name in needed else p for k, p in self.pieces.items()}
        return replace(self, pieces=pieces, given_shape=self.shape)


def words(format_name: str, *parts: Any) -> str:
    """Join the words of `Layout.storage`; empty ones are left out."""
    return " ".join(str(part) for part in (format_name, *parts) if part)
