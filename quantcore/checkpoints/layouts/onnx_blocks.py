"""ONNX weights in blocks of bytes: onnxruntime's MatMulNBits, MatMulBnb4 and GatherBlockQuantized.

MatMulNBits: ``B`` uint8 [N, blocks, bytes of a block], codes along K, the lower bits first, the last block
padded; ``scales`` one per block; ``zero_points`` as codes, each row in whole bytes, or as floats, and 2^(bits
- 1) if they are left out; ``g_idx`` the block of each column. GatherBlockQuantized: uint8 packed along the
last axis, or a type of 4 bits. w = (code - zero_point) * scale, rounded once to the type of the scales.
MatMulBnb4: ``B`` uint8, the weight [N, K] flattened, two codes per byte, the upper bits first; ``absmax`` one
per block; w = table[code] * absmax. Source: onnxruntime 1.31, ContribOperators, com.microsoft.
"""

import math

from quantcore.checkpoints.containers.onnx import Node, OnnxType
from quantcore.checkpoints.containers.stored import TORCH_DTYPES, Pieces, StoredTensor
from quantcore.checkpoints.layouts.bitsandbytes import TABLES
from quantcore.checkpoints.packing import dense
from quantcore.checkpoints.protocol.fields import Field, Numbers
from quantcore.checkpoints.protocol.kinds import HIGH_FIRST, Cut, Packed, Reshaped, viewed
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.reading import Reading, instead
from quantcore.checkpoints.protocol.record import CODES, GROUP_INDEX, MIN, SCALE, ZERO_POINT, Q, S, Z, words
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError
from quantcore.expressions import Expression, Let, Number, entry
from quantcore.formats import IntFormat
from quantcore.granularity import Blocks, PerFlatGroup, PerGroup, Shape
from quantcore.notation import write_call


def layout_of(name: str, node: Node, kind: OnnxType, shape: Shape, pieces: Pieces) -> Layout:
    """Return the layout of a weight.

    Args:
        kind, shape: of its stored tensor.

    Raises:
        QuantError: its attributes are not those of the operator, or its stored tensors don't fit them.
    """
    if node.op == "MatMulBnb4":
        return _of_table_of_16(name, node, pieces)
    bits = node.integer("bits", 4) if kind.bits == 8 else kind.bits
    size = node.integer("block_size", 128)
    if kind.name not in ("uint8", "int4", "uint4") or bits not in (2, 4, 8) or size < 1:
        raise QuantError(
            f"{named(name)} is {kind.name} with {bits} bits in blocks of {size}; "
            f"{node.op} has no reader here for them."
        )
    matrix = node.op == "MatMulNBits"
    if "g_idx" in pieces and bits != 4:
        raise QuantError(
            f"{named(name)} has {bits} bits and a group index (g_idx), which onnxruntime reads only with 4 "
            "bits; remove the input, or quantize again."
        )
    from_middle = not pieces.keys() & {"zero_point", "g_idx"}
    codes = _of_matrix(name, node, bits, size, pieces["x"], from_middle) if matrix else _of_table(
        name, node, kind, bits, shape, pieces["x"], from_middle
    )  # fmt: skip
    blocks = PerGroup(size, -1 if matrix else node.integer("quantize_axis", 1))
    grid = Blocks.of(blocks, codes.shape).grid
    fields: dict[str, Field] = {CODES: codes, SCALE: Reshaped(Numbers(pieces["scale"]), grid)}
    if "zero_point" in pieces:
        fields[ZERO_POINT] = _zero_points(pieces["zero_point"], grid, bits, kind)
    if "g_idx" in pieces:
        fields[GROUP_INDEX] = Numbers(pieces["g_idx"])
    coded = IntFormat(bits, signed=kind.name.startswith("int") or (kind.bits == 8 and from_middle))
    symmetry = "asymmetric" if ZERO_POINT in fields else "symmetric"
    layout = Layout(
        name, codes.shape, TORCH_DTYPES[pieces["scale"].dtype], pieces, fields,
        "onnx", words("onnx", coded, write_call(blocks), symmetry), coded, blocks,
    )  # fmt: skip
    zeros = pieces.get("zero_point")
    has_floats = zeros is not None and zeros.is_floating
    return _multiplied_first(layout) if "g_idx" in pieces or has_floats else layout


def _of_table_of_16(name: str, node: Node, pieces: Pieces) -> Layout:
    """Return the layout of a weight of MatMulBnb4."""
    rows, columns, size = (node.integer(key, 0) for key in ("N", "K", "block_size"))
    quantized = node.integer("quant_type", 1)
    if min(rows, columns, size) < 1 or quantized not in (0, 1):
        raise QuantError(
            f"{named(name)} is {rows} × {columns} in blocks of {size}, quant_type {quantized}, according to "
            f"{node.op}; "
            "save the model again."
        )
    coded, count = TABLES["nf4" if quantized else "fp4"], rows * columns
    codes = Packed(viewed(pieces["x"], "U8", (-(-count // 2),)), HIGH_FIRST, (count,), axis=0)
    fields: dict[str, Field] = {
        CODES: Reshaped(codes, (rows, columns)),
        SCALE: Reshaped(Numbers(pieces["scale"]), (-(-count // size),)),
    }  # fmt: skip
    return Layout(
        name, (rows, columns), TORCH_DTYPES[pieces["scale"].dtype], pieces, fields,
        "onnx", words("onnx", "nf4" if quantized else "fp4", f"per_flat_group({size})"), coded,
        PerFlatGroup(size),
        is_symmetric=True, level=Let("v", entry(coded.values)(Q)),
    )  # fmt: skip


def _multiplied_first(layout: Layout) -> Layout:
    """Return the layout as onnxruntime's CPU kernel computes it for zero points that are floats, or g_idx.

    It subtracts scale · zero point from scale · code.
    """
    of_codes = layout.without(ZERO_POINT) if ZERO_POINT in layout.fields else layout
    middle = Number(1 << (layout.element.bits - 1))
    ignored = of_codes.changed(derived={MIN: _min_of(middle)}, added=(MIN, -1))
    if ZERO_POINT not in layout.fields:
        return ignored.changed(is_symmetric=True)
    found = layout.changed(derived={MIN: _min_of(Z)}, added=(MIN, -1))
    if layout.fields[ZERO_POINT].kept_as != "bits":
        return found
    reading = Reading(
        "zero_points_ignored", "zero points ignored",
        "onnxruntime 1.31's CPU kernel, where there is a group index",
        ignored, instead("m", "Takes the middle of the codes as the zero point"),
    )  # fmt: skip
    return found.changed(rivals=lambda layout: iter((reading,)))


def _min_of(zero_point: Expression) -> Expression:
    return Let("m", S * zero_point)


def _codes_in_bytes(piece: StoredTensor, shape: Shape, bits: int, from_middle: bool = False) -> Packed:
    """Return codes whose rows are whole bytes; ``from_middle``: they count from their middle."""
    rows = math.prod(shape[:-1])
    stored = viewed(piece, "U8", (rows, -(-shape[-1] * bits // 8)))
    middle = 1 << (bits - 1) if from_middle else 0
    return Packed(stored, dense(bits, 8), (rows, shape[-1]), offset=middle, signed=from_middle)


def _of_matrix(name: str, node: Node, bits: int, size: int, piece: StoredTensor, from_middle: bool) -> Field:
    """Return the codes of MatMulNBits, [N, K]."""
    rows, columns = node.integer("N", 0), node.integer("K", 0)
    if min(rows, columns) < 1 or node.integer("weight_prepacked", 0):
        raise QuantError(
            f"{named(name)} is {rows} × {columns}, weight_prepacked {node.integer('weight_prepacked', 0)}, "
            f"according to {node.op}; only N × K that is not packed for one device can be read."
        )
    whole = -(-columns // size) * size
    codes = _codes_in_bytes(piece, (rows, whole), bits, from_middle)
    return codes if whole == columns else Cut(codes, (rows, columns))


def _of_table(
    name: str, node: Node, kind: OnnxType, bits: int, shape: Shape, piece: StoredTensor, from_middle: bool
) -> Field:
    """Return the codes of GatherBlockQuantized; uint8 holds several of them along the last axis."""
    if not shape or 0 in shape:
        raise QuantError(f"{named(name)} has shape {shape}; {node.op} takes a table of blocks.")
    if kind.bits < 8:
        return codes_of(piece, shape, kind)
    whole = (*shape[:-1], shape[-1] * 8 // bits)
    return Reshaped(_codes_in_bytes(piece, whole, bits, from_middle), whole)


def _zero_points(piece: StoredTensor, grid: Shape, bits: int, kind: OnnxType) -> Field:
    """Return zero points in block form: floats, codes of a type of 4 bits, or codes in bytes."""
    if piece.is_floating:
        return Reshaped(Numbers(piece), grid)
    if kind.bits < 8:
        return codes_of(piece, grid, kind)
    return Reshaped(_codes_in_bytes(piece, grid, bits), grid)


def codes_of(piece: StoredTensor, shape: Shape, kind: OnnxType) -> Field:
    """Return stored codes in a shape; those of less than a byte are packed over the flattened tensor."""
    if kind.bits < 8:
        signed = kind.name.startswith("int")
        packed = Packed(piece, dense(kind.bits, 8), (math.prod(shape),), 0, signed=signed)
        return Reshaped(packed, shape)
    return Reshaped(Numbers(piece, raw="int" not in kind.name), shape)
