"""A container as plain JSON, and back: headers that one process has read, for another that does not trust it.

A tensor is one list: name, dtype, shape, number of its source, offset, bytes. A source is the name of a file,
or a list that says how bytes are derived from a source before it. Numbers that JSON does not have, and what
is not text, are tagged objects. `from_json` believes nothing: a record that claims bytes outside its file is
refused, and so is one whose bytes don't fit its shape.
"""

import base64
import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from quantcore.checkpoints.containers.gguf_header import LongArray
from quantcore.checkpoints.containers.onnx import DATA, TYPES, FieldBytes, Node, OnnxGraph, OnnxType
from quantcore.checkpoints.containers.protobuf import Span
from quantcore.checkpoints.containers.stored import (
    MAX_REARRANGED,
    ConstantBytes,
    Container,
    StoredTensor,
    StridedBytes,
    TensorQuantizer,
    TorchQuantized,
)
from quantcore.checkpoints.containers.zipped import MAX_UNPACKED, UnpackedBytes
from quantcore.checkpoints.files.sources import ByteSource, DerivedSource
from quantcore.checkpoints.ggml import BLOCK_TYPES, PLAIN_TYPES
from quantcore.collection import uncollected
from quantcore.errors import QuantError
from quantcore.tensors import SAFETENSORS_BITS

OpenSource = Callable[[str], ByteSource]
MAX_RANK = 64  # NumPy's; what a file may have is less, and checked by its reader
MOST = 2**62  # elements or bytes
_NUMBERS = {f"{order}{kind}{size}" for order in "<>" for kind in "fiu" for size in (2, 4, 8)} | {
    "|b1",
    "|i1",
    "|u1",
}
_TYPE_NUMBERS = {kind.name: number for number, kind in TYPES.items()}
# dtype -> elements of a block and its bits
_BITS = (
    {dtype: (1, bits) for dtype, bits in SAFETENSORS_BITS.items()}
    | {name: (1, 8 * size) for name, size in PLAIN_TYPES.values()}
    | {name: (kind.elements, 8 * kind.num_bytes) for name, kind in BLOCK_TYPES.items()}
)


@uncollected()
def to_json(container: Container) -> dict[str, Any]:
    """Return a container as plain data for JSON."""
    sources = _Sources()
    tensors = [
        [name, piece.dtype, list(piece.shape), sources.number(piece.source), piece.offset, piece.num_bytes]
        for name, piece in container.tensors.items()
    ]
    return {
        "sources": sources.records,
        "tensors": tensors,
        "metadata": plain_value(dict(container.metadata))["map"],
        "structure": _structure_record(container.structure),
        "is_self_described": container.is_self_described,
    }


@uncollected()
def from_json(data: Any, open_source: OpenSource) -> Container:
    """Return the container that `to_json` described.

    Args:
        data: what another process says; nothing of it is believed.
        open_source: returns a file by its name.

    Raises:
        QuantError: the description is not one, or does not fit the files; or ``open_source`` raises it.
    """
    with believing_nothing():
        return _container(data, open_source)


@contextlib.contextmanager
def believing_nothing() -> Iterator[None]:
    """Refuse a description whose data do not have the form that is unpacked inside."""
    try:
        yield
    except QuantError:
        raise
    except (TypeError, ValueError, LookupError, OverflowError, RecursionError):
        refuse()


def _container(data: Any, open_source: OpenSource) -> Container:
    sources: list[ByteSource] = []
    for record in data["sources"]:
        sources.append(open_source(text(record)) if type(record) is str else _derived(record, sources))
    tensors = {}
    for name, dtype, shape, number, offset, size in data["tensors"]:
        source = sources[_natural(number)]
        if text(name) in tensors or _natural(offset) + _natural(size) > source.size:
            refuse()
        tensors[name] = StoredTensor(name, text(dtype), _shape(shape), source, offset, size)
        if size != _num_bytes(dtype, tensors[name].shape, size):
            refuse()
    structure = data["structure"]
    return Container(
        tensors,
        real_value({"map": data["metadata"]}),
        None if structure is None else _structure(structure, tensors),
        of_type(data["is_self_described"], bool),
    )


def refuse() -> NoReturn:
    """Raise a QuantError on what is not a description."""
    raise QuantError("The description of the file's headers is damaged; open the file again.")


def of_type(value: Any, kind: type) -> Any:
    """Return a value after checking its type."""
    if type(value) is not kind:
        refuse()
    return value


def text(value: Any) -> str:
    """Return a text after checking that it is one."""
    if type(value) is not str:
        refuse()
    return value


def _natural(value: Any) -> int:
    if type(value) is not int or not 0 <= value < MOST:
        refuse()
    return value


def _shape(value: Any) -> tuple[int, ...]:
    if type(value) is not list or len(value) > MAX_RANK:
        refuse()
    many = 1
    for n in value:
        if type(n) is not int or not 0 <= n < MOST:
            refuse()
        many *= n or 1
    if many >= MOST:  # also if an axis of 0 leaves no element
        refuse()
    return tuple(value)


def _num_bytes(dtype: str, shape: tuple[int, ...], claimed: int) -> int:
    """Return the bytes that a tensor must have; those claimed if the dtype is one that has no reader here."""
    count = math.prod(shape)
    if dtype not in _BITS:
        return claimed
    elements, bits = _BITS[dtype]
    if count % elements or count // elements * bits % 8:
        refuse()
    return count // elements * bits // 8


class _Sources:
    """The records of sources, each after those that it is derived from."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self._numbers: dict[int, int] = {}

    def number(self, source: ByteSource) -> int:
        """Return the number of a source's record."""
        known = self._numbers.get(id(source))
        if known is None:
            record = self._record(source)
            known = self._numbers[id(source)] = len(self.records)
            self.records.append(record)
        return known

    def _record(self, source: ByteSource) -> Any:
        if isinstance(source, UnpackedBytes):
            return [
                "unpacked", self.number(source.source), source.member, source.offset, source.packed,
                source.size, source.crc,
            ]  # fmt: skip
        if isinstance(source, StridedBytes):
            return [
                "rearranged", self.number(source.source), source.tensor, source.offset, list(source.shape),
                list(source.strides), source.number.str, source.reach,
            ]  # fmt: skip
        if isinstance(source, FieldBytes):
            number, kind = self.number(source.source), _TYPE_NUMBERS[source.kind.name]
            numbers = [
                [field, list(value) if isinstance(value, tuple) else value] for field, value in source.numbers
            ]
            return ["numbered", number, source.tensor, numbers, kind, source.size]
        if isinstance(source, ConstantBytes):
            return ["constant", self.number(source.source), source.tensor, source.data.hex()]
        if isinstance(source, DerivedSource):
            raise TypeError(type(source).__name__)
        return source.name


def _derived(record: Any, sources: list[ByteSource]) -> ByteSource:
    kind, number, name, *rest = record
    source = sources[_natural(number)]
    made: ByteSource = _DERIVED[text(kind)](source, text(name), *rest)
    return made


def _unpacked(
    source: ByteSource, member: str, offset: Any, packed: Any, size: Any, crc: Any
) -> UnpackedBytes:
    if _natural(offset) + _natural(packed) > source.size or _natural(size) > MAX_UNPACKED:
        refuse()
    return UnpackedBytes(source, member, offset, packed, size, _natural(crc))


def _rearranged(
    source: ByteSource, tensor: str, offset: Any, shape: Any, strides: Any, number: Any, reach: Any
) -> StridedBytes:
    axes, steps = _shape(shape), tuple(map(_natural, of_type(strides, list)))
    if number not in _NUMBERS or len(axes) != len(steps):
        refuse()
    dtype = np.dtype(number)
    last = sum((n - 1) * step for n, step in zip(axes, steps, strict=True))
    count = math.prod(axes)
    given = _natural(reach) * dtype.itemsize
    most = max(min(given, source.in_file), MAX_REARRANGED)
    if not count or last >= reach or _natural(offset) + given > source.size or count * dtype.itemsize > most:
        refuse()
    return StridedBytes(source, tensor, offset, axes, steps, dtype, reach)


def _numbered(source: ByteSource, tensor: str, numbers: Any, kind: Any, size: Any) -> FieldBytes:
    pairs = tuple((_natural(field), _number_of(value, source)) for field, value in numbers)
    if not all(field in DATA for field, _ in pairs):
        refuse()
    room = sum(value[1] - value[0] if isinstance(value, tuple) else 10 for _, value in pairs)
    if _natural(size) > 8 * room:
        refuse()
    return FieldBytes(source, tensor, pairs, TYPES[_natural(kind)], size)


def _constant(source: ByteSource, tensor: str, data: Any) -> ConstantBytes:
    return ConstantBytes(source, tensor, bytes.fromhex(text(data)))


def _number_of(value: Any, source: ByteSource) -> int | Span:
    if type(value) is int and 0 <= value < 2**64:
        return value
    start, stop = map(_natural, of_type(value, list))
    if not start <= stop <= source.size:
        refuse()
    return start, stop


_DERIVED: dict[str, Callable[..., ByteSource]] = {
    "unpacked": _unpacked,
    "rearranged": _rearranged,
    "numbered": _numbered,
    "constant": _constant,
}


def plain_value(value: Any) -> Any:
    """Return a value of metadata or of a config as plain JSON, in which each object is tagged.

    Raises:
        TypeError: it is not a value that headers have.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, list):
        return [plain_value(one) for one in value]
    if isinstance(value, Mapping):
        return {"map": {key: plain_value(one) for key, one in value.items()}}
    if isinstance(value, LongArray):
        return {"long": [value.count, plain_value(list(value.first))]}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    raise TypeError(type(value).__name__)


def real_value(value: Any) -> Any:
    """Return the value that `plain_value` described.

    Raises:
        QuantError: it did not.
    """
    if value is None or type(value) in (str, bool, int, float):
        return value
    if type(value) is list:
        return [real_value(one) for one in value]
    if type(value) is not dict or len(value) != 1:
        refuse()
    [(tag, inner)] = value.items()
    if tag == "map":
        return {text(key): real_value(one) for key, one in of_type(inner, dict).items()}
    if tag == "float" and inner in ("nan", "inf", "-inf"):
        return float(inner)
    if tag == "long":
        count, first = inner
        return LongArray(_natural(count), tuple(real_value(of_type(first, list))))
    if tag == "bytes":
        return base64.b64decode(text(inner), validate=True)
    refuse()


def _structure_record(structure: Any) -> Any:
    if isinstance(structure, TorchQuantized):
        return {"torch": [[name, q.scale, q.zero_point, q.axis] for name, q in structure.quantizers.items()]}
    return None if structure is None else {"onnx": _graph_record(structure)}


def _structure(record: Any, tensors: Mapping[str, StoredTensor]) -> OnnxGraph | TorchQuantized:
    [(kind, inner)] = of_type(record, dict).items()
    if kind == "onnx":
        return _graph(inner, tensors)
    if kind != "torch":
        refuse()
    quantizers = {}
    for name, scale, zero_point, axis in inner:
        if not {text(name), text(scale), text(zero_point)} <= tensors.keys():
            refuse()
        quantizers[name] = TensorQuantizer(scale, zero_point, None if axis is None else _natural(axis))
    return TorchQuantized(quantizers)


def _graph_record(graph: OnnxGraph) -> dict[str, Any]:
    return {
        "types": [
            [name, _TYPE_NUMBERS[kind.name], list(shape)] for name, (kind, shape) in graph.types.items()
        ],
        "nodes": [
            [
                node.op,
                node.domain,
                node.name,
                list(node.inputs),
                list(node.outputs),
                plain_value(node.numbers)["map"],
            ]
            for node in graph.nodes
        ],
        "opsets": dict(graph.opsets),
    }


def _graph(record: Any, tensors: Mapping[str, StoredTensor]) -> OnnxGraph:
    types: dict[str, tuple[OnnxType, tuple[int, ...]]] = {}
    for name, number, given in record["types"]:
        kind, shape = TYPES[_natural(number)], _shape(given)
        piece = tensors[text(name)]
        size = -(-math.prod(shape) * kind.bits // 8)
        if piece.dtype != kind.dtype or piece.shape != (shape if kind.bits >= 8 else (size,)):
            refuse()
        types[name] = kind, shape
    if types.keys() != tensors.keys():
        refuse()
    nodes = tuple(
        Node(text(op), text(domain), text(name), texts(inputs), texts(outputs), _numbers(numbers))
        for op, domain, name, inputs, outputs, numbers in record["nodes"]
    )
    opsets = of_type(record["opsets"], dict)
    if not all(type(version) is int and version < MOST for version in opsets.values()):
        refuse()
    return OnnxGraph(types, nodes, {text(domain): version for domain, version in opsets.items()})


def texts(values: Any) -> tuple[str, ...]:
    """Return texts after checking that they are a list of them."""
    return tuple(map(text, of_type(values, list)))


def _numbers(values: Any) -> Mapping[str, float]:
    found: dict[str, float] = real_value({"map": values})
    if not all(type(value) in (int, float) for value in found.values()):
        refuse()
    return found
