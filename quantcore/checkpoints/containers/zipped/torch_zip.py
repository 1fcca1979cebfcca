"""PyTorch's ``.pt``, ``.pth`` and ``.bin``: a zip file of a pickle that names tensors, and their bytes.

The pickle is read, never run (see `pickle_program`); each tensor is a range of the file. Files from before PyTorch 1.6
are bare pickles, and are refused.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from quantcore.checkpoints.containers.container import Container
from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.containers.zipped.archive import MAX_UNPACKED, Archive
from quantcore.checkpoints.containers.zipped.pickle_program import Tensor, read_pickle
from quantcore.checkpoints.files.sources import ByteSource, DerivedSource
from quantcore.checkpoints.problem import named
from quantcore.errors import QuantError
from quantcore.tensors import CONVERT_TORCH, SAFETENSORS_BITS
from quantcore.wording import megabytes

MAX_PICKLE = 64 * 2**20
MAX_VISITS = 1_000_000


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
        raise QuantError(
            f"{named(source.name)} is not a zip file of tensors; save them as .safetensors."
        )
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


def _tensors(content: Any) -> Iterator[tuple[str, Tensor]]:
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
        if isinstance(value, Tensor):
            yield name or "tensor", value
        elif isinstance(value, dict | list | tuple):
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            todo += [(f"{name}.{key}" if name else str(key), inner) for key, inner in pairs][::-1]


def _stored(name: str, tensor: Tensor, archive: Archive, root: str) -> StoredTensor:
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
    source, offset = archive.bytes_of(member)
    if count == 0 or _is_row_major(tensor):
        return StoredTensor(
            name, tensor.dtype, tensor.shape, source, offset + tensor.offset * size, count * size
        )
    if count * size > max(room, MAX_UNPACKED):
        raise QuantError(
            f"{named(name)} takes {megabytes(count * size)} from {room:,} bytes; save it as a contiguous tensor."
        )
    other = DerivedSource(
        f"{source.name}, {name} rearranged",
        count * size,
        lambda: _rearranged(tensor, source, offset, size, reach),
    )
    return StoredTensor(name, tensor.dtype, tensor.shape, other, 0, count * size)


def _is_row_major(tensor: Tensor) -> bool:
    expected = 1
    for n, stride in zip(reversed(tensor.shape), reversed(tensor.stride), strict=True):
        if n != 1 and stride != expected:
            return False
        expected *= n
    return True


def _rearranged(tensor: Tensor, source: ByteSource, offset: int, size: int, reach: int) -> memoryview:
    """Return the elements of a view in row-major order."""
    start = tensor.offset * size
    data = np.frombuffer(source.read(offset + start, reach * size - start), f"<u{size}")
    view = np.lib.stride_tricks.as_strided(data, tensor.shape, [s * size for s in tensor.stride])
    return np.ascontiguousarray(view).reshape(-1).view(np.uint8).data
