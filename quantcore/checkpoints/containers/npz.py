"""NumPy's ``.npz``, a zip file of ``.npy``, and a single ``.npy``: headers alone, nothing unpickled."""

from typing import Any

import numpy as np

from quantcore.checkpoints.containers.archive import Archive
from quantcore.checkpoints.containers.stored import Container, StoredTensor
from quantcore.checkpoints.files.sources import ByteSource, DerivedSource
from quantcore.checkpoints.problem import named
from quantcore.errors import QuantError
from quantcore.tensors import read_npy_header
from quantcore.wording import short

_HEADER_BYTES = 2**14  # NumPy itself rejects headers of more than 10,000 bytes
_DTYPES = {
    "f8": "F64", "f4": "F32", "f2": "F16", "b1": "BOOL", "i8": "I64", "i4": "I32", "i2": "I16", "i1": "I8",
    "u8": "U64", "u4": "U32", "u2": "U16", "u1": "U8",
}  # fmt: skip


def open_npz(source: ByteSource) -> Container:
    """Read the directory of the zip file and the header of each array.

    Raises:
        QuantError: the zip file is damaged, or a member is not an array of numbers.
    """
    archive = Archive(source)
    found = {}
    for member, info in archive.members.items():
        if not member.endswith(".npy"):
            raise QuantError(
                f"{named(source.name)} holds {short(member, 80)}, which is not an array; save only arrays."
            )
        name = member.removesuffix(".npy")
        header = archive.start(member, _HEADER_BYTES)
        data, offset = archive.bytes_of(member)
        found[name] = _stored(name, header, data, offset, info.file_size)
    return Container(found)


def open_npy(source: ByteSource) -> Container:
    """Read the header of a single array, which is named after its file.

    Raises:
        QuantError: it is not an array of numbers.
    """
    name = source.name.rpartition("/")[2].removesuffix(".npy")
    header = bytes(source.read(0, min(_HEADER_BYTES, source.size)))
    return Container({name: _stored(name, header, source, 0, source.size)})


def _stored(name: str, start: bytes, source: ByteSource, offset: int, size: int) -> StoredTensor:
    shape, fortran, dtype, begin = read_npy_header(start, name)
    code = dtype.str[1:]
    if dtype.hasobject or code not in _DTYPES:
        raise QuantError(
            f"{short(name, 80)} holds {dtype}, not numbers of up to 64 bits; save an array of numbers."
        )
    if (
        any(n < 0 or n >= 2**48 for n in shape)
        or np.prod(shape, dtype=object) * dtype.itemsize != size - begin
    ):
        raise QuantError(
            f"The header of {short(name, 80)} claims the shape {shape} of {dtype}, but {size - begin:,} bytes follow; "
            "save the array again."
        )
    length = size - begin
    if dtype.str[0] == ">" or (fortran and len(shape) > 1):
        other = DerivedSource(
            f"{source.name}, {name} rearranged",
            length,
            lambda: _rearranged(source, offset + begin, shape, fortran, dtype),
        )
        return StoredTensor(name, _DTYPES[code], shape, other, 0, length)
    return StoredTensor(name, _DTYPES[code], shape, source, offset + begin, length)


def _rearranged(
    source: ByteSource, offset: int, shape: tuple[int, ...], fortran: bool, dtype: np.dtype[Any]
) -> memoryview:
    """Return the elements in C order and little-endian."""
    data = np.frombuffer(source.read(offset, int(np.prod(shape)) * dtype.itemsize), dtype)
    array = data.reshape(shape, order="F" if fortran else "C").astype(dtype.newbyteorder("<"), order="C")
    return array.reshape(-1).view(np.uint8).data
