"""Small floats with a small float as the scale of each block: MXFP8, MXFP6, MXFP4, NVFP4.

A weight [out, in] is stored as codes, two FP4 codes per byte (the lower bits first) or four FP6 codes in
three bytes; scales [out, in/size] as E8M0 or E4M3 bytes; NVFP4 has one more scale for the tensor, by which
the others are multiplied or divided. Sources: OCP Microscaling Formats (MX) 1.0, 5.2-5.4; NVIDIA,
"Introducing NVFP4", 2025.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import Pieces, StoredTensor
from quantcore.checkpoints.packing import dense
from quantcore.checkpoints.protocol.fields import Field, Numbers, Place, Rows
from quantcore.checkpoints.protocol.kinds import FieldView, Packed, viewed
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.reading import Reading, Rearranged, e8m0_255, instead, nibbles
from quantcore.checkpoints.protocol.record import CODES, SCALE, float_level, words
from quantcore.checkpoints.statement import Facts, Statement, named
from quantcore.errors import QuantError
from quantcore.expressions import Expression, Let, Name, text_of
from quantcore.formats import FLOATS, e8m0, small_float
from quantcore.granularity import PerGroup, Shape

SCALE_CODE, GLOBAL_SCALE = "scale_code", "global_scale"
ROWS, COLUMNS = 128, 4
TILE = ROWS * COLUMNS
_PARTS = 4, 32  # rows of a tile: four times 32


@dataclass(frozen=True)
class BlockFloats:
    """A weight in blocks of small floats, as a format describes it; `layout` makes its record.

    ``kind``: the start of `storage`, such as ``compressed-tensors nvfp4``;
    ``code``: "e2m1", "e2m3", "e3m2", "e4m3fn" or "e5m2";
    ``size``: elements per block.
    ``global_scale``: whether it multiplies or divides.
    ``e8m0_nan``: whether an E8M0 scale of 255 is NaN.
    ``transposes``: whether another reader returns stacks transposed.
    """

    kind: str
    code: str
    size: int
    global_scale: Literal["multiplies", "divides", ""] = ""
    e8m0_nan: bool = False
    transposes: str = ""

    def layout(self, name: str, dtype: torch.dtype, pieces: Pieces, in_tiles: bool = False) -> Layout:
        """Return the layout of a weight.

        Args:
            pieces: "codes", "scale_code" and optionally "global_scale", whatever their names in the file.
            in_tiles: whether scales are swizzled for tensor cores.

        Raises:
            QuantError: the scales don't fit the codes.
        """
        fmt, codes, stored = FLOATS[self.code], pieces[CODES], pieces[SCALE_CODE]
        if not codes.shape:
            raise QuantError(f"{named(codes.name)} is one number, not rows of blocks; the file is damaged.")
        shape = unpacked_shape(codes.shape, fmt.bits)
        grid = (*shape[:-1], -(-shape[-1] // self.size))
        scale: Field = swizzled(stored, grid) if in_tiles else Numbers(stored, raw=True)
        if scale.shape != grid:
            raise QuantError(
                f"{named(scale.piece.name)} has shape {scale.shape}, but a weight of shape {shape} in blocks "
                f"of {self.size} takes scales of shape {grid}; the file does not fit its config."
            )
        fields: dict[str, Field] = {
            CODES: Numbers(codes, raw=True) if fmt.bits == 8 else Packed(codes, dense(fmt.bits, 8), shape),
            SCALE_CODE: scale,
        }
        if self.global_scale:
            fields[GLOBAL_SCALE] = Numbers(pieces[GLOBAL_SCALE])
        kind = self.kind.partition(" ")[0]
        return Layout(
            name, shape, dtype, pieces, fields,
            kind, words(self.kind, self.code, f"per_group({self.size})"), fmt, PerGroup(self.size),
            is_symmetric=True, level=float_level(fmt), derived={SCALE: self._scale(pieces[SCALE_CODE])},
            divides_by=GLOBAL_SCALE * (self.global_scale == "divides"),
            checks=self._checks, rivals=self._rivals,
            narrowed=None if kind == "compressed-tensors" else torch.bfloat16,
        )  # fmt: skip

    def _is_e8m0(self, piece: StoredTensor) -> bool:
        return piece.dtype in ("U8", "F8_E8M0")

    def _scale(self, piece: StoredTensor) -> Expression:
        """Return the scale of a block, multiplied or divided by the tensor's if there is one."""
        decode = e8m0(self.e8m0_nan) if self._is_e8m0(piece) else small_float(FLOATS["e4m3fn"])
        block = Let("s_block" if self.global_scale else "s", decode(Name(SCALE_CODE)))
        if not self.global_scale:
            return block
        one = Name(GLOBAL_SCALE)
        return Let("s", block / one if self.global_scale == "divides" else block * one)

    def _with(self, layout: Layout, **changes: Any) -> Layout:
        """Return the layout with other uses of its scales."""
        other = replace(self, **changes)
        ignores = GLOBAL_SCALE in layout.fields and not other.global_scale
        found = layout.without(GLOBAL_SCALE) if ignores else layout
        return found.changed(derived={SCALE: other._scale(layout.fields[SCALE_CODE].piece)})

    def _checks(self, layout: Layout) -> Iterator[Statement]:
        """Yield what the sizes of its scales say."""
        if self.global_scale:
            yield from self._inverted(layout.fields[GLOBAL_SCALE])
        if self._is_e8m0(layout.fields[SCALE_CODE].piece):
            yield from e8m0_nan(layout.fields[SCALE_CODE])

    def _inverted(self, field: Field) -> Iterator[Statement]:
        """Tell whether a global scale was stored as its inverse."""
        value = float(field.read().reshape(-1)[0])
        facts: Facts = {"piece": field.piece.name.rpartition(".")[2], "value": value}
        multiplies = self.global_scale == "multiplies"
        if value > 1 if multiplies else 0 <= value < 1:
            right, side = ("max |w| / 2688", "above") if multiplies else ("2688 / max |w|", "below")
            other = "compressed-tensors" if multiplies else "ModelOpt"
            words = (
                f"{{has}} a {{piece}} of {{value}}, which {self.global_scale}; it should be {right}, so a "
                f"value {side} 1 looks like its inverse, which {other} stores."
            )
            yield Statement("global_scale", "error", words, facts)

    def _rivals(self, layout: Layout) -> Iterator[Reading]:
        """Yield the other readings."""
        if self.global_scale:
            yield Reading(
                "global_scale_left_out", "global scale left out",
                "transformers, for experts in NVFP4 (transformers#48371)",
                self._with(layout, global_scale=""),
                lambda here, there: f"Leaves out the global scale of {text_of(here.numbers['s_global'])}: "
                f"s = {text_of(there.numbers['s'])} instead of {text_of(here.numbers['s'])}.",
            )  # fmt: skip
            divides = self.global_scale == "divides"
            theirs: Literal["multiplies", "divides"] = "multiplies" if divides else "divides"
            yield Reading(
                "global_scale_inverse", "global scale inverted",
                "readers that follow "
                f"{'ModelOpt, which multiplies' if divides else 'compressed-tensors, which divides'}",
                self._with(layout, global_scale=theirs),
                instead("s", f"{theirs.capitalize()} by the global scale"),
            )  # fmt: skip
        if layout.element.bits == 4:
            yield nibbles(layout, "upper")
        if self._is_e8m0(layout.fields[SCALE_CODE].piece):
            yield e8m0_255(self._with(layout, e8m0_nan=not self.e8m0_nan), not self.e8m0_nan)
        if self.transposes and len(layout.shape) == 3:
            yield _transposed(layout, self.transposes)


def e8m0_nan(scales: Field) -> Iterator[Statement]:
    """Yield a statement on E8M0 scales of 255, which are NaN in OCP's standard and 2^128 for some readers."""
    found = scales.read() == 255
    if bool(found.any()):
        words = (
            "{has} {scales:E8M0 scale} of 255, first at {first}: NaN in the OCP standard, 2^128 for readers "
            "that only shift the bits."
        )
        first = tuple(found.nonzero()[0].tolist())
        yield Statement("e8m0_nan", "error", words, {"scales": int(found.sum()), "first": first})


def _transposed(layout: Layout, reader: str) -> Reading:
    """Return the reading of a stack as [experts, in, out]."""
    *lead, rows, columns = layout.shape

    def index(there: tuple[int, ...]) -> tuple[int, ...]:
        return (*there[:-2], there[-1], there[-2])

    def take(rows: Rows = None) -> Tensor:
        return layout.values(rows).mT.contiguous()

    other = Rearranged(layout, (*lead, columns, rows), index, take)
    return Reading(
        "transposed", "experts transposed", reader, other,
        lambda here, there:
        f"Returns the weight as {list(other.shape)}: the element at {list(here.index)} here is at "
        f"{list(index(here.index))} there.",
    )  # fmt: skip


def unpacked_shape(packed: Shape, bits: int) -> Shape:
    """Return the shape of codes that fill bytes of shape ``packed``."""
    return (*packed[:-1], packed[-1] * 8 // bits)


@dataclass(frozen=True)
class Swizzled(FieldView):
    """Numbers [rows, columns] in tiles; ``field`` has a row of numbers for each row of tiles."""

    shape: Shape

    def read(self, rows: Rows = None) -> Tensor:
        """Return the numbers, or those of some rows; only their tiles are read."""
        first, last = (0, self.shape[0]) if rows is None else (rows.start, rows.stop)
        start = first // ROWS
        found = _untiled(self.field.read(slice(start, max(start, -(-last // ROWS)))))
        return found[first - start * ROWS : last - start * ROWS, : self.shape[1]].contiguous()

    def stored(self) -> Tensor:
        """Return the numbers in their own order."""
        return self.read()

    def place(self, index: Sequence[int]) -> Place:
        """Return where one number lies."""
        row, column = index
        part, line = divmod(row % ROWS, _PARTS[1])
        inside = line * _PARTS[0] * COLUMNS + part * COLUMNS + column % COLUMNS
        return self.field.place((row // ROWS, column // COLUMNS * TILE + inside))

    def encode(self, numbers: Tensor) -> bytes:
        """Return the bytes of the stored tensor; the padding stays as it is."""
        whole = _untiled(self.field.read())
        whole[: self.shape[0], : self.shape[1]] = numbers.reshape(self.shape)
        tiles = whole.view(-1, *_PARTS, whole.shape[1] // COLUMNS, COLUMNS)
        return self.field.encode(tiles.permute(0, 3, 2, 1, 4).reshape(self.field.shape))


def _untiled(tiled: Tensor) -> Tensor:
    """Return rows of tiles, [rows of tiles, numbers], as rows of numbers."""
    tiles = tiled.view(len(tiled), -1, _PARTS[1], _PARTS[0], COLUMNS)
    return tiles.permute(0, 3, 2, 1, 4).reshape(len(tiled) * ROWS, -1)


def padded(shape: Shape) -> Shape:
    """Return the rows and columns of whole tiles."""
    return -(-shape[0] // ROWS) * ROWS, -(-shape[1] // COLUMNS) * COLUMNS


def swizzled(piece: StoredTensor, shape: Shape) -> Swizzled:
    """Return the raw scales of ``shape`` from a stored tensor in tiles.

    Raises:
        QuantError: it does not hold the whole tiles that they take.
    """
    if len(shape) != 2 or math.prod(piece.shape) != math.prod(padded(shape)):
        raise QuantError(
            f"{named(piece.name)} has shape {piece.shape}, but scales of shape {shape} that are swizzled for "
            f"tensor cores take whole tiles of {ROWS} × {COLUMNS}; the file does not fit its config."
        )
    rows, columns = padded(shape)
    return Swizzled(Numbers(viewed(piece, piece.dtype, (rows // ROWS, columns * ROWS)), raw=True), shape)
