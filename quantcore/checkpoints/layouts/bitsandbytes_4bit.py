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
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.config import LENGTHS, integer
from quantcore.checkpoints.protocol.fields import Field, Numbers
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.packed import Packed
from quantcore.checkpoints.protocol.pairs import HIGH_FIRST, LOW_FIRST
from quantcore.checkpoints.protocol.reading import Reading, nibbles
from quantcore.checkpoints.protocol.record import words
from quantcore.checkpoints.protocol.refused import Deferred
from quantcore.checkpoints.protocol.release import DTYPES, Release, attempt
from quantcore.checkpoints.protocol.value import CODES, SCALE
from quantcore.checkpoints.protocol.views import Repeated, Reshaped, Selected, viewed
from quantcore.errors import QuantError
from quantcore.expressions import Expression, Let, Name
from quantcore.formats import CODEBOOKS, CodebookFormat, Format
from quantcore.granularity import PerFlatGroup, Shape
from quantcore.tensors import load_json

MAX_STATE = 64 * 2**10  # bytes; it takes 80 to 200
STATE = re.compile(r"(.+)\.quant_state\.bitsandbytes__(nf4|fp4)")
TABLES = {"nf4": CODEBOOKS["nf4"], "fp4": CODEBOOKS["fp4_bitsandbytes"]}
NESTED = ("nested_absmax", "nested_quant_map")
SCALE_CODE, TABLE = "scale_code", "quant_map"
FORMAT, LEVEL = "bitsandbytes-4bit", Name(TABLE)


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


def layout_of(name: str, kind: str, pieces: Mapping[str, StoredTensor]) -> Layout:
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
    make = partial(_described, name, kind, nested, pieces)
    return cast(Layout, Deferred(name, FORMAT, pieces, make))


def _described(name: str, kind: str, nested: bool, pieces: Mapping[str, StoredTensor]) -> Layout:
    """Return the layout that the state stored with the weight describes; reads it, and the table."""
    state = _read_state(pieces["quant_state"])
    n, table = math.prod(state.shape), Numbers(pieces[TABLE])
    blocks, weight = -(-n // state.blocksize), pieces["weight"]
    scale = Numbers(pieces["absmax"], raw=nested)
    if scale.shape != (blocks,):
        raise QuantError(
            f"{named(scale.piece.name)} has shape {scale.shape}, but {n:,} elements in blocks of "
            f"{state.blocksize} take {blocks} scales; the file is damaged."
        )
    # the library pads an odd number of elements with the code of 0
    bytes_ = viewed(weight, "U8", (weight.num_bytes,))
    packed = Packed(bytes_, HIGH_FIRST, (n,), axis=0, fill=TABLES[kind].values.index(0.0))
    codes = Reshaped(packed, state.shape)
    fields: dict[str, Field] = {
        CODES: codes, SCALE_CODE if nested else SCALE: scale, TABLE: Selected(table, codes)
    }  # fmt: skip
    if nested:
        fields |= _nested_fields(name, pieces, scale, state)
    size = f"per_flat_group({state.blocksize})"
    return Layout(
        name, state.shape, state.dtype, pieces, fields,
        FORMAT, words(FORMAT, kind, size, "nested" * nested), partial(_element, table, kind), PerFlatGroup(state.blocksize),
        is_symmetric=True, level=LEVEL, derived={SCALE: _nested_scale(state)} if nested else {}, rivals=_rivals,
    )  # fmt: skip


def _element(table: Numbers, kind: str) -> Format | str:
    """Return the stored table as a format, the library's own one by its name; or why it is none."""
    stored, known = tuple(table.read().tolist()), TABLES[kind]
    try:
        return known if stored == known.values else CodebookFormat(stored, tie=known.tie)
    except QuantError as error:
        return str(error)


def _nested_fields(
    name: str, pieces: Mapping[str, StoredTensor], codes: Numbers, state: State
) -> dict[str, Field]:
    """Return what scales are computed from that are themselves quantized."""
    largest, table, size = Numbers(pieces["nested_absmax"]), Numbers(pieces["nested_quant_map"]), state.nested_blocksize
    blocks = codes.shape[0]
    if not size or largest.shape != (-(-blocks // size),):
        raise QuantError(f"The nested_absmax of {named(name)} does not fit its quant_state.")
    if table.shape != (256,) or codes.piece.itemsize != 1:
        raise QuantError(f"{named(name)} has nested scales without a table of 256 numbers.")
    return {"nested_absmax": Repeated(largest, size, blocks), "nested_quant_map": Selected(table, codes)}


def _nested_scale(state: State) -> Expression:
    offset = float(torch.tensor(state.nested_offset))
    found = Name("nested_quant_map") * Name("nested_absmax") + offset
    return Let("s", found, "the scale is itself quantized; nested_offset is added")


def _rivals(layout: Layout) -> Iterator[Reading]:
    """Yield the other order of two codes in a byte."""
    other = layout.with_field(CODES, order=LOW_FIRST)
    other = other.changed(fields={**other.fields, TABLE: Selected(Numbers(layout.pieces[TABLE]), other.fields[CODES])})
    yield nibbles(other, "lower", "readers that use the order of compressed-tensors, ModelOpt and MLX")


def _read_state(piece: StoredTensor) -> State:
    """Return the state that is stored as JSON.

    Raises:
        QuantError: it is not one.
    """
    if piece.num_bytes > MAX_STATE:
        raise QuantError(f"{named(piece.name)} is too long for a quant_state; the file is damaged.")
    try:
        found = load_json(bytes(piece.bytes()).decode("utf-8"), piece.name)
    except UnicodeDecodeError:
        found = None
    if not isinstance(found, dict):
        raise QuantError(f"{named(piece.name)} is not a JSON object; the file is damaged.")
    return _state(found, piece.name)


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


