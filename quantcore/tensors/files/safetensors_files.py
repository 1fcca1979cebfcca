"""``.safetensors`` files: 8 bytes of length, a header in JSON that locates each tensor, then the data.

Format: huggingface/safetensors, README, "Format". The header is parsed here: the library's parser copies all
data (0.3 s for 256 MB; this takes 0.2 ms), keeps only the last of two tensors with the same name, and rarely
says which tensor is wrong.
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from quantcore.collection import uncollected
from quantcore.errors import QuantError
from quantcore.tensors.files.entries import USUAL_NAMES, Entry, TensorInfo, check_claim, load_json
from quantcore.wording import shape_text, short

MAX_HEADER = 16 * 2**20  # the library's limit is 100 MB; the header of 50,000 tensors takes 6 MB
MAX_TENSORS = 80_000  # of one file; 30 billion parameters in 128 experts, as GPTQ stores them, are 75,000
# bits of one element; F6 types and F4 are packed
SAFETENSORS_BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "BOOL": 8, "C64": 64,
    "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip


@dataclass(frozen=True)
class SafetensorsHeader:
    """What a header says: each tensor with the offset of its bytes in the file, and the file's metadata."""

    tensors: dict[str, tuple[TensorInfo, int]]
    metadata: dict[str, str]


def read_safetensors_header(
    read: Callable[[int, int], bytes | memoryview], size: int, name: str
) -> SafetensorsHeader:
    """Read the header of a file of ``size`` bytes, and nothing else of it.

    Args:
        read: returns the bytes at (offset, number of bytes).

    Raises:
        QuantError: the header can't be read, or does not describe the bytes that follow it.
    """
    text, start = _read_text(read, size, name)
    with uncollected():
        return _described(text, start, size, name)


def _described(text: str, start: int, size: int, name: str) -> SafetensorsHeader:
    """Return what the JSON of a header says; the data begin at ``start``."""
    header = load_json(text, f"header of {name}")
    if not isinstance(header, dict):
        raise QuantError(f"The header of {_quoted(name)} is not a JSON object; save it again.")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise QuantError(
            f"The metadata in the header of {_quoted(name)} must map strings to strings; save it again."
        )
    if len(header) > MAX_TENSORS:
        raise QuantError(
            f"{_quoted(name)} has {len(header):,} tensors; at most {MAX_TENSORS:,} are read from one file, "
            "so save them in several."
        )
    records = {tensor: _read_record(tensor, record) for tensor, record in header.items()}
    unknown = [t for t, (info, _) in records.items() if info.dtype not in SAFETENSORS_BITS]
    if unknown and len(unknown) == len(records):  # others can be read beside it
        raise QuantError(_unknown(records[unknown[0]][0]))
    _check_spans(records, size - start, name)
    return SafetensorsHeader(
        {tensor: (info, start + begin) for tensor, (info, begin) in records.items()}, metadata
    )


def _read_text(read: Callable[[int, int], bytes | memoryview], size: int, name: str) -> tuple[str, int]:
    """Return the header's text and the offset of the data."""
    length = struct.unpack("<Q", read(0, 8))[0] if size >= 8 else 0
    if length > MAX_HEADER or not 2 <= length <= size - 8:
        raise QuantError(_bad_length(length, size, name))
    raw = bytes(read(8, length))
    if raw[:1] != b"{":
        raise QuantError(
            f"{_quoted(name)} does not begin like a .safetensors file: its header does not begin with {{; "
            "save it with save_file."
        )
    try:
        return raw.decode("utf-8"), 8 + length
    except UnicodeDecodeError:
        raise QuantError(
            f"The header of {_quoted(name)} is not UTF-8 text; save or upload it again."
        ) from None


def _bad_length(length: int, size: int, name: str) -> str:
    if size < 10 or length < 2:
        return f"{_quoted(name)} does not begin like a .safetensors file; save it with save_file."
    if length > size - 8:
        return (
            f"{_quoted(name)} does not begin like a complete .safetensors file: it claims a header length of "
            f"{length:,} bytes, but the file size is {size:,}; save or download it again."
        )
    return f"{_quoted(name)} claims a header length of {length:,} bytes; the limit is {MAX_HEADER:,}."


def _check_spans(records: dict[str, tuple[TensorInfo, int]], length: int, name: str) -> None:
    """Check that the tensors cover the ``length`` bytes of data without gaps and overlaps."""
    reached, last = 0, ""
    for begin, end, tensor in sorted((b, b + info.nbytes, tensor) for tensor, (info, b) in records.items()):
        if begin != reached:
            problem = (
                f"the tensors {_quoted(last)} and {_quoted(tensor)} overlap"
                if begin < reached
                else f"the tensor {_quoted(tensor)} leaves a gap"
            )
            raise QuantError(f"In {_quoted(name)}, {problem}; save or upload the file again.")
        reached, last = end, tensor
        if end > length:
            raise QuantError(
                f"{_quoted(name)} is truncated: the tensor {_quoted(tensor)} ends beyond the file, which has "
                f"{length:,} of the expected {max(b + i.nbytes for i, b in records.values()):,} bytes of "
                "data; download it again."
            )
    if reached != length:
        raise QuantError(
            f"{_quoted(name)} contains {length - reached:,} bytes that belong to no tensor; save it again."
        )


def _read_record(tensor: str, record: Any) -> tuple[TensorInfo, int]:
    """Return one tensor and where its data begin, after checking that shape, dtype and offsets agree."""
    if not _is_record(record):
        raise QuantError(
            f"The header's record of {_quoted(tensor)} is not {{dtype, shape, data_offsets}}; save it again."
        )
    dtype, shape, offsets = record["dtype"], record["shape"], record["data_offsets"]
    begin, end = offsets
    elements = check_claim(tensor, tuple(shape), 1)
    known = dtype in SAFETENSORS_BITS  # of another dtype, only the offsets tell
    bits = elements * SAFETENSORS_BITS[dtype] if known else max(0, end - begin) * 8
    if (end - begin) * 8 != bits or end >= 2**48:
        raise QuantError(
            f"In the header, the shape of {_quoted(tensor)} does not match its number of bytes: {dtype} of "
            f"shape {shape_text(tuple(shape))} takes {_bytes(-(-bits // 8))}, the offsets span "
            f"{_bytes(end - begin)}; save the file again."
        )
    return TensorInfo(tensor, tuple(shape), dtype, end - begin), begin


def _unknown(info: TensorInfo) -> str:
    return f"{_quoted(info.name)} has the unknown dtype {_quoted(info.dtype)}; save it as F32."


def _is_record(record: Any) -> bool:
    if not isinstance(record, dict) or set(record) != {"dtype", "shape", "data_offsets"}:
        return False
    dtype, shape, offsets = record["dtype"], record["shape"], record["data_offsets"]
    return isinstance(dtype, str) and _are_sizes(shape) and _are_sizes(offsets) and len(offsets) == 2


def _quoted(name: str) -> str:
    return short(name, 120)  # names of models' tensors are long


def _bytes(size: int) -> str:
    return f"{size:,} bytes" if abs(size) < 2**48 else "over 2^48 bytes"


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and v >= 0 for v in values)


def open_safetensors(data: memoryview, name: str) -> dict[str, Entry]:
    """Return the tensors of a ``.safetensors`` file by name.

    Raises:
        QuantError: the header can't be read, or does not describe the bytes that follow it.
    """
    header = read_safetensors_header(lambda offset, size: data[offset : offset + size], len(data), name)
    return {
        tensor: Entry(info, partial(_load, info, data[offset : offset + info.nbytes]))
        for tensor, (info, offset) in header.tensors.items()
    }


def _load(info: TensorInfo, data: memoryview) -> npt.NDArray[Any]:
    if info.dtype == "C64":
        raise QuantError(f"{short(info.name)} contains complex numbers; save an array of real numbers.")
    if info.dtype not in SAFETENSORS_BITS:
        raise QuantError(_unknown(info))
    if info.dtype not in USUAL_NAMES:
        raise QuantError(
            f"{short(info.name)} contains {info.dtype} codes, which have no values without their scales; "
            "dequantize it and save it as F32."
        )
    halves = info.dtype == "BF16"  # the upper half of a float32
    dtype = np.dtype("uint16" if halves else USUAL_NAMES[info.dtype]).newbyteorder("<")
    flat = np.frombuffer(data, dtype, count=math.prod(info.shape))
    if halves:
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    return flat.reshape(info.shape)
