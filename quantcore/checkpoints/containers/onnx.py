"""The graph of an ONNX model: its stored tensors, and the nodes that use them, those of subgraphs included.

A tensor's bytes lie in the model's file or in others of its folder (external_data).

Source: onnx 1.23, onnx.proto (ModelProto.opset_import 8, graph 7; GraphProto.node 1, initializer 5;
NodeProto; AttributeProto; TensorProto).
"""

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from quantcore.checkpoints.containers.protobuf import PART, Message, Span, Wire, packed_integers
from quantcore.checkpoints.containers.stored import Container, StoredTensor
from quantcore.checkpoints.files.address import Folder
from quantcore.checkpoints.files.sources import ByteSource, DerivedSource
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError
from quantcore.wording import short

MAX_RANK = 16
# nodes and initializers of a model; a decoder of 80 layers has 10,000 nodes, one of 128 experts more
MAX_PARTS = 50_000
# fields of TensorProto that hold numbers: the dtype of fixed-size ones, "" for varints
DATA = {4: "<f4", 5: "", 7: "", 10: "<f8", 11: ""}
MOST_NESTED = 32  # subgraphs within one another
DOMAINS = {"ai.onnx": ""}  # the other name of the default domain
NO_WEIGHTS = (7, 9)  # int64 and bool: Constant nodes of these types are shapes, axes and conditions


@dataclass(frozen=True)
class OnnxType:
    """A tensor type: its name, the dtype of its bytes, and bits of one element."""

    name: str
    dtype: str
    bits: int


# TensorProto.DataType
TYPES = {
    1: OnnxType("float32", "F32", 32), 2: OnnxType("uint8", "U8", 8), 3: OnnxType("int8", "I8", 8),
    4: OnnxType("uint16", "U16", 16), 5: OnnxType("int16", "I16", 16), 6: OnnxType("int32", "I32", 32),
    7: OnnxType("int64", "I64", 64), 9: OnnxType("bool", "BOOL", 8), 10: OnnxType("float16", "F16", 16),
    11: OnnxType("float64", "F64", 64), 12: OnnxType("uint32", "U32", 32), 13: OnnxType("uint64", "U64", 64),
    16: OnnxType("bfloat16", "BF16", 16), 17: OnnxType("e4m3fn", "F8_E4M3", 8),
    18: OnnxType("e4m3fnuz", "F8_E4M3FNUZ", 8), 19: OnnxType("e5m2", "F8_E5M2", 8),
    20: OnnxType("e5m2fnuz", "F8_E5M2FNUZ", 8), 21: OnnxType("uint4", "U8", 4), 22: OnnxType("int4", "U8", 4),
    23: OnnxType("e2m1", "U8", 4), 24: OnnxType("e8m0", "F8_E8M0", 8), 25: OnnxType("uint2", "U8", 2),
    26: OnnxType("int2", "U8", 2),
}  # fmt: skip


class Initializer:
    """A TensorProto: an initializer, or the value of a Constant node, named after its output."""

    def __init__(self, message: Message, name: str = "") -> None:
        self._wire = message.wire
        self.shape, self.type, self.name = message.integers(1), message.integer(2), name or message.text(8)
        if len(self.shape) > MAX_RANK:
            raise QuantError(f"{named(self._wire.source.name)} has a tensor of more than {MAX_RANK} axes.")
        self.raw = message.spans(9)[-1:]
        self.numbers = [(number, value) for number in DATA for value in message.values[number]]
        pairs = (pair for pair in message.messages(13) if pair.spans(1) and pair.spans(2))
        self.external = {pair.text(1): pair.text(2) for pair in pairs}

    def stored(self, folder: Folder) -> tuple[StoredTensor, OnnxType, tuple[int, ...]]:
        """Return where its bytes lie, its type and its shape.

        Raises:
            QuantError: its type has no reader, or its bytes don't fit its shape.
        """
        quoted = short(self.name, 80)
        if self.type not in TYPES:
            raise QuantError(
                f"The initializer {quoted} has the data type {self.type}, which has no reader here."
            )
        kind, shape = TYPES[self.type], tuple(self.shape)
        elements = math.prod(n for n in shape if n)  # even if an axis of 0 leaves none
        if any(n < 0 for n in shape) or elements >= 2**48:
            raise QuantError(f"The initializer {quoted} claims an impossible shape; save the model again.")
        size = -(-math.prod(shape) * kind.bits // 8)
        source, offset, length = self._bytes(folder, kind, size)
        if length != size or offset + size > source.size:
            raise QuantError(
                f"The initializer {quoted} of shape {shape}, {kind.name}, takes {size:,} bytes, but has "
                f"{length:,}; "
                "save the model again."
            )
        # elements smaller than a byte are stored as bytes, whatever the shape
        stored_shape = shape if kind.bits >= 8 else (size,)
        return StoredTensor(self.name, kind.dtype, stored_shape, source, offset, size), kind, shape

    def _bytes(self, folder: Folder, kind: OnnxType, size: int) -> tuple[ByteSource, int, int]:
        """Return the source of its bytes, their offset and number."""
        source = self._wire.source
        if self.external:
            other = folder.open(self.external.get("location", ""))
            return other, self._integer("offset", 0), self._integer("length", size)
        if self.raw or not self.numbers:
            start, stop = self.raw[0] if self.raw else (0, 0)
            return source, start, stop - start
        room = sum(v[1] - v[0] if isinstance(v, tuple) else 10 for _, v in self.numbers)
        if size > 8 * room:  # each number takes at least one byte of the file
            raise QuantError(
                f"The initializer {short(self.name, 80)} has fewer numbers than its shape claims."
            )
        return FieldBytes(source, self.name, tuple(self.numbers), kind, size), 0, size

    def _integer(self, key: str, default: int) -> int:
        text = self.external.get(key, str(default))
        if not text.isascii() or not text.isdecimal() or len(text) > 18:
            raise QuantError(
                f"The initializer {short(self.name, 80)} has the {key} {short(text)}; "
                "write a number of bytes."
            )
        return int(text)


class FieldBytes(DerivedSource):
    """The numbers that a TensorProto holds in fields instead of raw bytes, as bytes of their type.

    Args:
        source: the model's file.
        tensor: the name of the tensor.
        numbers: each field's number with its value: an integer, or the (start, stop) of the field's bytes in
            the file.
        kind: the type of the numbers, which take ``size`` bytes.
    """

    def __init__(
        self,
        source: ByteSource,
        tensor: str,
        numbers: tuple[tuple[int, int | Span], ...],
        kind: OnnxType,
        size: int,
    ) -> None:
        super().__init__(f"{source.name}, {tensor} as bytes", size)
        self.source, self.tensor, self.numbers, self.kind = source, tensor, numbers, kind

    def _make(self) -> memoryview:
        is_float, width = self.kind.dtype in ("F32", "F64"), max(1, self.kind.bits // 8)
        array, filled = np.empty(self.size // width, f"<{'f' if is_float else 'u'}{width}"), 0
        for part in self._parts():
            place = array[filled : filled + len(part)]
            if len(place) < len(part):
                break
            if not is_float and part.dtype.kind == "f":
                part = part.astype(np.int64)
            # floats of 16 bits and less are written as their bits; negative integers as int64
            place[:] = part
            filled += len(part)
        else:
            if filled == len(array):
                return array.view(np.uint8).data
        raise QuantError(
            f"The initializer {short(self.tensor, 80)} does not have as many numbers as its shape claims."
        )

    def _parts(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the numbers in the order of the file, some at a time."""
        for is_span, values in groupby(self.numbers, lambda pair: isinstance(pair[1], tuple)):
            if not is_span:
                yield np.array([value for _, value in values], np.uint64)
                continue
            for number, span in values:
                start, stop = cast(Span, span)
                if DATA[number]:
                    dtype = np.dtype(DATA[number])
                    stop -= (stop - start) % dtype.itemsize
                    for at in range(start, stop, PART):
                        yield np.frombuffer(self.source.read(at, min(PART, stop - at)), dtype)
                else:
                    yield from packed_integers(self.source, (start, stop))


@dataclass(frozen=True)
class Node:
    """An operator with its inputs and outputs by names, unique in the model; "" is one that is left out.

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
    """Types and shapes of stored tensors by name, all nodes, and the version of each domain's operators."""

    types: dict[str, tuple[OnnxType, tuple[int, ...]]]
    nodes: tuple[Node, ...]
    opsets: Mapping[str, int]


def open_onnx(folder: Folder, name: str) -> Container:
    """Read a model's graph without its tensors' bytes.

    Raises:
        QuantError: it is not a model, or a tensor lies outside the folder or its file.
    """
    message = Message(Wire(folder.open(name)))
    model = _Model(folder, message.wire.source.name)
    for graph in message.messages(7):
        model.add(graph)
    if not model.tensors:
        raise QuantError(f"{named(name)} stores no tensors; give a model with weights.")
    domains = ((opset.text(1), opset.integer(2)) for opset in message.messages(8))
    opsets = {DOMAINS.get(domain, domain): version for domain, version in domains}
    return Container(model.tensors, structure=OnnxGraph(model.types, tuple(model.nodes), opsets))


class _Model:
    """The stored tensors and nodes of a model, collected graph by graph."""

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder, self._name, self._count = folder, name, 0
        self.tensors: dict[str, StoredTensor] = {}
        self.types: dict[str, tuple[OnnxType, tuple[int, ...]]] = {}
        self.nodes: list[Node] = []
        self._taken: dict[str, int] = {}  # name -> how often it was asked for

    def add(
        self, graph: Message, path: str = "", outer: Mapping[str, str] | None = None, depth: int = 0
    ) -> None:
        """Read a GraphProto.

        Args:
            path: of the subgraph, which goes before names that occur elsewhere in the model.
            outer: the unique names of what the graphs around it define.

        Raises:
            QuantError: two stored tensors of one graph have the same name, or too many graphs lie within one
                another.
        """
        if depth > MOST_NESTED:
            raise QuantError(
                f"{named(self._name)} nests more than {MOST_NESTED} graphs; give a smaller model."
            )
        self._count += len(graph.values[1]) + len(graph.values[5])
        if self._count > MAX_PARTS:
            raise QuantError(
                f"{named(self._name)} has more than {MAX_PARTS:,} nodes and initializers; "
                "give a smaller model."
            )
        own, stored = dict(outer or {}), set[str]()
        for found in map(Initializer, graph.messages(5)):
            if found.name in stored:
                raise QuantError(
                    f"{named(self._name)} has two initializers named {short(found.name, 80)}; rename one."
                )
            stored.add(found.name)
            self._store(found, path, own)
        for node in graph.messages(1):  # they may stand before the initializers that they use
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

    def _add_node(self, node: Message, path: str, own: dict[str, str], depth: int) -> None:
        outputs, op, domain = node.texts(2), node.text(4), node.text(7)
        numbers, graphs, constants = dict[str, float](), list[tuple[str, Message]](), list[Message]()
        for attribute in node.messages(5):
            name = attribute.text(1)
            if attribute.values[3]:
                numbers[name] = attribute.integers(3)[-1]
            for start, stop in attribute.spans(2)[-1:]:
                if stop - start == 4:
                    (numbers[name],) = struct.unpack("<f", node.wire.bytes((start, stop)))
            graphs += [(name, graph) for graph in attribute.messages(6)][-1:]
            constants += attribute.messages(5) if name == "value" else ()
        if op == "Constant" and constants and outputs:
            found = Initializer(constants[-1], outputs[0])
            if found.type in NO_WEIGHTS:
                self._unique(outputs[0], path, own)
            else:
                self._store(found, path, own)
            return
        title = node.text(3)
        for branch, graph in graphs:
            self.add(graph, f"{path}{title or op}.{branch}/", own, depth + 1)
        # what no graph around it defines is an input of the model, or of the subgraph
        given = tuple(own.get(name, f"{path}{name}" if name else "") for name in node.texts(1))
        made = tuple(self._unique(name, path, own) if name else "" for name in outputs)
        self.nodes.append(Node(op, DOMAINS.get(domain, domain), title, given, made, numbers))
