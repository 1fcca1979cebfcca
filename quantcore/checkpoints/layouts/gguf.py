"""Weights of GGUF files: in ggml's blocks, or plain values.

The types, their bytes and ggml's arithmetic are in `quantcore.checkpoints.ggml`.

====================  ==============================================  ===========================
types                 code                                            value
====================  ==============================================  ===========================
Q4_0 Q5_0 TQ Q2_0     stored number                                   scale * (code - zero_point)
Q8_0 Q3_K Q6_K        stored number, signed                           scale * code
Q4_1 Q5_1             stored number                                   scale * code + min
Q2_K Q4_K Q5_K        stored number                                   scale * code - min
IQ4 Q1_0 MXFP4 NVFP4  index into a table, or the bits of an FP4 E2M1  scale * table[code]
IQ2 IQ3               signed element of a grid's row of 8 or 4        scale * code
IQ1                   element of a grid's row: -1, 0, 1               scale * (code - zero_point)
====================  ==============================================  ===========================
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.checkpoints.containers.gguf_header import VERSION_KEY
from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.ggml import (
    BLOCK_TYPES,
    BlockType,
    CodePart,
    Fields,
    Offset,
    e8m0_as_nan,
    nibble_pairs,
)
from quantcore.checkpoints.layouts.block_floats import e8m0_nan
from quantcore.checkpoints.layouts.block_tensor import BlockField, BlockTensor
from quantcore.checkpoints.layouts.plain import plain
from quantcore.checkpoints.protocol.fields import Field, Rows
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.reading import Reading, Rearranged, Sentence, e8m0_255, instead
from quantcore.checkpoints.protocol.record import CODES, MIN, SCALE, ZERO_POINT, Q
from quantcore.checkpoints.protocol.release import Release
from quantcore.checkpoints.statement import Statement, named
from quantcore.expressions import Expression, Let
from quantcore.formats import CODEBOOKS, FLOATS, Format, IntFormat
from quantcore.granularity import PerGroup

# what a code is, if it is not an unsigned integer with the bits of the field
_ELEMENTS: dict[str, Format] = {
    "Q8_0": IntFormat(8), "Q3_K": IntFormat(3), "Q6_K": IntFormat(6), "Q1_0": CODEBOOKS["binary"],
    "IQ4_NL": CODEBOOKS["iq4_nl"], "IQ4_XS": CODEBOOKS["iq4_nl"],
    "MXFP4": FLOATS["e2m1"], "NVFP4": FLOATS["e2m1"], "TQ1_0": IntFormat(2, signed=False),
    "IQ2_XXS": IntFormat(7), "IQ2_XS": IntFormat(7), "IQ2_S": IntFormat(7), "IQ3_XXS": IntFormat(7),
    "IQ3_S": IntFormat(5), "IQ1_S": IntFormat(2), "IQ1_M": IntFormat(2),
}  # fmt: skip


_FLOATS = ("F32", "F16", "BF16")
Make = Callable[[Fields], npt.NDArray[Any] | None]  # of the fields of blocks, one number per run


def find(release: Release) -> Iterator[Layout]:
    """Yield the tensors of GGUF files."""
    if VERSION_KEY not in release.metadata:
        return
    for name, piece in release.stored.items():
        if piece.dtype in BLOCK_TYPES:
            apart = f"{name.removesuffix('.weight')}.scale"
            yield in_blocks(name, piece, BLOCK_TYPES[piece.dtype], release.stored.get(apart))
        elif piece.dtype in _FLOATS:  # ggml widens them
            yield plain(piece, f"gguf {piece.dtype}", torch.float32)
        else:
            yield plain(piece)


def in_blocks(name: str, piece: StoredTensor, kind: BlockType, apart: StoredTensor | None = None) -> Layout:
    """Return the layout of a tensor in blocks.

    Args:
        kind: how the blocks are read.
        apart: a tensor by which llama.cpp multiplies products with this weight.
    """
    tensor = BlockTensor(piece, kind)
    size = kind.elements
    names = dict.fromkeys((CODES, *(field.name for field in kind.fields)))
    fields: dict[str, Field] = {role: BlockField(tensor, role) for role in names}
    coded = _ELEMENTS.get(kind.name) or IntFormat(kind.field(CODES).bits, signed=False)
    blocks = "super-blocks" if kind.sub_block < size else "blocks"
    derived = {SCALE: kind.scale_of} | ({} if kind.min_of is None else {MIN: kind.min_of})
    return Layout(
        name, piece.shape, torch.float32, {"": piece}, fields,
        "gguf", f"gguf {kind.name} {blocks} of {size}", coded, PerGroup(size // kind.runs),
        is_symmetric=kind.min_of is None and not kind.name.startswith("IQ1"),
        added=None if kind.min_of is None else (MIN, kind.min_sign), derived=derived,
        level_at=lambda index: kind.levels.expression(index[-1] % kind.elements),
        in_codes=frozenset({CODES, *(part.field for part in kind.levels.parts(0))}),
        symbols={CODES: kind.levels.symbol},
        remarks=_stored_apart(apart) if piece.dtype == "NVFP4" and apart is not None else (),
        checks=(lambda own: e8m0_nan(own.fields["scale_code"])) if kind.name == "MXFP4" else None,
        rivals=partial(_rivals, kind), narrowed=torch.float16, block_type=kind.name,
        of_part=lambda part: in_blocks(name, part, kind, apart), computed=_computed(tensor),
        fast=lambda layout, rows, out: tensor.values(rows, out),
        write=lambda numbers: {piece.name: tensor.encode(numbers)},
    )  # fmt: skip


def _computed(tensor: BlockTensor) -> dict[str, Callable[[Rows], Tensor]]:
    """Return the parameters as ggml computes them for whole blocks.

    The scale is d, times the code of the sub-block's scale if the type has one; the zero point is what is
    subtracted from codes: the constant of Q4_0, Q5_0, Q2_0 and TQ, or the shift of IQ1.
    """
    kind = tensor.kind
    found: dict[str, Callable[[Rows], Tensor]] = {SCALE: partial(_parameter, tensor, kind.scale)}
    if kind.zero_points:
        found[ZERO_POINT] = partial(_parameter, tensor, kind.levels.zero_point)
    if kind.min_of is not None:
        found[MIN] = partial(_parameter, tensor, kind.min)
    return found


def _parameter(tensor: BlockTensor, make: Make, rows: Rows = None) -> Tensor:
    runs = tensor.kind.runs

    def spread(fields: Fields) -> npt.NDArray[Any]:
        found = make(fields)
        assert found is not None
        return np.repeat(found, runs // found.shape[1], axis=1)

    return tensor.numbers(rows, runs, spread)


def _stored_apart(scale: StoredTensor) -> tuple[Statement, ...]:
    """Say that the values leave out a scale."""
    words = (
        "{has} products that llama.cpp multiplies by {scale}; the values here do not include this scale, as "
        "in ggml's dequantization."
    )
    return (Statement("stored_apart", "note", words, {"scale": named(scale.name)}),)


def _rivals(kind: BlockType, layout: Layout) -> Iterator[Reading]:
    """Yield the other readings of ggml's blocks."""

    def other(**changes: Any) -> Layout:
        return in_blocks(layout.name, layout.pieces[""], replace(kind, **changes))

    if kind.name == "Q5_K" and type(kind.levels) is Offset:
        yield Reading(
            "q5k_leak", "without a leaked bit",
            "no library; undoes what auto-round before 0.16.1, which packed without a mask, may have done",
            other(levels=Unleaked()),
            instead("q", "Clears bit 0 in odd sub-blocks where bit 4 of the other code in the byte is 1"),
        )  # fmt: skip
    fields = _adjacent_nibbles(kind)
    if fields:
        yield Reading(
            "nibble_order", "adjacent codes in a byte",
            "readers that use the order of MLX and compressed-tensors",
            other(fields=fields), _in_block("Takes two adjacent codes from each byte"),
        )  # fmt: skip
    if kind.name == "MXFP4":
        yield e8m0_255(other(scale_of=e8m0_as_nan(kind.scale_of)), True)


def _in_block(before: str) -> Sentence:
    def sentence(here: Any, there: Any) -> str:
        mine, theirs = (o.code.place.bits[0] for o in (here, there))
        start = here.code.words[0].offset
        where = [f"+{byte - start:02x}, {'upper' if bit else 'lower'} half" for byte, bit in (theirs, mine)]
        return f"{before}: this code is read from byte {where[0]}, instead of {where[1]}."

    return sentence


def _adjacent_nibbles(kind: BlockType) -> tuple[Any, ...]:
    """Return the fields with adjacent codes in each byte; none if it does not hold two distant nibbles."""
    codes = next((f for f in kind.fields if f.name == CODES), None)
    if codes is None:
        return ()
    plane, *higher = codes.planes
    if plane.bits != 4 or len(plane.axes) != 3:
        return ()
    adjacent = (nibble_pairs(plane.byte, codes.count), *higher)
    return tuple(replace(f, planes=adjacent) if f is codes else f for f in kind.fields)


@dataclass(frozen=True)
class Unleaked(Offset):
    """Codes of Q5_K, their lowest bit cleared where the other code in the byte has a fifth bit of 1."""

    def codes(self, fields: Fields) -> npt.NDArray[Any]:
        """Return the codes, those of odd sub-blocks without what may have leaked into them."""
        pairs = fields[CODES].reshape(len(fields[CODES]), -1, 2, 32).copy()
        pairs[:, :, 1] &= ~(pairs[:, :, 0] >> 4 & 1)
        return pairs.reshape(len(pairs), -1)

    def levels(self, fields: Fields) -> npt.NDArray[Any]:
        """Return the codes."""
        return self.codes(fields).view(np.int8)

    def parts(self, element: int) -> tuple[CodePart, ...]:
        """Return the element's own code, and for odd sub-blocks the fifth bit of its neighbor in the byte."""
        own = CodePart(CODES, element)
        return (own, CodePart(CODES, element - 32, range(4, 5))) if element // 32 % 2 else (own,)

    def expression(self, element: int) -> Expression:
        """Return the code without what may have leaked."""
        if element // 32 % 2 == 0:
            return super().expression(element)
        note = "bit 0 is cleared where bit 4 of the other code in the byte is 1"
        return Let("q", Q % 32 - (Q % 2) * (Q >> 5), note)


def rotary(layout: Layout, heads: int) -> Iterator[Reading]:
    """Yield the reading of q or k with rows in Hugging Face's order; llama.cpp interleaves half heads."""
    if len(layout.shape) != 2 or layout.shape[0] % (2 * heads):
        return
    size = layout.shape[0] // heads

    def stored(row: int) -> int:
        head, inside = divmod(row, size)
        half, at = divmod(inside, size // 2)
        return head * size + 2 * at + half

    def index(there: Sequence[int]) -> tuple[int, ...]:
        return (stored(there[0]), *there[1:])

    def take(rows: Rows = None) -> Tensor:
        """Return the values of some rows there; all rows of their heads are read."""
        first, last = (0, layout.shape[0]) if rows is None else (rows.start, rows.stop)
        start, stop = first // size * size, -(-last // size) * size
        return layout.values(slice(start, stop))[[stored(row) - start for row in range(first, last)]]

    other = Rearranged(layout, layout.shape, index, take)
    yield Reading(
        "rows_permuted", "rows in Hugging Face's order",
        "readers of Hugging Face's original: llama.cpp's converter permutes the rows of q and k", other,
        lambda here, there: f"Row {here.index[0]} of the original is row {stored(here.index[0])} here.",
    )  # fmt: skip
