"""The legacy form of imatrix files (``.dat``), which llama-imatrix wrote before it wrote GGUF.

int32 number of entries, then for each: int32 length and name of the weight, int32 calls, int32 number of values, float32
values (the mean of x^2 over the tokens, times calls). Then, in newer files, int32 number of chunks, int32 length and name of the
data set. Source: ggml-org/llama.cpp, tools/imatrix/imatrix.cpp, `load_imatrix_legacy`.
"""

import struct
from typing import Any

from quantcore.checkpoints.containers.container import Container
from quantcore.checkpoints.containers.gguf.header import MAGIC
from quantcore.checkpoints.containers.gguf.tensors import open_gguf
from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.files.sources import ByteSource
from quantcore.checkpoints.problem import named
from quantcore.errors import QuantError

MAX_ENTRIES, MAX_NAME = 2**17, 4096
_LEAST = 12  # bytes of an entry without name and values


def open_imatrix(source: ByteSource) -> Container:
    """Read the names and places of an imatrix's entries, in either form: both use the same extensions.

    Raises:
        QuantError: as `open_gguf` and `_open_dat`.
    """
    is_gguf = source.size >= 4 and bytes(source.read(0, 4)) == MAGIC
    return open_gguf(source) if is_gguf else _open_dat(source)


def _open_dat(source: ByteSource) -> Container:
    """Read names, calls and lengths, and no values; the metadata's ``imatrix.calls`` are the calls by name.

    Raises:
        QuantError: the file is not an imatrix, or is truncated.
    """
    name = named(source.name)
    count = _numbers(source, 0, 1)[0] if source.size >= 4 else -1
    if not 1 <= count <= MAX_ENTRIES or 4 + count * _LEAST > source.size:
        raise QuantError(
            f"{name} does not begin like an imatrix file; give a .dat or .gguf that llama-imatrix wrote."
        )
    tensors: dict[str, StoredTensor] = {}
    calls: dict[str, int] = {}
    position = 4
    for i in range(count):
        length = _numbers(source, position, 1)[0]
        if not 1 <= length <= MAX_NAME:
            raise QuantError(
                f"{name} claims a name of {length:,} bytes for entry {i + 1:,}; download it again."
            )
        raw = bytes(source.read(position + 4, length + 8))
        try:
            weight = raw[:length].decode("utf-8")
        except UnicodeDecodeError:
            raise QuantError(
                f"The name of entry {i + 1:,} of {name} is not UTF-8 text; download it again."
            ) from None
        calls[weight], size = struct.unpack("<ii", raw[length:])
        position += 12 + length
        if size < 1 or position + 4 * size > source.size:
            raise QuantError(
                f"{name} claims {size:,} values for {named(weight)}, which is not possible in a file of "
                f"{source.size:,} bytes; download it again."
            )
        if weight in tensors:
            raise QuantError(f"{name} has two entries {named(weight)}; compute the imatrix again.")
        tensors[weight] = StoredTensor(weight, "F32", (1, size), source, position, 4 * size)
        position += 4 * size
    return Container(tensors, {"imatrix.calls": calls} | _tail(source, position), is_self_described=True)


def _tail(source: ByteSource, position: int) -> dict[str, Any]:
    """Return the number of chunks and the name of the data set, where the file has them."""
    left = source.size - position
    if left < 8:
        return {}
    chunks, length = _numbers(source, position, 2)
    if not 0 <= length <= min(MAX_NAME, left - 8):
        return {"imatrix.chunk_count": chunks}
    text = bytes(source.read(position + 8, length)).decode("utf-8", "replace")
    return {"imatrix.chunk_count": chunks, "imatrix.datasets": [text]}


def _numbers(source: ByteSource, offset: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}i", source.read(offset, 4 * count))
