"""PyTorch's ``.pt``, ``.pth`` and ``.bin``: a zip file of a pickle that names tensors, and their bytes.

A pickle is a program for a small stack machine that may call any function. This reader runs none: it follows the
few instructions that ``torch.save`` writes for tensors and containers, and turns calls into plain records. Anything
else is refused. Each tensor is a range of the file. Files from before PyTorch 1.6 are bare pickles, and are refused.

Source: PyTorch 2.13, torch/serialization.py, torch/_utils.py (`_rebuild_tensor_v2`, `_rebuild_parameter`).
"""

import math
import pickletools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantcore.checkpoints.containers.stored import TORCH_DTYPES, Container, StoredTensor, strided
from quantcore.checkpoints.containers.zipped import MAX_UNPACKED, Archive
from quantcore.checkpoints.files.sources import ByteSource
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError
from quantcore.tensors import CONVERT_TORCH, SAFETENSORS_BITS
from quantcore.wording import megabytes, short

MAX_STEPS = 5_000_000
_STORAGES = {
    "DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16",
    "LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8",
    "BoolStorage": "BOOL", "UntypedStorage": "U8",
}  # fmt: skip
_DTYPES = {str(dtype).removeprefix("torch."): name for name, dtype in TORCH_DTYPES.items()}
_MARK = object()
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "NONE": lambda: None, "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
}  # fmt: skip
_VALUES = {
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINSTRING",
    "SHORT_BINSTRING",
}  # fmt: skip
MAX_PICKLE = 64 * 2**20
MAX_VISITS = 1_000_000


@dataclass(frozen=True)
class Global:
    """A global of a module."""

    module: str
    name: str


@dataclass(frozen=True)
class TypedStorage:
    """Bytes in the zip file, by their key."""

    key: str
    dtype: str


@dataclass(frozen=True)
class StridedTensor:
    """A view of a storage; offset and strides in elements."""

    storage: TypedStorage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def read_pickle(data: bytes, name: str) -> Any:
    """Return what the pickle describes: dicts, lists, tuples, numbers, texts and `StridedTensor` records.

    Raises:
        QuantError: it holds anything but tensors in containers.
    """
    machine = _Machine(name)
    try:
        for steps, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if steps > MAX_STEPS:
                raise QuantError(f"The pickle in {named(name)} has more than {MAX_STEPS:,} steps.")
            if opcode.name == "STOP":
                return machine.stack[-1]
            machine.step(opcode.name, argument)
    except QuantError:  # also a ValueError
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError):
        pass
    raise QuantError(f"The pickle in {named(name)} is damaged; save the file again, as .safetensors.")


class _Machine:
    """The stack and memo of a pickle."""

    def __init__(self, name: str) -> None:
        self.name, self.stack = name, list[Any]()
        self._memo: dict[int, Any] = {}

    def step(self, opcode: str, argument: Any) -> None:
        """Follow one instruction."""
        if opcode in _CONSTANTS:
            self.stack.append(_CONSTANTS[opcode]())
        elif opcode in _VALUES:
            self.stack.append(argument)
        elif opcode in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self._memo[len(self._memo) if opcode == "MEMOIZE" else argument] = self.stack[-1]
        elif opcode in ("BINGET", "LONG_BINGET"):
            self.stack.append(self._memo[argument])
        elif opcode == "MARK":
            self.stack.append(_MARK)
        elif opcode == "GLOBAL":
            self.stack.append(Global(*argument.split(" ", 1)))
        elif opcode in _HANDLERS:
            _HANDLERS[opcode](self)
        elif opcode not in ("PROTO", "FRAME"):
            self.refuse(f"the instruction {opcode}")

    def refuse(self, what: str) -> None:
        """Raise a QuantError on something that files of tensors don't have."""
        raise QuantError(
            f"{named(self.name)} is a pickle with {what}, which files of tensors don't have; it is not run. Save "
            "the tensors as .safetensors."
        )

    def marked(self) -> list[Any]:
        """Pop what lies above the last mark."""
        at = len(self.stack) - 1 - self.stack[::-1].index(_MARK)
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def tuple_of(self, count: int) -> None:
        """Join the last items."""
        items = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        self.stack.append(items)

    def set_items(self, items: list[Any]) -> None:
        """Add pairs to the dict below."""
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def persistent(self) -> None:
        """Push a storage: ("storage", class, key, location, number of elements)."""
        kind, storage, key, _, _ = self.stack.pop()
        if kind != "storage" or not isinstance(storage, Global) or storage.name not in _STORAGES:
            self.refuse(f"the storage {short(str(storage))}")
        self.stack.append(TypedStorage(str(key), _STORAGES[storage.name]))

    def call(self) -> None:
        """Turn a call into a record."""
        arguments, function = self.stack.pop(), self.stack.pop()
        called = f"{function.module}.{function.name}" if isinstance(function, Global) else "?"
        if called == "collections.OrderedDict" and not arguments:
            self.stack.append({})
        elif called in ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"):
            self.stack.append(_tensor(arguments, called.endswith("v3")))
        elif called == "torch._utils._rebuild_parameter":
            self.stack.append(arguments[0])
        else:
            self.refuse(f"a call to {short(called, 60)}")

    def build(self) -> None:
        """Drop attributes, such as _metadata of a state dict."""
        self.stack.pop()
        if not isinstance(self.stack[-1], dict):
            self.refuse("attributes of an object")


def _tensor(arguments: tuple[Any, ...], typed: bool) -> StridedTensor:
    storage, offset, shape, stride = arguments[:4]
    dtype = _DTYPES[arguments[6].name] if typed else storage.dtype
    numbers = (offset, *shape, *stride)
    if (
        not isinstance(storage, TypedStorage)
        or len(shape) != len(stride)
        or any(type(n) is not int for n in numbers)
    ):
        raise ValueError("not a tensor")
    return StridedTensor(storage, dtype, offset, tuple(shape), tuple(stride))


_HANDLERS: dict[str, Callable[[_Machine], Any]] = {
    "TUPLE": lambda m: m.stack.append(tuple(m.marked())),
    "TUPLE1": lambda m: m.tuple_of(1),
    "TUPLE2": lambda m: m.tuple_of(2),
    "TUPLE3": lambda m: m.tuple_of(3),
    "SETITEM": lambda m: m.set_items([m.stack.pop(-2), m.stack.pop()]),
    "SETITEMS": lambda m: m.set_items(m.marked()),
    "APPEND": lambda m: m.stack[-2].append(m.stack.pop()),
    "APPENDS": lambda m: (items := m.marked(), m.stack[-1].extend(items)),
    "BINPERSID": _Machine.persistent,
    "STACK_GLOBAL": lambda m: m.stack.append(Global(m.stack.pop(-2), m.stack.pop())),
    "REDUCE": _Machine.call,
    "BUILD": _Machine.build,
}


def open_torch(source: ByteSource) -> Container:
    """Read the directory of the zip file and its pickle.

    Raises:
        QuantError: it is not a zip file of tensors, or damaged.
    """
    if bytes(source.read(0, min(4, source.size))) != b"PK\x03\x04":
        raise QuantError(
            f"{named(source.name)} is not a zip file of tensors, as PyTorch has written since 1.6; bare pickles are "
            f"not read. {CONVERT_TORCH}"
        )
    archive = Archive(source)
    pickles = [name for name in archive.members if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) != 1 or archive.members[pickles[0]].file_size > MAX_PICKLE:
        raise QuantError(f"{named(source.name)} is not a zip file of tensors; save them as .safetensors.")
    root = pickles[0].removesuffix("data.pkl")
    if f"{root}byteorder" in archive.members and archive.start(f"{root}byteorder", 8) != b"little":
        raise QuantError(
            f"{named(source.name)} was written on a big-endian machine; save it as .safetensors."
        )
    content = read_pickle(archive.start(pickles[0], MAX_PICKLE), source.name)
    tensors = dict(_tensors(content))
    if not tensors:
        raise QuantError(f"{named(source.name)} holds no tensor.")
    return Container({name: _stored(name, tensor, archive, root) for name, tensor in tensors.items()})


def _tensors(content: Any) -> Iterator[tuple[str, StridedTensor]]:
    """Yield the tensors in nested dicts and lists, with names joined by dots.

    Raises:
        QuantError: there are too many objects; shared ones are counted each time.
    """
    todo, visits = [("", content)], 0
    while todo:
        name, value = todo.pop()
        visits += 1
        if visits > MAX_VISITS or len(name) > 2000:
            raise QuantError(
                f"The pickle nests more than {MAX_VISITS:,} objects; save the tensors as .safetensors."
            )
        if isinstance(value, StridedTensor):
            yield name or "tensor", value
        elif isinstance(value, dict | list | tuple):
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            todo += [(f"{name}.{key}" if name else str(key), inner) for key, inner in pairs][::-1]


def _stored(name: str, tensor: StridedTensor, archive: Archive, root: str) -> StoredTensor:
    member = f"{root}data/{tensor.storage.key}"
    if member not in archive.members:
        raise QuantError(f"The bytes of {named(name)} are missing; download the file again.")
    size = SAFETENSORS_BITS[tensor.dtype] // 8
    room = archive.members[member].file_size
    count = math.prod(tensor.shape)
    reach = tensor.offset + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride, strict=True)) + 1
    if min((tensor.offset, *tensor.shape, *tensor.stride)) < 0 or (count and reach * size > room):
        raise QuantError(
            f"{named(name)} has shape {tensor.shape}, which does not fit the {room:,} bytes of its storage; the file is damaged."
        )
    if count * size > max(room, MAX_UNPACKED):
        raise QuantError(
            f"{named(name)} takes {megabytes(count * size)} from {room:,} bytes; save it as a contiguous tensor."
        )
    source, offset = archive.bytes_of(member)
    whole = StoredTensor(
        name, tensor.dtype, tensor.shape, source, offset + tensor.offset * size, count * size
    )
    return strided(whole, tensor.stride, np.dtype(f"<u{size}"), reach - tensor.offset)
