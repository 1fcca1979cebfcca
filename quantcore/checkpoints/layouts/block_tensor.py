"""A tensor in ggml's blocks: its numbers by rows, their places, and one kind of them as a field.

Each row is a run of whole blocks, and rows are contiguous, so that rows are a range of bytes. A range of a
one-dimensional tensor may begin and end within a block.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.ggml import BitRange, BlockType, Fields, StructField, digits_of
from quantcore.checkpoints.protocol.fields import Field, Place, Rows
from quantcore.checkpoints.protocol.record import CODES
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError
from quantcore.expressions import Expression, Let

# elements that are read and unpacked at once: from memory or a file, as many as fit in a core's cache; from a
# server, many more, since a request takes as long as reading megabytes
_AT_ONCE, _AT_ONCE_REMOTE = 1 << 18, 1 << 24


class LazyFields(dict[str, npt.NDArray[Any]]):
    """The fields of blocks, [blocks, entries], unpacked on access: reading scales does not unpack codes."""

    def __init__(self, kind: BlockType, blocks: npt.NDArray[np.uint8]) -> None:
        self._kind, self._blocks = kind, blocks

    def __missing__(self, name: str) -> npt.NDArray[Any]:
        return self._kind.field(name).unpack(self._blocks)


@dataclass(frozen=True)
class BlockTensor:
    """A stored tensor and its block type."""

    piece: StoredTensor
    kind: BlockType

    def shape_of(self, per_block: int) -> tuple[int, ...]:
        """Return the shape of all numbers of one kind, if each block has ``per_block`` of them."""
        *outer, row = self.piece.shape
        return (*outer, row // self.kind.elements * per_block)

    def blocks(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Read blocks, [blocks, bytes of a block]."""
        size = self.kind.num_bytes
        data = self.piece.source.read(self.piece.offset + start * size, (stop - start) * size)
        return np.frombuffer(data, np.uint8).reshape(-1, size)

    def numbers(self, rows: Rows, per_block: int, make: Callable[[Fields], npt.NDArray[Any]]) -> Tensor:
        """Return numbers of some rows.

        Args:
            per_block: how many of them a block has.
            make: computes them from the fields of blocks, [blocks, per_block].
        """
        shape, first, last = self._span(rows, per_block)
        out: npt.NDArray[Any] | None = None
        for begin, blocks in self._covering(first, last, per_block):
            part = make(LazyFields(self.kind, blocks))
            if out is None:
                out = np.empty(last - first, part.dtype)
            _place_part(out, part, begin * per_block - first)
        if out is None:
            out = np.empty(0, make(LazyFields(self.kind, self.blocks(0, 0))).dtype)
        return torch.from_numpy(out.reshape(shape))

    def values(self, rows: Rows, out: Tensor | None) -> Tensor:
        """Return the values of some rows, as ggml's `dequantize_row_*` compute them, in ``out`` if given."""
        size = self.kind.elements
        shape, first, last = self._span(rows, size)
        found = torch.empty(shape) if out is None else out
        flat = found.view(-1).numpy() if found.is_contiguous() else np.empty(last - first, np.float32)
        for begin, blocks in self._covering(first, last, size):
            start, stop = begin * size - first, (begin + len(blocks)) * size - first
            if start >= 0 and stop <= len(flat):
                self.kind.dequantize(blocks, flat[start:stop])
            else:
                _place_part(flat, self.kind.dequantize(blocks), start)
        return found if found.is_contiguous() else found.copy_(torch.from_numpy(flat.reshape(shape)))

    def place(
        self, index: Sequence[int], per_block: int, bits_of: Callable[[int], Sequence[BitRange]]
    ) -> Place:
        """Return where the number at ``index`` is.

        Args:
            bits_of: returns the bits of an entry within its block.
        """
        flat = int(np.ravel_multi_index(tuple(index), self.shape_of(per_block)))
        block, entry = divmod(flat, per_block)
        start = self.piece.offset + block * self.kind.num_bytes
        bits = tuple((start + b.byte, b.low + i) for b in bits_of(entry) for i in range(b.count))
        return Place(self.piece.source.name, self.piece.name, bits)

    def encode(self, numbers: Mapping[str, Tensor]) -> bytes:
        """Return the bytes of the blocks.

        Args:
            numbers: those of all rows, by field or "codes"; other fields are read from the file.

        Raises:
            QuantError: the blocks can't hold a number.
        """
        found, step = bytearray(), _AT_ONCE // self.kind.elements
        total = self.piece.num_bytes // self.kind.num_bytes
        given = {role: value.contiguous().numpy().reshape(total, -1) for role, value in numbers.items()}
        for start in range(0, total, step):
            stop = min(start + step, total)
            fields = self.kind.unpack(self.blocks(start, stop))
            for role, value in given.items():
                part = value[start:stop]
                fields |= {role: part} if role in fields else self._fields_of_codes(fields, part)
            found += self.kind.pack(fields).tobytes()
        return bytes(found)

    def _fields_of_codes(self, fields: Fields, codes: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
        """Return the changed fields that hold the codes, for types that have no field of codes."""
        before = self.kind.levels.codes(fields)
        if (before == codes).all():
            return {}
        # two bytes may have the same digits: where the digits are unchanged, the file's byte is kept
        if "digits" in fields:
            same = digits_of(before) == digits_of(codes)
            return {"digits": np.where(same, fields["digits"], digits_of(codes))}
        raise QuantError(
            f"{self.kind.name} stores one grid row for several elements of {named(self.piece.name)}, so "
            "codes can't be changed one by one; change grid_index and the signs."
        )

    def _span(self, rows: Rows, per_block: int) -> tuple[tuple[int, ...], int, int]:
        """Return the shape of the numbers of some rows, and the flat indices where they start and stop."""
        outer, *inner = self.shape_of(per_block)
        first, last = (0, outer) if rows is None else (rows.start, rows.stop)
        return (last - first, *inner), first * prod(inner), last * prod(inner)

    def _covering(self, first: int, last: int, per_block: int) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
        """Yield the blocks that hold these numbers, each time with the index of the first block."""
        step = (_AT_ONCE_REMOTE if self.piece.source.is_remote else _AT_ONCE) // self.kind.elements
        stop = -(-last // per_block) if last > first else 0
        for begin in range(first // per_block, stop, step):
            yield begin, self.blocks(begin, min(begin + step, stop))


def _place_part(out: npt.NDArray[Any], part: npt.NDArray[Any], start: int) -> None:
    """Copy ``part`` to ``out`` at ``start``, except what lies outside of ``out``."""
    flat = part.reshape(-1)
    begin, end = max(0, start), min(len(out), start + len(flat))
    out[begin:end] = flat[begin - start : end - start]


@dataclass(frozen=True)
class BlockField(Field):
    """The numbers of a field of the block type, or the codes, which some types compute from several fields.

    They have the weight's axes; the length of the last is the number of entries of the field in a row.
    """

    tensor: BlockTensor
    name: str

    @property
    def piece(self) -> StoredTensor:
        """The stored tensor."""
        return self.tensor.piece

    @property
    def _count(self) -> int:
        return self.tensor.kind.elements if self.name == CODES else self.tensor.kind.field(self.name).count

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the numbers."""
        return self.tensor.shape_of(self._count)

    def read(self, rows: Rows = None) -> Tensor:
        """Return the numbers of some rows: float32, or stored integers minus the type's offset."""
        return self.tensor.numbers(rows, self._count, self._make)

    def _make(self, fields: Fields) -> npt.NDArray[Any]:
        if self.name == CODES:
            return self.tensor.kind.levels.codes(fields)
        found = fields[self.name]
        if found.dtype.kind == "f":
            return found.astype(np.float32)
        return found.astype(np.int32) if found.itemsize > 1 else found

    def place(self, index: Sequence[int]) -> Place:
        """Return where one number is."""
        return self.tensor.place(index, self._count, self._bits)

    def _bits(self, entry: int) -> list[BitRange]:
        kind = self.tensor.kind
        if self.name != CODES:
            return list(kind.locate(self.name, entry))
        return [
            bits
            for part in kind.levels.parts(entry)
            for bits in kind.locate(part.field, part.entry, part.bits)
        ]

    def encode(self, numbers: Tensor) -> bytes:
        """Return the bytes of the stored tensor with these numbers, all rows."""
        return self.tensor.encode({self.name: numbers})

    @property
    def _kept(self) -> StructField | None:
        """How a block stores the field; None for codes that are made from several."""
        return next((kept for kept in self.tensor.kind.fields if kept.name == self.name), None)

    @property
    def kept_as(self) -> str:
        """Float16, a signed byte, or bits."""
        return {"f": "F16", "i": "I8"}.get(self._kept.kind, "bits") if self._kept else "bits"

    def meaning(self, bits: Expression, width: int, name: str) -> Expression:
        """Return the stored number without the constant that the type adds."""
        offset = self._kept.offset if self._kept else 0
        return Let(name, bits - offset, "stored with a constant added") if offset else bits

    def in_memory(self) -> Self:
        """Return itself: rows can be read on their own."""
        return self
