"""ONNX models: initializers that are inputs of DequantizeLinear, with their scales and zero points.

y = (x - zero_point) * scale, rounded once to the type of the scale. The scale is one number, one per index of an axis,
or, with ``block_size``, one per block along it. Codes of 4 and 2 bits are packed over the flattened tensor, the lower
bits first. Source: onnx 1.23, operators DequantizeLinear-25; onnxruntime 1.31.
"""

import math
from collections.abc import Iterator, Mapping
from functools import partial

import torch

from quantcore.checkpoints.containers.onnx import Dequantize, OnnxGraph, OnnxType
from quantcore.checkpoints.containers.stored import TORCH_DTYPES, StoredTensor
from quantcore.checkpoints.packing import dense
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.fields import Field, Numbers
from quantcore.checkpoints.protocol.layout import Layout, words
from quantcore.checkpoints.protocol.packed import Packed
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.protocol.value import CODES, SCALE, ZERO_POINT, Q, float_level
from quantcore.checkpoints.protocol.views import Reshaped
from quantcore.errors import QuantError
from quantcore.formats import FloatFormat, Format, parse_format
from quantcore.granularity import Blocks, Granularity, PerChannel, PerGroup, PerTensor, Shape
from quantcore.notation import write_call


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights of ONNX models that are dequantized, and those with less than a byte per element."""
    for graph in release.structures:
        if isinstance(graph, OnnxGraph):
            yield from _weights(release, graph)


def _weights(release: Release, graph: OnnxGraph) -> Iterator[Layout]:
    done = set()
    for node in graph.nodes:
        if node.x in done or node.x not in release.stored:
            continue
        done.add(node.x)
        names = {"x": node.x, "scale": node.scale} | (
            {"zero_point": node.zero_point} if node.zero_point else {}
        )
        pieces = {key: release.stored[name] for key, name in names.items() if name in release.stored}
        yield attempt(node.x, pieces, partial(_dequantized, node, graph, pieces))
    for name, (kind, shape) in graph.types.items():
        if kind.bits < 8 and name not in done | {n.zero_point for n in graph.nodes}:
            pieces = {"x": release.stored[name]}
            make = partial(_layout, name, shape, torch.float32, pieces, kind, PerTensor())
            yield attempt(name, pieces, make)


def _dequantized(node: Dequantize, graph: OnnxGraph, pieces: Mapping[str, StoredTensor]) -> Layout:
    kind, shape = graph.types[node.x]
    if node.zero_point and "zero_point" not in pieces:
        raise QuantError(
            f"The zero point of {named(node.x)} is computed in the graph, which is not run here."
        )
    if kind.name.startswith(("float", "bf", "bool")) or not pieces["scale"].is_floating:
        raise QuantError(
            f"{named(node.x)} is {kind.name} with scales of {pieces['scale'].dtype}; DequantizeLinear takes codes "
            "and float scales."
        )
    if node.output and node.output not in (1, 10, 16):
        raise QuantError(
            f"{named(node.x)} is dequantized to data type {node.output}, not to float32, float16 or bfloat16."
        )
    dtype = {1: torch.float32, 10: torch.float16, 16: torch.bfloat16}.get(node.output)
    scale = pieces["scale"]
    return _layout(
        node.x, shape, dtype or TORCH_DTYPES[scale.dtype], pieces, kind, _granularity(node, shape, scale)
    )


def _granularity(node: Dequantize, shape: Shape, scale: StoredTensor) -> Granularity:
    if math.prod(scale.shape) == 1 and len(scale.shape) < 2:
        return PerTensor()
    if not -len(shape) <= node.axis < len(shape) or node.block_size < 0:
        raise QuantError(
            f"{named(node.x)} is dequantized along axis {node.axis} with block_size {node.block_size}, which does "
            f"not fit its shape, {shape}."
        )
    axis = node.axis % len(shape)
    return PerGroup(node.block_size, axis) if node.block_size else PerChannel(axis)


def _layout(
    name: str,
    shape: Shape,
    dtype: torch.dtype,
    pieces: Mapping[str, StoredTensor],
    kind: OnnxType,
    blocks: Granularity,
) -> Layout:
    """Return the layout of an initializer of codes; without a scale, the codes are its values."""
    grid = Blocks.of(blocks, shape).grid
    fields: dict[str, Field] = {CODES: _codes(pieces["x"], shape, kind)}
    if "scale" in pieces:
        fields[SCALE] = Reshaped(Numbers(pieces["scale"]), grid)
    if "zero_point" in pieces:
        fields[ZERO_POINT] = _codes(pieces["zero_point"], grid, kind)
    symmetry = "asymmetric" if ZERO_POINT in fields else "symmetric"
    of_blocks = write_call(blocks) if SCALE in fields else ""
    coded = _format(kind)
    return Layout(
        name, shape, dtype, pieces, fields,
        "onnx", words("onnx", kind.name, of_blocks, symmetry if of_blocks and "int" in kind.name else ""), coded, blocks,
        level=float_level(coded) if isinstance(coded, FloatFormat) else Q,
    )  # fmt: skip


def _format(kind: OnnxType) -> Format | str:
    """Return the type of the initializer, or why its numbers are no codes: they have more than 16 bits."""
    try:
        return parse_format(kind.name)
    except QuantError as error:
        return str(error)


def _codes(piece: StoredTensor, shape: Shape, kind: OnnxType) -> Field:
    if kind.bits < 8:
        packed = Packed(piece, dense(kind.bits, 8), (math.prod(shape),), 0, signed=kind.name.startswith("int"))
        return Reshaped(packed, shape)
    return Reshaped(Numbers(piece, raw="int" not in kind.name), shape)
