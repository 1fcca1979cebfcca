"""ONNX models: stored tensors that nodes use as codes, with their scales and zero points.

A weight belongs to a node that multiplies by it (QLinearConv, QLinearMatMul, QGemm, MatMulNBits, …) or that
dequantizes it (DequantizeLinear); nodes between that only move elements don't matter where all share a scale.
For MatMulInteger and ConvInteger, which return integers, the scale is the factor that the graph multiplies by
afterwards, as onnxruntime's quantize_dynamic writes it.

DequantizeLinear: y = (x - zero_point) * scale, rounded once to the type of the scale. The scale is one
number, one per index of an axis, or, with ``block_size``, one per block along it. Codes of 4 and 2 bits are
packed over the flattened tensor, the lower bits first. Nodes that multiply by a quantized weight mean the
same numbers, those with blocks in bytes are `onnx_blocks`. Sources: onnx 1.23, operators DequantizeLinear-25
and others; onnxruntime 1.31, ContribOperators and its quantization tools.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

import torch

from quantcore.checkpoints.containers.onnx import Node, OnnxGraph, OnnxType
from quantcore.checkpoints.containers.stored import TORCH_DTYPES, Pieces, StoredTensor
from quantcore.checkpoints.layouts import onnx_blocks
from quantcore.checkpoints.layouts.onnx_blocks import codes_of
from quantcore.checkpoints.protocol.fields import Field, Numbers
from quantcore.checkpoints.protocol.kinds import Reshaped
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import CODES, SCALE, VALUE, ZERO_POINT, Q, S, Z, float_level, words
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError
from quantcore.expressions import Expression, Let, Name
from quantcore.formats import FloatFormat, parse_format
from quantcore.granularity import Blocks, Granularity, PerBlock, PerChannel, PerGroup, PerTensor, Shape
from quantcore.notation import write_call

MICROSOFT = "com.microsoft"
# the newest operators that were read here
NEWEST = {"": 28, MICROSOFT: 1}
Graph = tuple[Mapping[str, Node], Mapping[str, list[Node]]]  # what makes each value, and what uses it
# nodes that return integers: the places of weight and zero point, and the axis
INTEGER = {"MatMulInteger": (1, 3, -1), "ConvInteger": (1, 3, 0)}
# nodes whose bias has the scale of the products, those of inputs 1 and 4: the place of the bias
BIASES = {("", "QLinearConv"): 8, (MICROSOFT, "QLinearConv"): 8, (MICROSOFT, "QGemm"): 6}
# nodes that only move the elements of their first input
MOVES = frozenset({"Gather", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Slice"})
MOST_MOVES = 32  # one after another
# of Microsoft's domain; see `onnx_blocks`
BLOCKED = frozenset({"MatMulNBits", "MatMulBnb4", "GatherBlockQuantized"})
INPUT_SCALE, WEIGHT_SCALE = "input_scale", "weight_scale"  # roles: the factors of a bias' scale
DTYPES = {1: torch.float32, 10: torch.float16, 16: torch.bfloat16}  # of DequantizeLinear's output_dtype


@dataclass(frozen=True)
class Use:
    """A stored tensor that a node uses as codes, with the names of its scale and its zero point.

    ``zero_point``: "" if it is left out; it and the scale may be computed in the graph, and are then no
        stored tensors.
    ``axis``: along which scales differ if there are several; None: see `onnx`.
    ``input_scale``: of a bias, whose scale is the product of both; else "".
    ``group_index``: of the columns, else "".
    """

    node: Node
    weight: str
    scale: str
    zero_point: str
    axis: int | None = None
    input_scale: str = ""
    group_index: str = ""

    @property
    def names(self) -> dict[str, str]:
        """The names of its stored tensors, by what they are."""
        found = {
            "x": self.weight, "scale": self.scale, "zero_point": self.zero_point,
            "input_scale": self.input_scale, "g_idx": self.group_index,
        }  # fmt: skip
        return {key: name for key, name in found.items() if name}

    def has_one_scale(self, graph: OnnxGraph) -> bool:
        """Tell whether all elements share a stored scale."""
        return self.scale in graph.types and prod(graph.types[self.scale][1]) == 1

    def reading(self, graph: OnnxGraph) -> tuple[str, ...]:
        """Return what its values depend on: two uses with the same are one weight."""
        axis = "" if self.has_one_scale(graph) else f"{self.axis} {self.node.integer('block_size', 0)}"
        return self.scale, self.zero_point, self.input_scale, axis


@dataclass(frozen=True)
class Places:
    """Where among the inputs of a node a weight is, its scale and its zero point; ``axis``: see `Use`."""

    weight: int
    scale: int
    zero_point: int
    axis: int | None


# nodes with a scale: domain and op -> the places of their weights
SCALED: dict[tuple[str, str], tuple[Places, ...]] = {
    ("", "QLinearConv"): (Places(3, 4, 5, 0),),
    ("", "QLinearMatMul"): (Places(0, 1, 2, -2), Places(3, 4, 5, -1)),
    (MICROSOFT, "QLinearAdd"): (Places(0, 1, 2, -1), Places(3, 4, 5, -1)),
    (MICROSOFT, "QLinearMul"): (Places(0, 1, 2, -1), Places(3, 4, 5, -1)),
    (MICROSOFT, "QLinearConv"): (Places(3, 4, 5, 0),),
    (MICROSOFT, "QAttention"): (Places(1, 4, 7, 1),),
    (MICROSOFT, "MatMulIntegerToFloat"): (Places(1, 3, 5, -1),),
    (MICROSOFT, "DynamicQuantizeMatMul"): (Places(1, 2, 3, -1),),
    (MICROSOFT, "DynamicQuantizeLSTM"): (Places(1, 8, 9, None), Places(2, 10, 11, None)),
}


def uses(graph: OnnxGraph) -> Iterator[Use]:
    """Yield each use of a stored tensor as codes, in the order of the nodes."""
    made_by = {name: node for node in graph.nodes for name in node.outputs if name}
    used_by = defaultdict[str, list[Node]](list)
    for node in graph.nodes:
        for name in node.inputs:
            used_by[name].append(node)
    edges = made_by, used_by
    for node in graph.nodes:
        for use in _of_node(node, graph, edges):
            if use.weight not in graph.types and use.has_one_scale(graph):  # moved elements have other axes
                use = replace(use, weight=_moved(use.weight, made_by))
            if use.weight in graph.types and use.scale:
                yield use


def _of_node(node: Node, graph: OnnxGraph, edges: Graph) -> Iterator[Use]:
    kind = node.domain, node.op
    if node.op == "DequantizeLinear" and node.domain in NEWEST:
        yield Use(node, node.input(0), node.input(1), node.input(2), node.integer("axis", 1))
    elif kind == (MICROSOFT, "QGemm"):
        yield Use(node, node.input(3), node.input(4), node.input(5), 0 if node.integer("transB", 0) else 1)
    elif node.op in INTEGER and not node.domain:
        weight, zero_point, axis = INTEGER[node.op]
        yield Use(node, node.input(weight), _factor_after(node, graph, edges), node.input(zero_point), axis)
    elif node.op in BLOCKED and node.domain == MICROSOFT:
        first = 0 if node.op == "GatherBlockQuantized" else 1
        yield Use(node, node.input(first), node.input(2), node.input(3), group_index=node.input(4))
    else:
        for at in SCALED.get(kind, ()):
            yield Use(node, node.input(at.weight), node.input(at.scale), node.input(at.zero_point), at.axis)
    if kind in BIASES and node.numbers.get("alpha", 1) == 1:
        yield Use(node, node.input(BIASES[kind]), node.input(4), "", 0, node.input(1))


def _moved(name: str, made_by: Mapping[str, Node]) -> str:
    """Return what a value was before nodes that only moved its elements."""
    for _ in range(MOST_MOVES):
        before = made_by.get(name)
        if before is None or before.op not in MOVES or before.domain:
            break
        name = before.input(0)
    return name


def _factor_after(node: Node, graph: OnnxGraph, edges: Graph) -> str:
    """Return the stored factor by which a node's integers are multiplied after a cast; "" if none is."""
    made_by, used_by = edges

    def only(name: str, op: str) -> Node | None:
        return next((n for n in used_by.get(name, []) if n.op == op and not n.domain), None)

    cast = only(node.outputs[0], "Cast") if node.outputs else None
    product = only(cast.outputs[0], "Mul") if cast is not None and cast.outputs else None
    if cast is None or product is None:
        return ""
    (factor,) = [name for name in product.inputs if name != cast.outputs[0]][:1] or [""]
    scales = made_by.get(factor)
    if scales is None or scales.op != "Mul":
        return ""
    stored = [name for name in scales.inputs if name in graph.types]
    return stored[0] if len(stored) == 1 else ""


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights of ONNX models that nodes dequantize, and those with less than a byte per element."""
    for graph in release.structures:
        if isinstance(graph, OnnxGraph):
            yield from _weights(release, graph)


def _weights(release: Release, graph: OnnxGraph) -> Iterator[Layout]:
    readings: dict[str, set[tuple[str, ...]]] = {}
    parameters: set[str] = set()
    for use in uses(graph):
        known = readings.setdefault(use.weight, set())
        if use.reading(graph) in known:
            continue
        # a weight that nodes read in two ways is two weights
        node = use.node.name or ", ".join(use.node.outputs) or use.node.op
        name = f"{use.weight} in {node}" if known else use.weight
        known.add(use.reading(graph))
        parameters.add(use.zero_point)
        pieces = {key: release.stored[given] for key, given in use.names.items() if given in release.stored}
        yield attempt(name, pieces, _used, name, use, graph, pieces)
    for name, (kind, shape) in graph.types.items():
        if kind.bits < 8 and name not in readings and name not in parameters:
            pieces = {"x": release.stored[name]}
            yield attempt(name, pieces, _layout, name, shape, torch.float32, pieces, kind, PerTensor())


def _used(name: str, use: Use, graph: OnnxGraph, pieces: Pieces) -> Layout:
    (kind, shape), node = graph.types[use.weight], use.node
    _check(name, use, graph, pieces)
    if node.op in BLOCKED:
        return onnx_blocks.layout_of(name, node, kind, shape, pieces)
    dtype = DTYPES.get(node.integer("output_dtype", 0)) or TORCH_DTYPES[pieces["scale"].dtype]
    return _layout(name, shape, dtype, pieces, kind, _granularity(name, use, shape, pieces["scale"]))


def _check(name: str, use: Use, graph: OnnxGraph, pieces: Pieces) -> None:
    """Refuse a use that can't be read.

    Raises:
        QuantError: a parameter is missing or of another type, or the operator or its output is not known.
    """
    node, kind = use.node, graph.types[use.weight][0]
    version = graph.opsets.get(node.domain, 0)
    if version > NEWEST[node.domain]:
        raise QuantError(
            f"{named(name)} is used by {node.op} of opset {version}, newer than {NEWEST[node.domain]}, the "
            "last one that is known here; convert the model to an older opset."
        )
    for key, given in use.names.items():
        if given not in graph.types:
            raise QuantError(
                f"The {key.replace('_', ' ')} of {named(name)} is computed in the graph, or missing; the "
                "graph is not run here, so store the number in the model."
            )
    if kind.name.startswith(("float", "bf", "bool")) or not pieces["scale"].is_floating:
        raise QuantError(
            f"{named(name)} is {kind.name} with scales of {pieces['scale'].dtype}; "
            f"{node.op} takes codes and float scales."
        )
    other = graph.types[use.zero_point][0] if use.zero_point else kind
    if other != kind and node.op not in BLOCKED:
        raise QuantError(
            f"{named(name)} is {kind.name}, but its zero point is {other.name}; "
            f"{node.op} takes both of one type."
        )
    output = node.integer("output_dtype", 0)
    if output and output not in DTYPES:
        raise QuantError(
            f"{named(name)} is dequantized to data type {output}, not to float32, float16 or bfloat16."
        )


def _granularity(name: str, use: Use, shape: Shape, scale: StoredTensor) -> Granularity:
    size = use.node.integer("block_size", 0)
    if math.prod(scale.shape) == 1 and not (size and len(scale.shape) > 1):
        return PerTensor()
    if use.axis is None:  # an LSTM's: one scale for a direction, or for each of its outputs
        directions, columns = (*scale.shape, 1)[:2]
        if len(shape) != 3 or (directions, columns) != (shape[0], shape[-1] if columns > 1 else 1):
            raise QuantError(
                f"{named(scale.name)} has shape {scale.shape}, "
                f"which does not fit {named(name)} of shape {shape}."
            )
        return PerBlock((1, shape[1], 1 if columns > 1 else shape[2]))
    if not -len(shape) <= use.axis < len(shape) or size < 0:
        raise QuantError(
            f"{named(name)} is dequantized along axis {use.axis} with block_size {size}, which does not fit "
            f"its shape, {shape}."
        )
    axis = use.axis % len(shape)
    return PerGroup(size, axis) if size else PerChannel(axis)


def _layout(
    name: str,
    shape: Shape,
    dtype: torch.dtype,
    pieces: Pieces,
    kind: OnnxType,
    blocks: Granularity,
) -> Layout:
    """Return the layout of a stored tensor of codes; without a scale, the codes are its values.

    Raises:
        QuantError: it has no elements, or its parameters don't fit its shape.
    """
    if 0 in shape:
        raise QuantError(f"{named(name)} has shape {shape}, so it has no elements; remove it.")
    grid = Blocks.of(blocks, shape).grid
    fields: dict[str, Field] = {CODES: codes_of(pieces["x"], shape, kind)}
    derived: dict[str, Expression] = {}
    if "input_scale" in pieces:  # of a bias: its scale is that of the products
        fields[INPUT_SCALE], fields[WEIGHT_SCALE] = Numbers(pieces["input_scale"]), Numbers(pieces["scale"])
        derived[SCALE] = Let("s", Name(INPUT_SCALE) * Name(WEIGHT_SCALE))
    elif "scale" in pieces:
        fields[SCALE] = Reshaped(Numbers(pieces["scale"]), grid)
    if "zero_point" in pieces:
        one = math.prod(pieces["zero_point"].shape) == 1 and kind.bits >= 8
        fields[ZERO_POINT] = codes_of(pieces["zero_point"], (1,) * len(grid) if one else grid, kind)
    symmetry = "asymmetric" if ZERO_POINT in fields else "symmetric"
    of_blocks = write_call(blocks) if "scale" in pieces else ""
    said = symmetry if of_blocks and "int" in kind.name else ""
    none = f"{named(name)} is {kind.name}, so it has no codes; read its values."
    coded = none if kind.bits > 16 else parse_format(kind.name)
    if isinstance(coded, str):  # of a bias, such as int32
        level = Q - Z if ZERO_POINT in fields else Q
        own_value = Let(VALUE, level * S if of_blocks else level)
    else:
        own_value = None
    return Layout(
        name, shape, dtype, pieces, fields,
        "onnx", words("onnx", kind.name, of_blocks, said), coded, blocks,
        level=float_level(coded) if isinstance(coded, FloatFormat) else Q,
        derived=derived, own_value=own_value,
    )  # fmt: skip
