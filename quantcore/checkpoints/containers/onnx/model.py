"""The graph of an ONNX model: its stored tensors, and the nodes that use them, those of subgraphs included.

Source: onnx 1.23, onnx.proto (ModelProto.opset_import 8, graph 7; GraphProto.node 1, initializer 5; NodeProto;
AttributeProto).
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from quantcore.checkpoints.containers.container import Container
from quantcore.checkpoints.containers.onnx.protobuf import Message, Span, signed
from quantcore.checkpoints.containers.onnx.tensors import Initializer, OnnxType
from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.files.address import Folder
from quantcore.checkpoints.problem import named
from quantcore.errors import QuantError
from quantcore.wording import short

MOST_NESTED = 32  # subgraphs within one another
DOMAINS = {"ai.onnx": ""}  # the other name of the default domain
NO_WEIGHTS = (7, 9)  # int64 and bool: Constant nodes of these types are shapes, axes and conditions


@dataclass(frozen=True)
class Node:
    """An operator with its inputs and outputs, each by a name that is unique in the model; "" is one that is left out.

    ``domain``: "" for ONNX's own operators; ``numbers``: its attributes that are one number, by name.
    """

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    numbers: Mapping[str, float]

    def integer(self, name: str, default: int) -> int:
        """Return an attribute, or what it is by default, also where the file has no integer."""
        found = self.numbers.get(name, default)
        return found if isinstance(found, int) else default

    def input(self, place: int) -> str:
        """Return the name of an input; "" if it is left out."""
        return self.inputs[place] if place < len(self.inputs) else ""


@dataclass(frozen=True)
class OnnxGraph:
    """The types and shapes of stored tensors by name, all nodes, and the version of each domain's operators."""

    types: dict[str, tuple[OnnxType, tuple[int, ...]]]
    nodes: tuple[Node, ...]
    opsets: Mapping[str, int]


def open_onnx(folder: Folder, name: str) -> Container:
    """Read a model's graph without its tensors' bytes.

    Raises:
        QuantError: it is not a model, or a tensor lies outside the folder or its file.
    """
    message = Message(folder.open(name))
    model = _Model(message, folder)
    for number, value in message.fields():
        if number == 7 and isinstance(value, tuple):
            model.add(value)
        elif number == 8 and isinstance(value, tuple):
            model.add_opset(value)
    if not model.tensors:
        raise QuantError(f"{named(name)} stores no tensors; give a model with weights.")
    return Container(model.tensors, structure=OnnxGraph(model.types, tuple(model.nodes), model.opsets))


@dataclass
class _Attributes:
    """What the attributes of a node hold: numbers and subgraphs by name, and the tensor of a Constant."""

    numbers: dict[str, float] = field(default_factory=dict)
    graphs: list[tuple[str, Span]] = field(default_factory=list)
    tensor: Span | None = None


class _Model:
    """The stored tensors and nodes of a model, collected graph by graph."""

    def __init__(self, message: Message, folder: Folder) -> None:
        self._message, self._folder = message, folder
        self.tensors: dict[str, StoredTensor] = {}
        self.types: dict[str, tuple[OnnxType, tuple[int, ...]]] = {}
        self.nodes: list[Node] = []
        self.opsets: dict[str, int] = {}
        self._taken: dict[str, int] = {}  # name -> how often it was asked for

    def add_opset(self, span: Span) -> None:
        """Read an OperatorSetIdProto."""
        fields = dict(self._message.fields(span))
        domain, version = fields.get(1), fields.get(2, 0)
        text = self._message.text(domain) if isinstance(domain, tuple) else ""
        if isinstance(version, int):
            self.opsets[DOMAINS.get(text, text)] = version

    def add(self, span: Span, path: str = "", outer: Mapping[str, str] | None = None, depth: int = 0) -> None:
        """Read a GraphProto.

        Args:
            path: of the subgraph, which goes before names that occur elsewhere in the model.
            outer: the unique names of what the graphs around it define.

        Raises:
            QuantError: two stored tensors of one graph have the same name, or too many graphs lie within one another.
        """
        if depth > MOST_NESTED:
            raise QuantError(f"{named(self._message.source.name)} nests more than {MOST_NESTED} graphs; give a smaller model.")
        nodes, own = [], dict(outer or {})
        stored: set[str] = set()
        for number, value in self._message.fields(span):
            if number == 5 and isinstance(value, tuple):
                found = Initializer(self._message, value)
                if found.name in stored:
                    raise QuantError(
                        f"{named(self._message.source.name)} has two initializers named {short(found.name, 80)}; rename one."
                    )
                stored.add(found.name)
                self._store(found, path, own)
            elif number == 1 and isinstance(value, tuple):
                nodes.append(value)  # they may stand before the initializers that they use
        for node in nodes:
            self._add_node(node, path, own, depth)

    def _unique(self, name: str, path: str, own: dict[str, str]) -> str:
        """Return the model's name for what a graph defines, and note it there."""
        unique = wanted = f"{path}{name}" if path and name in self._taken else name
        while unique in self._taken:
            self._taken[wanted] += 1
            unique = f"{wanted} ({self._taken[wanted]})"
        self._taken[unique] = 1
        own[name] = unique
        return unique

    def _store(self, found: Initializer, path: str, own: dict[str, str]) -> None:
        piece, kind, shape = found.stored(self._folder)
        name = self._unique(found.name, path, own)
        self.tensors[name], self.types[name] = replace(piece, name=name), (kind, shape)

    def _add_node(self, span: Span, path: str, own: dict[str, str], depth: int) -> None:
        inputs: list[str] = []
        outputs: list[str] = []
        texts, attributes = {3: "", 4: "", 7: ""}, _Attributes()
        for number, value in self._message.fields(span):
            if not isinstance(value, tuple):
                continue
            if number == 5:
                self._read_attribute(value, attributes)
            elif number in (1, 2):
                (inputs if number == 1 else outputs).append(self._message.text(value))
            elif number in texts:
                texts[number] = self._message.text(value)
        name, op, domain = texts[3], texts[4], DOMAINS.get(texts[7], texts[7])
        if op == "Constant" and attributes.tensor is not None and outputs:
            found = Initializer(self._message, attributes.tensor, outputs[0])
            if found.type in NO_WEIGHTS:
                self._unique(outputs[0], path, own)
            else:
                self._store(found, path, own)
            return
        for branch, graph in attributes.graphs:
            self.add(graph, f"{path}{name or op}.{branch}/", own, depth + 1)
        # what no graph around it defines is an input of the model, or of the subgraph
        given = tuple(own.get(name, f"{path}{name}" if name else "") for name in inputs)
        made = tuple(self._unique(name, path, own) if name else "" for name in outputs)
        self.nodes.append(Node(op, domain, name, given, made, attributes.numbers))

    def _read_attribute(self, span: Span, into: _Attributes) -> None:
        name, found = "", dict[int, int | Span]()
        for number, value in self._message.fields(span):
            if number == 1 and isinstance(value, tuple):
                name = self._message.text(value)
            elif number in (2, 3, 5, 6):
                found[number] = value
        for number, value in found.items():
            if number == 3 and isinstance(value, int):
                into.numbers[name] = signed(value)
            elif number == 2 and isinstance(value, tuple) and value[1] - value[0] == 4:
                (into.numbers[name],) = struct.unpack("<f", self._message.source.read(value[0], 4))
            elif number == 5 and isinstance(value, tuple) and name == "value":
                into.tensor = value
            elif number == 6 and isinstance(value, tuple):
                into.graphs.append((name, value))


def producers(nodes: tuple[Node, ...]) -> dict[str, Node]:
    """Return the node that makes each value."""
    return {name: node for node in nodes for name in node.outputs if name}


def consumers(nodes: tuple[Node, ...]) -> dict[str, list[Node]]:
    """Return the nodes that use each value."""
    found: dict[str, list[Node]] = {}
    for node in nodes:
        for name in node.inputs:
            found.setdefault(name, []).append(node)
    return found


