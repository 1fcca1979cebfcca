"""What the pickle in a PyTorch file would build, read without building it.

A pickle is a program for a small stack machine that may call any function. This reader runs none: it follows the
few instructions that ``torch.save`` writes for tensors and containers, and turns calls into plain records. Anything
else is refused.

Source: PyTorch 2.13, torch/serialization.py, torch/_utils.py (`_rebuild_tensor_v2`, `_rebuild_parameter`).
"""

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from quantcore.checkpoints.problem import named
from quantcore.errors import QuantError
from quantcore.wording import short

MAX_STEPS = 5_000_000
_STORAGES = {
    "DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16",
    "LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8",
    "BoolStorage": "BOOL", "UntypedStorage": "U8",
}  # fmt: skip
_DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64", "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip
_MARK = object()


@dataclass(frozen=True)
class Name:
    """A global of a module."""

    module: str
    name: str


@dataclass(frozen=True)
class Storage:
    """Bytes in the zip file, by their key."""

    key: str
    dtype: str


@dataclass(frozen=True)
class Tensor:
    """A view of a storage; offset and strides in elements."""

    storage: Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def read_pickle(data: bytes, name: str) -> Any:
    """Return what the pickle describes: dicts, lists, tuples, numbers and texts, with `Tensor` records in them.

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
            self.stack.append(Name(*argument.split(" ", 1)))
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
        """A storage: ("storage", class, key, location, number of elements)."""
        kind, storage, key, _, _ = self.stack.pop()
        if kind != "storage" or not isinstance(storage, Name) or storage.name not in _STORAGES:
            self.refuse(f"the storage {short(str(storage))}")
        self.stack.append(Storage(str(key), _STORAGES[storage.name]))

    def call(self) -> None:
        """Turn a call into a record."""
        arguments, function = self.stack.pop(), self.stack.pop()
        called = f"{function.module}.{function.name}" if isinstance(function, Name) else "?"
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


def _tensor(arguments: tuple[Any, ...], typed: bool) -> Tensor:
    storage, offset, shape, stride = arguments[:4]
    dtype = _DTYPES[arguments[6].name] if typed else storage.dtype
    numbers = (offset, *shape, *stride)
    if (
        not isinstance(storage, Storage)
        or len(shape) != len(stride)
        or any(type(n) is not int for n in numbers)
    ):
        raise ValueError("not a tensor")
    return Tensor(storage, dtype, offset, tuple(shape), tuple(stride))


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "NONE": lambda: None, "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
}  # fmt: skip
_VALUES = {
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINSTRING",
    "SHORT_BINSTRING",
}  # fmt: skip
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
    "STACK_GLOBAL": lambda m: m.stack.append(Name(m.stack.pop(-2), m.stack.pop())),
    "REDUCE": _Machine.call,
    "BUILD": _Machine.build,
}
