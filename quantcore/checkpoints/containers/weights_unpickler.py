"""PyTorch's own unpickler of weights, watched: what it may call, with what, and how much it may do.

``torch.load(weights_only=True)`` follows a pickle in Python and calls only functions on a list. That keeps a
file from running code, but not from taking hours: a key of tuples that each hold the one before twice is
hashed in 2^n steps, integers can be chosen so that a dict compares each with each, and a few bytes make
``torch.Tensor`` copy a billion numbers. So each instruction is looked at before it is followed, on the
unpickler's own stack; the unpickler reads its instructions one by one, and this is where it reads them.
Storages become storages on the device "meta", which have no bytes.

Source: PyTorch 2.13, torch/_weights_only_unpickler.py, torch/_utils.py, torch/serialization.py
(`persistent_load`).
"""

import collections
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch._utils import (
    _rebuild_parameter,
    _rebuild_parameter_with_state,
    _rebuild_qtensor,
    _rebuild_tensor,
    _rebuild_tensor_v2,
    _rebuild_tensor_v3,
)
from torch._weights_only_unpickler import Unpickler

from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError
from quantcore.wording import short

MAX_PICKLE = 16 * 2**20  # bytes; 7,500 tensors take 1 MB
# an instruction costs 1 and a call 15; a tensor takes 35 instructions and 2 calls. The files of
# google/switch-c-2048, the most experts in .bin files, have 850 tensors each, so this is nine times what
# releases need.
MAX_COST, _TENSORS = 500_000, 7_500
_CALL = 15
MAX_RANK = 64  # torch's
_MOST = 2**48  # elements or bytes
# instructions (Python's pickletools.py describes them)
_SETITEM, _SETITEMS, _REDUCE, _NEWOBJ, _BUILD, _PROTO = b"s", b"u", b"R", b"\x81", b"b", b"\x80"
# how many reads follow an instruction for its argument; none for those that are not here: BINGET, BINPUT,
# BININT1, BININT2, BININT, BINFLOAT, LONG_BINGET, LONG_BINPUT and PROTO; then BINUNICODE, SHORT_BINSTRING and
# LONG1
_READS = dict.fromkeys((b"h", b"q", b"K", b"M", b"J", b"G", b"j", b"r", _PROTO), 1) | dict.fromkeys(
    (b"X", b"U", b"\x8a"), 2
)
_KEYS = (str, int, float, bool, type(None))
# storages of torch.ao's quantized tensors -> what their codes are
_CODES = {torch.qint8: torch.int8, torch.quint8: torch.uint8, torch.qint32: torch.int32}
# by identity: what a file calls may be anything that it has built
_TENSOR_CALLS = {id(one) for one in (_rebuild_tensor_v2, _rebuild_tensor_v3, _rebuild_qtensor)}
_PARAMETER_CALLS = {id(one) for one in (_rebuild_parameter, _rebuild_parameter_with_state)}
_GLOBALS = re.compile(
    r"torch\.(\w+Storage|storage\.(Untyped|Typed)Storage|Size|Tensor|device|b?float\w+|u?q?u?int\w+|bool|complex\w+|per_\w+)"
    r"|torch\._utils\._rebuild_(tensor_v2|tensor_v3|parameter|parameter_with_state|qtensor)"
    r"|torch\._tensor\._rebuild_from_type_v2|torch\.nn\.parameter\.Parameter|_codecs\.encode"
    r"|collections\.(OrderedDict|Counter)|(__builtin__|builtins)\.set"
)
# globals of what can't be read here, in words
_KNOWN = (
    (r"torch\.serialization\._get_layout|.*_sparse_.*", "a sparse tensor"),
    (r".*_rebuild_nested_tensor|torch\.nested\..*", "a nested tensor"),
    (r".*_rebuild_wrapper_subclass", "a tensor of a class of its own"),
    (r".*_rebuild_meta_tensor_no_storage", "a tensor without data"),
    (r".*_rebuild_device_tensor.*|.*_rebuild_xla_tensor", "a tensor of another device"),
    (r"numpy\..*", "a NumPy object"),
)


@dataclass(frozen=True)
class TorchQuantizer:
    """The parameters of one of torch.ao's quantized tensors: numbers, or tensors along an axis."""

    scheme: torch.qscheme
    scale: Any
    zero_point: Any
    axis: int | None


class WatchedUnpickler(Unpickler):
    """Reads one pickle; `load` returns what it holds, with tensors on the device "meta".

    ``quantizers``: those of quantized tensors, which are returned as tensors of their codes. A tensor's
    ``untyped_storage().key`` is the name of its bytes in the zip file.

    Raises:
        QuantError: the pickle's protocol is not the one of ``torch.save``.
    """

    def __init__(self, data: bytes, name: str) -> None:
        if data[:1] == _PROTO and data[1:2] != b"\x02":  # torch's unpickler knows no other
            raise QuantError(
                f"The pickle in {named(name)} has the protocol {data[1:2].hex()}, not 2; save it again by "
                "torch.save without pickle_protocol, or as .safetensors."
            )
        file = io.BytesIO(data)
        super().__init__(file, encoding="utf-8")
        self.quantizers: dict[torch.Tensor, TorchQuantizer] = {}
        self._name, self._storages = name, dict[str, torch.storage.TypedStorage]()
        self._cost, self._module = 0, ""
        self.read, self._line = self._reader(file.read), file.readline
        self.readline = self._read_line

    def load(self) -> Any:
        """Return what the pickle holds.

        Raises:
            QuantError: anything but tensors in dicts and lists, or too much of it, or it is damaged.
        """
        try:
            return super().load()  # type: ignore[no-untyped-call]
        except QuantError:
            raise
        except Exception:  # whatever a pickle can bring its reader to
            raise QuantError(
                f"The pickle in {named(self._name)} is damaged, or not one of tensors; save the file again, "
                "as .safetensors."
            ) from None

    def refuse(self, what: str) -> NoReturn:
        """Raise a QuantError on what is not read."""
        raise QuantError(
            f"{named(self._name)} holds {what}, which is not read here, and nothing in the file is run. Load "
            "it with its library if you trust it, and save the tensors, such as those of state_dict(), "
            "as .safetensors."
        )

    def _reader(self, read: Callable[[int], bytes]) -> Callable[[int], bytes]:
        """Return the function by which instructions and their arguments are read."""
        arguments = 0
        checks = {
            _SETITEM: self._check_item, _SETITEMS: self._check_items,
            _NEWOBJ: self._check_object, _BUILD: self._check_state,
        }  # fmt: skip

        def watched(size: int) -> bytes:
            nonlocal arguments
            data = read(size)
            if arguments:
                arguments -= 1
                if len(data) < size:
                    raise EOFError
                return data
            while True:
                self._cost += 1
                if self._cost > MAX_COST:
                    self._too_much()
                if data != _REDUCE or not self._is_called():
                    break
                data = read(size)
            if data in _READS:
                arguments = _READS[data]
            elif data in checks:
                checks[data]()
            return data

        return watched

    def _too_much(self) -> NoReturn:
        raise QuantError(
            f"The pickle in {named(self._name)} has more than {MAX_COST:,} steps, which is more than "
            f"{_TENSORS:,} tensors take; save the tensors as .safetensors, or in several files."
        )

    def _read_line(self) -> bytes:
        """Read the module, then the name of a global."""
        line: bytes = self._line()
        if not self._module:
            self._module = line[:-1].decode("utf-8", "replace") or "?"
            return line
        found, self._module = f"{self._module}.{line[:-1].decode('utf-8', 'replace')}", ""
        if not _GLOBALS.fullmatch(found):
            known = next((what for pattern, what in _KNOWN if re.fullmatch(pattern, found)), "")
            self.refuse(known or f"the class or function {short(found, 80)}")
        return line

    def _check_item(self) -> None:
        self._check_key(self.stack[-2])

    def _check_items(self) -> None:
        for key in self.stack[::2]:
            self._check_key(key)

    def _check_key(self, key: Any) -> None:
        """Refuse keys whose hashes a file can choose, or that take long to hash."""
        if type(key) not in _KEYS or (type(key) is int and not -(2**60) < key < 2**60):
            self.refuse(f"a dict with a key that is not a text or a number, but of type {type(key).__name__}")

    def _check_object(self) -> None:
        self.refuse("an object of a class of its own")

    def _check_state(self) -> None:
        state, changed = self.stack[-1], self.stack[-2]
        if type(changed) is not collections.OrderedDict or type(state) is not dict:
            self.refuse("an object with attributes")
        self._cost += len(state)

    def _is_called(self) -> bool:
        """Make a call of what files of tensors hold most; False: the unpickler is to make it.

        It would look through all that it may call, and torch then for a mode that is never on, for each
        tensor. What a tensor is trained with is left out.

        Raises:
            QuantError: files of tensors don't have calls of this function, or with these arguments.
        """
        self._cost += _CALL
        arguments, called = self.stack[-1], self.stack[-2]
        if type(arguments) is not tuple:
            raise TypeError
        if called is torch._tensor._rebuild_from_type_v2:  # a tensor or parameter with attributes
            called, kind, arguments, _ = arguments
            is_known = id(called) in _TENSOR_CALLS or id(called) in _PARAMETER_CALLS
            if not is_known or kind not in (torch.Tensor, torch.nn.Parameter):
                self.refuse("a tensor of a class of its own")
            self.stack[-2:] = [called, arguments]
        made: Any = None
        if id(called) in _TENSOR_CALLS:
            self._check_tensor(arguments)
            # the dtype, or what marks values as negated
            if called is _rebuild_tensor_v3 or (called is _rebuild_tensor_v2 and len(arguments) > 6):
                return False
            made = _rebuild_tensor(*arguments[:4])  # type: ignore[no-untyped-call]
            if called is _rebuild_qtensor:
                self.quantizers[made] = self._quantizer(arguments)
        elif id(called) in _PARAMETER_CALLS:
            made = arguments[0]
            if not isinstance(made, torch.Tensor):
                raise TypeError
        elif called is collections.OrderedDict and not arguments:
            made = collections.OrderedDict()
        elif not self._is_plain_call(called, arguments):
            self.refuse(f"a call of {short(getattr(called, '__qualname__', type(called).__name__), 60)}")
        if made is not None:
            self.stack[-2:] = [made]
        return made is not None

    def _is_plain_call(self, called: Any, arguments: tuple[Any, ...]) -> bool:
        """Tell whether a call makes a container or a name of a device from a few plain values."""
        if len(arguments) == 2 and getattr(called, "__module__", "") == "_codecs":
            self._cost += len(arguments[0]) // 64 if type(arguments[0]) is str else MAX_COST
            return type(arguments[1]) is str and arguments[1] == "latin1"
        if called is torch.device:
            return all(type(one) in (str, int) and len(str(one)) < 40 for one in arguments)
        if len(arguments) != 1:
            return called in (set, collections.Counter) and not arguments
        (content,) = arguments
        if called is torch.Size:
            return _are_sizes(content)
        if called in (set, collections.Counter) and type(content) in (list, dict):
            self._cost += len(content)
            for key in content:
                self._check_key(key)
            return True
        return False

    def _check_tensor(self, arguments: tuple[Any, ...]) -> None:
        storage, offset, shape, strides = arguments[:4]
        if not isinstance(storage, torch.storage.TypedStorage) or not _are_sizes((offset,)):
            raise TypeError
        if not _are_sizes(shape) or not _are_sizes(strides) or len(shape) != len(strides):
            raise TypeError

    def _quantizer(self, arguments: tuple[Any, ...]) -> TorchQuantizer:
        scheme, *rest = arguments[4]
        if scheme == torch.per_tensor_affine:
            scale, zero_point = rest
            if type(scale) is not float or type(zero_point) is not int:
                raise TypeError
            return TorchQuantizer(scheme, scale, zero_point, None)
        if scheme not in (torch.per_channel_affine, torch.per_channel_affine_float_qparams):
            self.refuse(f"a tensor quantized by the scheme {short(str(scheme), 60)}")
        scales, zero_points, axis = rest
        count = arguments[2][axis] if type(axis) is int and 0 <= axis < len(arguments[2]) else -1
        for one in (scales, zero_points):
            if not isinstance(one, torch.Tensor) or one.shape != (count,):
                raise TypeError
        return TorchQuantizer(scheme, scales, zero_points, axis)

    def persistent_load(self, pid: Any) -> torch.storage.TypedStorage:
        """Return a storage without bytes for ("storage", class, key, device, number of elements)."""
        _, kind, key, _, count = pid
        if type(key) is not str or type(count) is not int or not 0 <= count < _MOST:
            raise TypeError
        if key not in self._storages:
            dtype = torch.uint8 if kind is torch.UntypedStorage else kind.dtype
            dtype = _CODES.get(dtype, dtype)
            size = count * dtype.itemsize
            storage = torch.UntypedStorage(size, device="meta")  # type: ignore[no-untyped-call]
            storage.key = key  # type: ignore[attr-defined]
            self._storages[key] = torch.storage.TypedStorage(  # type: ignore[no-untyped-call]
                wrap_storage=storage, dtype=dtype, _internal=True
            )
        return self._storages[key]


def _are_sizes(values: Any) -> bool:
    return (
        isinstance(values, tuple)
        and len(values) <= MAX_RANK
        and all(type(n) is int and 0 <= n < _MOST for n in values)
    )
