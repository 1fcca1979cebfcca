"""A tensor as a file stores it: name, dtype, shape and where its bytes are; none of them has been read."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.checkpoints.files.sources import ByteSource, DerivedSource, MemorySource
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError
from quantcore.tensors import SAFETENSORS_BITS
from quantcore.wording import megabytes

Slices = tuple[slice, ...]

# dtypes as safetensors names them, which the other containers use too
TORCH_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz, "F8_E8M0": torch.float8_e8m0fnu, "BOOL": torch.bool,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8,
}  # fmt: skip
# bytes of a tensor that is rearranged in memory, unless its file has as many
MAX_REARRANGED = 2**26
_UNSIGNED = {size: np.dtype(f"<u{size}") for size in (1, 2, 4, 8)}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file, row-major and little-endian.

    ``dtype``: as safetensors names it, such as ``BF16`` or ``F8_E4M3``, or a ggml type. ``offset``: of its
    first byte in ``source``; ``num_bytes``: the number of its bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    source: ByteSource
    offset: int
    num_bytes: int

    @property
    def itemsize(self) -> int:
        """Bytes of one element.

        Raises:
            QuantError: the dtype is unknown, or its elements are smaller than a byte.
        """
        bits = SAFETENSORS_BITS.get(self.dtype, 0)
        if bits % 8 or not bits:
            raise QuantError(f"{named(self.name)} has the dtype {self.dtype}, which has no reader here.")
        return bits // 8

    @property
    def is_floating(self) -> bool:
        """Whether its dtype is a float."""
        return self.dtype in TORCH_DTYPES and TORCH_DTYPES[self.dtype].is_floating_point

    @property
    def float_dtype(self) -> torch.dtype:
        """The dtype of scales.

        Raises:
            QuantError: it is not a float.
        """
        if not self.is_floating:
            raise QuantError(
                f"{named(self.name)} is {self.dtype}, but scales must be floats; the file is damaged."
            )
        return TORCH_DTYPES[self.dtype]

    def bytes(self) -> memoryview:
        """Return all of its bytes."""
        return self.source.read(self.offset, self.num_bytes)

    def bits(self, box: Slices = ()) -> npt.NDArray[Any]:
        """Return its elements, or a box of them, as unsigned integers of their bits.

        Args:
            box: a slice for each of the first axes, with start and stop and no step.
        """
        dtype = _UNSIGNED[self.itemsize]
        if len(box) < 2 and self.shape:
            return self._rows(box[0] if box else slice(0, self.shape[0]), dtype)
        cut = [*box, *(slice(0, n) for n in self.shape[len(box) :])]
        shape = tuple(s.stop - s.start for s in cut)
        if math.prod(shape) == 0:
            return np.empty(shape, dtype)
        start, size, stride, count = _runs(self.shape, cut, self.itemsize)
        if count == 1 or stride - size <= max(self.source.gap, size):  # with the gaps, in one read
            data = np.frombuffer(self.source.read(self.offset + start, (count - 1) * stride + size), np.uint8)
            strided = np.lib.stride_tricks.as_strided(data, (count, size), (stride, 1))
            return np.ascontiguousarray(strided).view(dtype).reshape(shape)
        found = np.empty((count, size), np.uint8)
        for i in range(count):
            found[i] = self.source.read(self.offset + start + i * stride, size)
        return found.view(dtype).reshape(shape)

    def _rows(self, rows: slice, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return some rows, which are contiguous: the usual box, without the work of finding its runs."""
        _check(rows, self.shape[0])
        size = dtype.itemsize * math.prod(self.shape[1:])
        data = self.source.read(self.offset + rows.start * size, (rows.stop - rows.start) * size)
        return np.frombuffer(data, dtype).reshape(rows.stop - rows.start, *self.shape[1:])

    def numbers(self, box: Slices = (), widened: bool = True) -> Tensor:
        """Return its elements, or a box of them: integers as they are, floats as float32 if ``widened``."""
        bits = self.bits(box)
        dtype = TORCH_DTYPES[self.dtype]
        values = torch.from_numpy(bits.view(f"<i{bits.itemsize}")).view(dtype)
        return values.to(torch.float32) if widened and dtype.is_floating_point else values

    def in_memory(self) -> "StoredTensor":
        """Return the same tensor with its bytes in memory."""
        return replace(self, source=_Copy(self.source.name, self.bytes(), self.offset))


Pieces = Mapping[str, StoredTensor]  # by the names that a format gives them


def strided(
    whole: StoredTensor, strides: tuple[int, ...], number: np.dtype[Any], reach: int | None = None
) -> StoredTensor:
    """Return a tensor with other strides or another byte order; its numbers are rearranged when first read.

    Args:
        whole: the tensor as if it were row-major.
        strides: of its axes, in numbers; ``number``: the dtype of one in the file.
        reach: how many numbers lie from the first to the last of the tensor, if not as many as it has.

    Raises:
        QuantError: it is too large to be rearranged from so few bytes.
    """
    rows = [math.prod(whole.shape[i + 1 :]) for i in range(len(whole.shape))]
    in_order = all(n == 1 or own == row for n, own, row in zip(whole.shape, strides, rows, strict=True))
    if whole.num_bytes == 0 or (in_order and number.str[0] != ">"):
        return whole

    length = math.prod(whole.shape) if reach is None else reach
    given = min(length * number.itemsize, whole.source.in_file)
    if whole.num_bytes > max(given, MAX_REARRANGED):
        raise QuantError(
            f"{named(whole.name)} takes {megabytes(whole.num_bytes)} from {given:,} bytes; save it as a "
            "contiguous tensor, without compression."
        )
    source = StridedBytes(whole.source, whole.name, whole.offset, whole.shape, strides, number, length)
    return replace(whole, source=source, offset=0)


class StridedBytes(DerivedSource):
    """The numbers of a tensor with other strides or another byte order, row-major and little-endian.

    Args:
        source: the bytes of ``reach`` numbers of the dtype ``number`` from ``offset`` on.
        tensor: the name of the tensor.
        strides: of the axes, in numbers; from the first number of the tensor to its last are ``reach``.
    """

    def __init__(
        self,
        source: ByteSource,
        tensor: str,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        number: np.dtype[Any],
        reach: int,
    ) -> None:
        super().__init__(f"{source.name}, {tensor} rearranged", math.prod(shape) * number.itemsize)
        self.source, self.tensor, self.offset = source, tensor, offset
        self.shape, self.strides, self.number, self.reach = shape, strides, number, reach

    def _make(self) -> memoryview:
        size = self.number.itemsize
        data = np.frombuffer(self.source.read(self.offset, self.reach * size), self.number)
        view = np.lib.stride_tricks.as_strided(data, self.shape, [s * size for s in self.strides])
        return np.ascontiguousarray(view, self.number.newbyteorder("<")).reshape(-1).view(np.uint8).data


class ConstantBytes(DerivedSource):
    """Bytes of a number that a file holds in its header.

    Args:
        source: the file.
        tensor: what the number is.
        data: its bytes.
    """

    def __init__(self, source: ByteSource, tensor: str, data: bytes) -> None:
        super().__init__(f"{source.name}, {tensor}", len(data))
        self.source, self.tensor, self.data = source, tensor, data

    def _make(self) -> memoryview:
        return memoryview(bytearray(self.data))


def constant(source: ByteSource, name: str, dtype: str, number: npt.NDArray[Any]) -> StoredTensor:
    """Return a stored tensor of one number, little-endian, that a file holds in its header."""
    data = number.tobytes()
    return StoredTensor(name, dtype, (), ConstantBytes(source, name, data), 0, len(data))


def _check(cut: slice, n: int) -> None:
    if not 0 <= cut.start <= cut.stop <= n:
        raise QuantError(f"There are no elements {cut.start} to {cut.stop} on an axis of length {n}.")


class _Copy(MemorySource):
    """The bytes of one tensor of a file, at their offsets in the file."""

    def __init__(self, name: str, data: memoryview, offset: int) -> None:
        super().__init__(name, data)
        self._start = offset

    def read(self, offset: int, size: int) -> memoryview:
        """Read as `ByteSource.read` does."""
        return super().read(offset - self._start, size)


def _runs(shape: tuple[int, ...], cut: list[slice], itemsize: int) -> tuple[int, int, int, int]:
    """Return a box of a row-major array as equidistant runs of bytes: start, size, stride and count.

    The box is cut along at most two axes, the first of them axis 0.
    """
    inner = [itemsize * math.prod(shape[i + 1 :]) for i in range(len(shape))]
    for s, n in zip(cut, shape, strict=True):
        _check(s, n)
    partial = [i for i, (s, n) in enumerate(zip(cut, shape, strict=True)) if (s.start, s.stop) != (0, n)]
    start = sum(s.start * size for s, size in zip(cut, inner, strict=True))
    if not partial or partial == [0]:
        total = itemsize * math.prod(s.stop - s.start for s in cut)
        return start, total, total, 1
    last = partial[-1]
    if partial not in ([last], [0, last]):
        raise QuantError("A box of a stored tensor can only be cut along axis 0 and one more axis.")
    size = (cut[last].stop - cut[last].start) * inner[last]
    return start, size, inner[last] * shape[last], math.prod(s.stop - s.start for s in cut[:last])


@dataclass(frozen=True)
class TensorQuantizer:
    """The names of a tensor's scale and zero point: one number each, or one per index of ``axis``."""

    scale: str
    zero_point: str
    axis: int | None


@dataclass(frozen=True)
class TorchQuantized:
    """The quantized tensors of a file of PyTorch (torch.ao), by name."""

    quantizers: Mapping[str, TensorQuantizer]


@dataclass(frozen=True)
class Container:
    """The headers of one file.

    ``metadata``: the header's texts, or the keys and values of a GGUF file. ``structure``: which tensors are
    weights and which are their parameters, if the file itself says so (QDQ pairs of ONNX, torch.ao's
    quantizers). ``is_self_described``: whether the metadata replace config.json.
    """

    tensors: Mapping[str, StoredTensor]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    structure: Any = None
    is_self_described: bool = False
