"""bitsandbytes in 4 bits, nf4 and fp4: codes are indices into a table, blocks run over the flat weight.

``weight`` uint8 [n/2, 1] (or the same bytes as another dtype), the even element in the high bits; ``weight.absmax``
float32, one per block, of which the last may be shorter; ``weight.quant_map`` float32 [16], the table;
``weight.quant_state.bitsandbytes__nf4`` JSON: shape, dtype, blocksize. w = table[code] * absmax, in float32, then cast.

If nested, absmax is uint8, itself quantized: absmax = nested_quant_map[code] * nested_absmax[i // 256] +
nested_offset.

Source: bitsandbytes 95f9af30, bitsandbytes/functional.py (QuantState) and backends/default/ops.py.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.packing import dense, fits_pairs, high_first, look_up_pairs, pairs_of
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.config import LENGTHS, integer
from quantcore.checkpoints.protocol.fields import Field, Numbers, Place, Rows
from quantcore.checkpoints.protocol.layout import CODES, SCALE, Layout, words
from quantcore.checkpoints.protocol.packed import Packed
from quantcore.checkpoints.protocol.release import DTYPES, Release, attempt
from quantcore.checkpoints.protocol.spreading import Spreading
from quantcore.checkpoints.protocol.views import Reshaped, viewed
from quantcore.errors import QuantError
from quantcore.formats import CODEBOOKS, CodebookFormat, Format
from quantcore.granularity import Granularity, PerFlatGroup, Shape
from quantcore.numerics import round_to
from quantcore.tensors import load_json

MAX_STATE = 64 * 2**10  # bytes; it takes 80 to 200
STATE = re.compile(r"(.+)\.quant_state\.bitsandbytes__(nf4|fp4)")
TABLES = {"nf4": CODEBOOKS["nf4"], "fp4": CODEBOOKS["fp4_bitsandbytes"]}
NESTED = ("nested_absmax", "nested_quant_map")
SCALE_CODE, TABLE = "scale_code", "quant_map"


@dataclass(frozen=True)
class State:
    """What the JSON stored with a weight says; ``nested_blocksize``: None if its scales are floats."""

    shape: Shape
    dtype: torch.dtype
    blocksize: int
    nested_blocksize: int | None
    nested_offset: float


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights that have a quant_state."""
    for name in release.stored:
        match = STATE.fullmatch(name)
        if match:
            pieces = {"quant_state": release.stored[name]}
            for last in ("", "absmax", TABLE, *NESTED):
                piece = release.stored.get(f"{match[1]}.{last}" if last else match[1])
                if piece is not None:
                    pieces[last or "weight"] = piece
            yield attempt(match[1], pieces, partial(layout_of, match[1], match[2], pieces))


def layout_of(name: str, kind: str, pieces: Mapping[str, StoredTensor]) -> "FourBits":
    """Return the layout of one weight.

    Raises:
        QuantError: a stored tensor is missing, or of another dtype.
    """
    nested = "absmax" in pieces and not pieces["absmax"].is_floating
    missing = [last for last in ("weight", "absmax", TABLE, *(NESTED * nested)) if last not in pieces]
    if missing:
        raise QuantError(f"The {missing[0]} of {named(name)} is missing; download the release again.")
    if pieces[TABLE].shape != (16,) or not pieces[TABLE].is_floating:
        raise QuantError(
            f"{named(pieces[TABLE].name)} is not a table of 16 floats; the file is damaged."
        )
    state = _Reader(pieces["quant_state"])
    return FourBits(name, state.shape, state.dtype, pieces, kind=kind, nested=nested, state_of=state)


@dataclass(frozen=True)
class _Reader:
    """Reads the state on first access."""

    piece: StoredTensor

    @cached_property
    def state(self) -> State:
        if self.piece.num_bytes > MAX_STATE:
            raise QuantError(
                f"{named(self.piece.name)} is too long for a quant_state; the file is damaged."
            )
        try:
            found = load_json(bytes(self.piece.bytes()).decode("utf-8"), self.piece.name)
        except UnicodeDecodeError:
            found = None
        if not isinstance(found, dict):
            raise QuantError(f"{named(self.piece.name)} is not a JSON object; the file is damaged.")
        return _state(found, self.piece.name)

    def shape(self) -> Shape:
        return self.state.shape

    def dtype(self) -> torch.dtype:
        return self.state.dtype


def _state(found: Mapping[str, Any], name: str) -> State:
    shape, offset = found.get("shape"), found.get("nested_offset")
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < 2**48 for n in shape) or not shape:
        raise QuantError(f"{named(name)} gives no shape of the weight; the file is damaged.")
    dtype, blocksize = DTYPES.get(str(found.get("dtype"))), integer(found, "blocksize", LENGTHS)
    if dtype is None or blocksize is None:
        raise QuantError(f"{named(name)} gives no blocksize or no float dtype; the file is damaged.")
    if offset is not None and not (isinstance(offset, int | float) and math.isfinite(offset)):
        raise QuantError(
            f"{named(name)} has a nested_offset that is not a finite number; the file is damaged."
        )
    nested = integer(found, "nested_blocksize", LENGTHS)
    return State(tuple(shape), dtype, blocksize, nested, float(offset or 0.0))


@dataclass(frozen=True, eq=False)
class FourBits(Layout):
    """A weight in 4 bits.

    ``kind``: "nf4" or "fp4"; ``nested``: whether its scales are quantized; ``low_first``: whether the
    even-indexed code of two is in the lower bits of their byte.
    """

    kind: str = field(kw_only=True)
    nested: bool = field(kw_only=True)
    state_of: _Reader = field(kw_only=True)
    format: ClassVar[str] = "bitsandbytes-4bit"
    low_first: ClassVar[bool] = False

    @property
    def storage(self) -> str:
        """``bitsandbytes-4bit nf4 per_flat_group(64) nested``."""
        size = f"per_flat_group({self.state_of.state.blocksize})"
        return words(self.format, self.kind, size, "nested" * self.nested)

    @cached_property
    def element(self) -> Format:
        """The stored table as a format; the library's own one by its name."""
        stored = tuple(self.fields[TABLE].read().tolist())
        known = TABLES[self.kind]
        return known if stored == known.values else CodebookFormat(stored, tie=known.tie)

    @property
    def symmetric(self) -> bool:
        """There is no zero point."""
        return True

    @property
    def granularity(self) -> Granularity:
        """Runs of the flat weight."""
        return PerFlatGroup(self.state_of.state.blocksize)

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """Codes, scales or what they are computed from, and the table."""
        pieces, n = self.pieces, math.prod(self.shape)
        blocks = -(-n // self.state_of.state.blocksize)
        scale = Numbers(pieces["absmax"], raw=self.nested)
        if scale.shape != (blocks,):
            raise QuantError(
                f"{named(scale.piece.name)} has shape {scale.shape}, but {n:,} elements in blocks of "
                f"{self.state_of.state.blocksize} take {blocks} scales; the file is damaged."
            )
        order = dense(4, 8) if self.low_first else high_first(4, 8)
        found: dict[str, Field] = {
            CODES: Reshaped(Packed(self._bytes, order, (n,), axis=0, fill=self._zero), self.shape),
            SCALE_CODE if self.nested else SCALE: scale,
            TABLE: Numbers(pieces[TABLE]),
        }
        if self.nested:
            found |= self._nested_fields(blocks)
        return found

    @cached_property
    def _bytes(self) -> StoredTensor:
        weight = self.pieces["weight"]
        return viewed(weight, "U8", (weight.num_bytes,))

    @cached_property
    def _pairs(self) -> Tensor:
        return pairs_of(self.fields[TABLE].read(), self.low_first)

    @property
    def _zero(self) -> int:
        """The code of 0, with which the library pads an odd number of elements."""
        return TABLES[self.kind].values.index(0.0)

    def _nested_fields(self, blocks: int) -> dict[str, Field]:
        found = {last: Numbers(self.pieces[last]) for last in NESTED}
        size = self.state_of.state.nested_blocksize
        if not size or found["nested_absmax"].shape != (-(-blocks // size),):
            raise QuantError(f"The nested_absmax of {named(self.name)} does not fit its quant_state.")
        if found["nested_quant_map"].shape != (256,) or self.pieces["absmax"].itemsize != 1:
            raise QuantError(f"{named(self.name)} has nested scales without a table of 256 numbers.")
        return dict(found)

    def scale(self, rows: Rows = None) -> Tensor:
        """Return the scale of each block, float32."""
        if not self.nested:
            return self.fields[SCALE].read(rows)
        codes, state = self.fields[SCALE_CODE].read(rows), self.state_of.state
        largest, table = (self.fields[last].read() for last in NESTED)
        first, size = 0 if rows is None else rows.start, state.nested_blocksize or 1
        group, skip = divmod(first, size)
        outer = largest[group : -(-(first + len(codes)) // size)].repeat_interleave(size)[skip:]
        scale = table.index_select(0, codes.to(torch.int32)).mul_(outer[: len(codes)])
        return scale.add_(state.nested_offset)

    def values(self, rows: Rows = None, out: Tensor | None = None, rounded: bool = True) -> Tensor:
        """Return the values of some rows, float32."""
        first, last = (0, self.shape[0]) if rows is None else (rows.start, rows.stop)
        out = torch.empty((last - first, *self.shape[1:])) if out is None else out
        start = first * math.prod(self.shape[1:])
        if not fits_pairs(start, out):
            return super().values(rows, out, rounded)
        _ = self.fields
        packed = self._bytes.bits((slice(start // 2, (start + out.numel()) // 2),))
        flat = out.view(-1)
        look_up_pairs(torch.from_numpy(packed), self._pairs, flat)
        for part in Spreading(self.blocks, None, first, last).parts():
            flat[part.elements].view(-1, part.width).mul_(self.scale(part.grid).unsqueeze(1))
        return round_to(out, self.dtype) if rounded else out

    def place_of(self, role: str, field: Field, index: tuple[int, ...], position: tuple[int, ...]) -> Place:
        """Return the place of a scale, or of the table entry that a code selects."""
        if role == TABLE:
            code = self.codes(slice(index[0], index[0] + 1))[(0, *index[1:])]
            return field.place((int(code),))
        if role == "nested_absmax":
            return field.place((position[0] // (self.state_of.state.nested_blocksize or 1),))
        if role == "nested_quant_map":
            code = self.fields[SCALE_CODE].read(slice(position[0], position[0] + 1))[0]
            return field.place((int(code),))
        return super().place_of(role, field, index, position)
