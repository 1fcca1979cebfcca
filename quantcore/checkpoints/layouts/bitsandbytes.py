"""bitsandbytes: nf4 and fp4, with a table of values and blocks of the flat weight, and LLM.int8().

4 bits: ``weight`` uint8 [n/2, 1] (or the same bytes as another dtype), the even element in the high bits;
``weight.absmax`` float32, one per block, of which the last may be shorter; ``weight.quant_map`` float32 [16],
the table; ``weight.quant_state.bitsandbytes__nf4`` JSON: shape, dtype, blocksize. w = table[code] * absmax,
in float32, then cast. If nested, absmax is uint8, itself quantized: absmax = nested_quant_map[code] *
nested_absmax[i // 256] + nested_offset.

8 bits: ``weight`` int8 [out, in], ``SCB`` float32 [out], max|x| of each row. w = (code * SCB) *
float32(1/127), in this order. ``weight_format`` uint8: 0 is row-major; the formats for tensor cores (col32,
col_turing, col_ampere), which only releases before 0.43 have, permute the codes.

Source: bitsandbytes 95f9af30, bitsandbytes/functional.py (QuantState) and backends/default/ops.py.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import torch

from quantcore.checkpoints.containers.stored import Pieces, StoredTensor
from quantcore.checkpoints.protocol.config import LENGTHS, Config, integer
from quantcore.checkpoints.protocol.fields import Field, Numbers
from quantcore.checkpoints.protocol.kinds import HIGH_FIRST, Packed, Repeated, Reshaped, Selected, viewed
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.reading import Reading, nibbles
from quantcore.checkpoints.protocol.record import CODES, SCALE, words
from quantcore.checkpoints.protocol.release import DTYPES, Deferred, Release, attempt
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError
from quantcore.expressions import Let, Name
from quantcore.formats import CODEBOOKS, INT8, CodebookFormat, Format
from quantcore.granularity import PerChannel, PerFlatGroup, Shape
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
    """Yield the weights that have a quant_state, and those that have their scales in ``SCB``."""
    for name in release.stored:
        match = STATE.fullmatch(name)
        if match:
            pieces = {"quant_state": release.stored[name]}
            for last in ("", "absmax", TABLE, *NESTED):
                piece = release.stored.get(f"{match[1]}.{last}" if last else match[1])
                if piece is not None:
                    pieces[last or "weight"] = piece
            yield attempt(match[1], pieces, layout_of, match[1], match[2], pieces)
    for module, own in release.modules_with("weight", "SCB", keep=("weight", "SCB", "weight_format")):
        yield attempt(f"{module}.weight", own, layout_of_int8, module, own)


def layout_of(name: str, kind: str, pieces: Pieces) -> Layout:
    """Return the layout of one weight.

    Raises:
        QuantError: a stored tensor is missing, or of another dtype.
    """
    nested = "absmax" in pieces and not pieces["absmax"].is_floating
    missing = [last for last in ("weight", "absmax", TABLE, *(NESTED * nested)) if last not in pieces]
    if missing:
        raise QuantError(f"The {missing[0]} of {named(name)} is missing; download the release again.")
    if pieces[TABLE].shape != (16,) or not pieces[TABLE].is_floating:
        raise QuantError(f"{named(pieces[TABLE].name)} is not a table of 16 floats; the file is damaged.")
    make = partial(_described, name, kind, nested, pieces)
    return cast(Layout, Deferred(name, FORMAT, pieces, make))


def _described(name: str, kind: str, nested: bool, pieces: Pieces) -> Layout:
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
    size, offset = f"per_flat_group({state.blocksize})", float(torch.tensor(state.nested_offset))
    product = Name("nested_quant_map") * Name("nested_absmax")
    outer = Let("s", product + offset, "the scale is itself quantized; nested_offset is added")
    return Layout(
        name, state.shape, state.dtype, pieces, fields,
        FORMAT, words(FORMAT, kind, size, "nested" * nested), partial(_element, table, kind),
        PerFlatGroup(state.blocksize),
        is_symmetric=True, level=LEVEL, derived={SCALE: outer} if nested else {}, rivals=_rivals,
    )  # fmt: skip


def _element(table: Numbers, kind: str) -> Format | str:
    """Return the stored table as a format, the library's own one by its name; or why it is none."""
    stored, known = tuple(table.read().tolist()), TABLES[kind]
    try:
        return known if stored == known.values else CodebookFormat(stored, tie=known.tie)
    except QuantError as error:
        return str(error)


def _nested_fields(name: str, pieces: Pieces, codes: Numbers, state: State) -> dict[str, Field]:
    """Return what scales are computed from that are themselves quantized."""
    largest, table = Numbers(pieces["nested_absmax"]), Numbers(pieces["nested_quant_map"])
    size = state.nested_blocksize
    blocks = codes.shape[0]
    if not size or largest.shape != (-(-blocks // size),):
        raise QuantError(f"The nested_absmax of {named(name)} does not fit its quant_state.")
    if table.shape != (256,) or codes.piece.itemsize != 1:
        raise QuantError(f"{named(name)} has nested scales without a table of 256 numbers.")
    return {"nested_absmax": Repeated(largest, size, blocks), "nested_quant_map": Selected(table, codes)}


def _rivals(layout: Layout) -> Iterator[Reading]:
    """Yield the other order of two codes in a byte."""
    reading = nibbles(layout, "lower")
    fields = reading.layout.fields
    table = Selected(Numbers(layout.pieces[TABLE]), fields[CODES])
    yield replace(reading, layout=layout.changed(fields={**fields, TABLE: table}))


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


def _state(found: Config, name: str) -> State:
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


def layout_of_int8(module: str, pieces: Pieces) -> Layout:
    """Return the layout of one module.

    Raises:
        QuantError: the stored tensors don't fit each other.
    """
    weight, scales = pieces["weight"], pieces["SCB"]
    if weight.dtype != "I8" or len(weight.shape) != 2 or scales.shape != weight.shape[:1]:
        raise QuantError(
            f"{named(weight.name)} is {weight.dtype} of shape {weight.shape} with SCB of shape "
            f"{scales.shape}; "
            "bitsandbytes stores an int8 matrix and one number per row, so the file is damaged."
        )
    return Layout(
        f"{module}.weight", weight.shape, torch.float32, pieces,
        {CODES: Numbers(weight), SCALE: Numbers(scales)},
        "bitsandbytes-int8", words("bitsandbytes-int8", "int8", "per_channel(0)", "symmetric"),
        partial(_int8, module, pieces.get("weight_format")), PerChannel(0), decoding="of_largest",
    )  # fmt: skip


def _int8(module: str, order: StoredTensor | None) -> Format | str:
    """Return what a code is, or why codes in the order of tensor cores can't be read."""
    if order is None or not order.num_bytes or not any(order.bytes()):
        return INT8
    return (
        f"{named(f'{module}.weight')} is stored in the order of tensor cores (weight_format "
        f"{order.bytes()[0]}), which is not supported; save it again with bitsandbytes 0.43 or later."
    )
