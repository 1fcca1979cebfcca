"""ONNX models: initializers that are inputs of DequantizeLinear, with their scales and zero points.

y = (x - zero_point) * scale, rounded once to the type of the scale. The scale is one number, one per index of an axis,
or, with ``block_size``, one per block along it. Codes of 4 and 2 bits are packed over the flattened tensor, the lower
bits first. Source: onnx 1.23, operators DequantizeLinear-25; onnxruntime 1.31.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch

from quantcore.checkpoints.containers.onnx import Dequantize, OnnxGraph, OnnxType
from quantcore.checkpoints.containers.stored import TORCH_DTYPES, StoredTensor
from quantcore.checkpoints.packing import dense
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.fields import Field, Numbers
from quantcore.checkpoints.protocol.layout import CODES, SCALE, ZERO_POINT, Layout, words
from quantcore.checkpoints.protocol.packed import Packed
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.protocol.views import Reshaped
from quantcore.errors import QuantError
from quantcore.formats import Format, parse_format
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
            yield attempt(
                name,
                pieces,
                partial(Initializer, name, shape, torch.float32, pieces, kind=kind, blocks_of=PerTensor()),
            )


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
    return Initializer(
        node.x,
        shape,
        dtype or TORCH_DTYPES[pieces["scale"].dtype],
        pieces,
        kind=kind,
        blocks_of=_granularity(node, shape, pieces["scale"]),
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


@dataclass(frozen=True, eq=False)
class Initializer(Layout):
    """An initializer of codes; without a scale, the codes are its values."""

    kind: OnnxType = field(kw_only=True)
    blocks_of: Granularity = field(kw_only=True)

    @property
    def storage(self) -> str:
        """``onnx int8 per_channel(0) symmetric``."""
        symmetry = "asymmetric" if ZERO_POINT in self.fields else "symmetric"
        blocks = write_call(self.blocks_of) if SCALE in self.fields else ""
        return words("onnx", self.kind.name, blocks, symmetry if blocks and "int" in self.kind.name else "")

    @property
    def element(self) -> Format:
        """The type of the initializer.

        Raises:
            QuantError: it has more than 16 bits.
        """
        return parse_format(self.kind.name)

    @property
    def granularity(self) -> Granularity:
        """What the shape of the scales and the node's attributes say."""
        return self.blocks_of

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """Codes, scales and zero points."""
        grid = Blocks.of(self.blocks_of, self.shape).grid
        found = {CODES: self._codes(self.pieces["x"], self.shape)}
        if "scale" in self.pieces:
            found[SCALE] = Reshaped(Numbers(self.pieces["scale"]), grid)
        if "zero_point" in self.pieces:
            found[ZERO_POINT] = self._codes(self.pieces["zero_point"], grid)
        return found

    def _codes(self, piece: StoredTensor, shape: Shape) -> Field:
        if self.kind.bits < 8:
            count = math.prod(shape)
            packed = Packed(
                piece, dense(self.kind.bits, 8), (count,), 0, signed=self.kind.name.startswith("int")
            )
            return Reshaped(packed, shape)
        return Reshaped(Numbers(piece, raw="int" not in self.kind.name), shape)
