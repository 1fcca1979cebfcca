"""Which stored tensors of an ONNX graph are quantized weights: how its nodes use them.

A weight belongs to a node that multiplies by it (QLinearConv, QLinearMatMul, QGemm, MatMulNBits, …) or that dequantizes
it (DequantizeLinear); nodes between that only move elements don't matter where all share a scale. For MatMulInteger
and ConvInteger, which return integers, the scale is the factor that the graph multiplies by afterwards, as onnxruntime's
quantize_dynamic writes it.

Sources: onnx 1.23, operators; onnxruntime 1.31, ContribOperators and its quantization tools.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from quantcore.checkpoints.containers.onnx import Node, OnnxGraph, consumers, producers

MICROSOFT = "com.microsoft"
# the newest operators that were read here
NEWEST = {"": 28, MICROSOFT: 1}


@dataclass(frozen=True)
class Use:
    """A stored tensor that a node uses as codes, with the names of its scale and its zero point.

    ``zero_point``: "" if it is left out; it and the scale may be computed in the graph, and are then no stored tensors.
    ``axis``: along which scales differ if there are several; None: see `onnx`. ``input_scale``: of a bias, whose scale
    is the product of both; else "". ``group_index``: of the columns, else "".
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
        """Whether all elements share a stored scale."""
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


Graph = tuple[Mapping[str, Node], Mapping[str, list[Node]]]  # what makes each value, and what uses it
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
# nodes that return integers: the places of weight and zero point, and the axis
INTEGER = {"MatMulInteger": (1, 3, -1), "ConvInteger": (1, 3, 0)}
# nodes whose bias has the scale of the products, those of inputs 1 and 4: the place of the bias
BIASES = {("", "QLinearConv"): 8, (MICROSOFT, "QLinearConv"): 8, (MICROSOFT, "QGemm"): 6}
# nodes that only move the elements of their first input
MOVES = frozenset({"Gather", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Slice"})
MOST_MOVES = 32  # one after another
BLOCKED = frozenset({"MatMulNBits", "MatMulBnb4", "GatherBlockQuantized"})  # of Microsoft's domain; see `onnx_blocks`


def uses(graph: OnnxGraph) -> Iterator[Use]:
    """Yield each use of a stored tensor as codes, in the order of the nodes."""
    edges = producers(graph.nodes), consumers(graph.nodes)
    for node in graph.nodes:
        for use in _of_node(node, graph, edges):
            if use.weight not in graph.types and use.has_one_scale(graph):  # moved elements have other axes
                use = replace(use, weight=_moved(use.weight, edges[0]))
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
    """Return the stored factor that the integers of a node are multiplied by, after a cast; "" if there is none."""
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


