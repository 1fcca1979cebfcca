"""Layouts that read the same bytes the way other libraries do, or common mistakes.

Differences that a field, a class attribute or a block type can express are expressed there (`sibling`,
`dataclasses.replace`); those that need code of their own are here. Like every layout, each reads rows and locates elements.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.checkpoints.ggml import Axis, BlockType, CodePart, Plane
from quantcore.checkpoints.ggml import Fields as BlockNumbers
from quantcore.checkpoints.ggml.levels import Offset
from quantcore.checkpoints.layouts.gptq import Gptq
from quantcore.checkpoints.layouts.whole import Whole
from quantcore.checkpoints.protocol.fields import Field, Place, Rows
from quantcore.checkpoints.protocol.layout import CODES, Layout
from quantcore.checkpoints.protocol.location import Location
from quantcore.checkpoints.protocol.packed import Packed
from quantcore.formats import Format
from quantcore.granularity import Granularity

L = TypeVar("L", bound=Layout)


def sibling(layout: L, **attributes: Any) -> L:
    """Return a layout with the same fields whose class has other attributes."""
    kind = type(type(layout).__name__, (type(layout),), attributes)
    return cast(L, kind(**{f.name: getattr(layout, f.name) for f in fields(layout)}))


@dataclass(frozen=True)
class Unwrapped(Packed):
    """GPTQ v1 zero points with 1 added without wrapping: a stored 15 becomes 16."""

    def _decode(self, codes: npt.NDArray[Any]) -> Tensor:
        return torch.from_numpy(codes.astype(np.int16) + np.int16(1))


@dataclass(frozen=True)
class Carried(Packed):
    """GPTQ v1 zero points with 1 added to each by one addition to the word: a stored 15 carries into the next."""

    @property
    def addend(self) -> int:
        """The word with a 1 in the lowest bit of each code."""
        return int(sum(1 << shift for shift in range(0, self.order.word_bits, self.order.bits)))

    def _words(self, box: tuple[slice, ...]) -> npt.NDArray[Any]:
        found = super()._words(box)
        moved: npt.NDArray[Any] = found + found.dtype.type(self.addend)
        return moved

    def place(self, index: Sequence[int]) -> Place:
        """Return where a code and all lower ones in its word lie, since they may carry into it."""
        own, size = super().place(index), self.piece.itemsize
        start = self.piece.offset + (own.offset - self.piece.offset) // size * size
        top = max((byte - start) * 8 + bit for byte, bit in own.bits)
        return replace(own, bits=tuple((start + at // 8, at % 8) for at in range(top + 1)))


class UnwrappedGptq(Gptq):
    """GPTQ v1 whose zero points may be 2^bits."""

    def _zeros(self, shape: tuple[int, int]) -> Packed:
        return Unwrapped(self.pieces["qzeros"], self.order, shape, axis=0, transposed=True)


class CarriedGptq(Gptq):
    """GPTQ v1 whose zero points are made by one addition per word."""

    def _zeros(self, shape: tuple[int, int]) -> Packed:
        return Carried(self.pieces["qzeros"], self.order, shape, axis=0, transposed=True)


class PowerScales(Whole):
    """Scales rounded up to a power of two, as in E8M0 (ue8m0)."""

    def scale(self, rows: Rows = None) -> Tensor:
        """Return 2^ceil(log2(scale))."""
        found = super().scale(rows)
        assert found is not None
        mantissa, exponent = torch.frexp(found)
        return torch.ldexp(torch.where(mantissa == 0.5, 0.5, 1.0), exponent).masked_fill(found == 0, 0.0)


@dataclass(frozen=True)
class Unleaked(Offset):
    """Codes of Q5_K whose lowest bit is cleared where the fifth bit of the code in the lower half of the byte is 1."""

    def codes(self, fields: BlockNumbers) -> npt.NDArray[Any]:
        """The codes, those of odd sub-blocks without what may have leaked into them."""
        pairs = fields[CODES].reshape(len(fields[CODES]), -1, 2, 32).copy()
        pairs[:, :, 1] &= ~(pairs[:, :, 0] >> 4 & 1)
        return pairs.reshape(len(pairs), -1)

    def levels(self, fields: BlockNumbers) -> npt.NDArray[Any]:
        """The codes."""
        return self.codes(fields).view(np.int8)

    def parts(self, element: int) -> tuple[CodePart, ...]:
        """The element's own code, and for odd sub-blocks the fifth bit of its neighbor in the byte."""
        own = CodePart(CODES, element)
        return (own, CodePart(CODES, element - 32, range(4, 5))) if element // 32 % 2 else (own,)


def adjacent_nibbles(kind: BlockType) -> BlockType | None:
    """Return the block type with adjacent codes in each byte; None if its bytes don't hold two distant nibbles."""
    codes = next((f for f in kind.fields if f.name == CODES), None)
    if codes is None:
        return None
    plane, *higher = codes.planes
    if plane.bits != 4 or len(plane.axes) != 3:
        return None
    other = Plane(plane.byte, (Axis(codes.count // 2, 1), Axis(2, bits=4)), 4)
    changed = tuple(replace(f, planes=(other, *higher)) if f is codes else f for f in kind.fields)
    return replace(kind, fields=changed)


@dataclass(frozen=True, eq=False)
class Rearranged(Layout):
    """A weight whose elements another reader returns at other indices."""

    inner: Layout = field(kw_only=True)

    @abstractmethod
    def stored_index(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """Return the index of an element in the weight as it is stored."""

    @property
    def storage(self) -> str:
        """As the weight is stored."""
        return self.inner.storage

    @property
    def element(self) -> Format:
        """As the weight is stored."""
        return self.inner.element

    @property
    def granularity(self) -> Granularity:
        """As the weight is stored."""
        return self.inner.granularity

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """As the weight is stored."""
        return self.inner.fields

    def locate(self, index: Sequence[int]) -> Location:
        """Return where an element lies."""
        return self.inner.locate(self.stored_index(tuple(index)))


class Transposed(Rearranged):
    """Experts returned as [experts, in, out]."""

    def stored_index(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """Return the index with the last two axes swapped."""
        return (*index[:-2], index[-1], index[-2])

    def values(self, rows: Rows = None, out: Tensor | None = None, rounded: bool = True) -> Tensor:
        """Return the values of some experts."""
        found = self.inner.values(rows, None, rounded).mT
        return found.contiguous() if out is None else out.copy_(found)


@dataclass(frozen=True, eq=False)
class RotaryRows(Rearranged):
    """Rows of q or k in Hugging Face's order; llama.cpp interleaves the two halves of each head."""

    heads: int = field(kw_only=True)

    def _stored(self, row: int) -> int:
        size = self.shape[0] // self.heads
        head, inside = divmod(row, size)
        half, at = divmod(inside, size // 2)
        return head * size + 2 * at + half

    def stored_index(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """Return the index with the row moved within its head."""
        return (self._stored(index[0]), *index[1:])

    def values(self, rows: Rows = None, out: Tensor | None = None, rounded: bool = True) -> Tensor:
        """Return the values of some rows; all rows of their heads are read."""
        first, last = (0, self.shape[0]) if rows is None else (rows.start, rows.stop)
        size = self.shape[0] // self.heads
        start, stop = first // size * size, -(-last // size) * size
        read = self.inner.values(slice(start, stop), None, rounded)
        found = read[[self._stored(row) - start for row in range(first, last)]]
        return found if out is None else out.copy_(found)


def without(layout: L, piece: str) -> L:
    """Return a layout that ignores one of its stored tensors."""
    return replace(layout, pieces={name: p for name, p in layout.pieces.items() if name != piece})
