"""Tensors of an ONNX model: where their bytes lie, in the model's file or in others of its folder (external_data).

Source: onnx 1.23, onnx.proto, TensorProto.
"""

import math
from dataclasses import dataclass

import numpy as np

from quantcore.checkpoints.containers.onnx.protobuf import Message, Span, signed
from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.files.address import Folder
from quantcore.checkpoints.files.sources import ByteSource, DerivedSource
from quantcore.checkpoints.problem import named
from quantcore.errors import QuantError
from quantcore.wording import short

MAX_RANK = 16


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
# fields of TensorProto that hold numbers: the dtype of fixed-size ones, "" for varints
_DATA = {4: "<f4", 5: "", 7: "", 10: "<f8", 11: ""}


class Initializer:
    """A TensorProto: of an initializer, or the value of a Constant node, which bears the name of its output."""

    def __init__(self, message: Message, span: Span, name: str = "") -> None:
        self._message = message
        self.shape: list[int] = []
        self.type, self.name = 0, name
        self.raw: Span | None = None
        self.numbers: list[tuple[int, int | Span]] = []
        self.external: dict[str, str] = {}
        for number, value in message.fields(span):
            if number == 1:
                self.shape += [
                    signed(n) for n in (message.varints(value) if isinstance(value, tuple) else [value])
                ]
                if len(self.shape) > MAX_RANK:
                    raise QuantError(
                        f"{named(message.source.name)} has a tensor of more than {MAX_RANK} axes."
                    )
            elif number == 2 and isinstance(value, int):
                self.type = value
            elif number == 8 and isinstance(value, tuple) and not name:
                self.name = message.text(value)
            elif number == 9 and isinstance(value, tuple):
                self.raw = value
            elif number in _DATA:
                self.numbers.append((number, value))
            elif number == 13 and isinstance(value, tuple):
                pair = dict(message.fields(value))
                if isinstance(pair.get(1), tuple) and isinstance(pair.get(2), tuple):
                    self.external[message.text(pair[1])] = message.text(pair[2])  # type: ignore[arg-type]

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
        if any(n < 0 or n >= 2**48 for n in shape) or math.prod(shape) >= 2**48:
            raise QuantError(f"The initializer {quoted} claims an impossible shape; save the model again.")
        size = -(-math.prod(shape) * kind.bits // 8)
        source, offset, length = self._bytes(folder, kind, size)
        if length != size or offset + size > source.size:
            raise QuantError(
                f"The initializer {quoted} of shape {shape}, {kind.name}, takes {size:,} bytes, but has {length:,}; "
                "save the model again."
            )
        # elements smaller than a byte are stored as bytes, whatever the shape
        stored_shape = shape if kind.bits >= 8 else (size,)
        return StoredTensor(self.name, kind.dtype, stored_shape, source, offset, size), kind, shape

    def _bytes(self, folder: Folder, kind: OnnxType, size: int) -> tuple[ByteSource, int, int]:
        """Return the source of its bytes, their offset and number."""
        source = self._message.source
        if self.external:
            other = folder.open(self.external.get("location", ""))
            offset, length = (
                self._integer(key, default) for key, default in (("offset", 0), ("length", size))
            )
            return other, offset, length
        if self.raw or not self.numbers:
            start, stop = self.raw or (0, 0)
            return source, start, stop - start
        room = sum(v[1] - v[0] if isinstance(v, tuple) else 10 for _, v in self.numbers)
        if size > 8 * room:  # each number takes at least one byte of the file
            raise QuantError(
                f"The initializer {short(self.name, 80)} has fewer numbers than its shape claims."
            )
        return (
            DerivedSource(f"{source.name}, {self.name} as bytes", size, lambda: self._converted(kind, size)),
            0,
            size,
        )

    def _integer(self, key: str, default: int) -> int:
        text = self.external.get(key, str(default))
        if not text.isascii() or not text.isdecimal() or len(text) > 18:
            raise QuantError(
                f"The initializer {short(self.name, 80)} has the {key} {short(text)}; write a number of bytes."
            )
        return int(text)

    def _converted(self, kind: OnnxType, size: int) -> memoryview:
        """Return the numbers in fields of the message as bytes of their type."""
        found: list[float] = []
        for number, value in self.numbers:
            if not isinstance(value, tuple):
                found.append(value)
            elif _DATA[number]:
                found += np.frombuffer(
                    self._message.source.read(*_whole(value, _DATA[number])), _DATA[number]
                ).tolist()
            else:
                found += self._message.varints(value)
        width = max(1, kind.bits // 8)
        if kind.dtype in ("F32", "F64"):
            array = np.array(found, f"<f{width}")
        else:  # floats of 16 bits and less are written as their bits; negative integers as int64
            mask = (1 << 8 * width) - 1
            array = np.array([int(n) & mask for n in found], f"<u{width}")
        if array.nbytes != size:
            raise QuantError(
                f"The initializer {short(self.name, 80)} does not have as many numbers as its shape claims."
            )
        return array.view(np.uint8).data


def _whole(span: Span, dtype: str) -> tuple[int, int]:
    """Return the offset and size of the whole numbers in a span."""
    size = np.dtype(dtype).itemsize
    return span[0], (span[1] - span[0]) // size * size
