"""NumPy's ``.npy`` and ``.npz``: headers before data, nothing unpickled.

The format of ``.npy`` is in numpy's documentation, ``numpy.lib.format``; a ``.npz`` is a zip of them.
Every claimed size is compared with the actual bytes before anything is allocated, so a zip that claims
gigabytes is rejected on its directory alone.
"""

import io
import math
import re
import struct
import warnings
import zipfile
import zlib
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from quantcore.errors import QuantError
from quantcore.tensors.files.entries import Entry, TensorInfo, check_claim, check_dtype, check_many
from quantcore.wording import megabytes, short

_HEADER_BYTES = 2**14  # NumPy itself rejects headers of more than 10,000 bytes
_DIRECTORY_BYTES = 2**20  # of a zip: about 15,000 members
_N = rb"(?:0|[1-9]\d{0,18})"
# version 1, the length, and a dict of the type, the order and the shape
_PLAIN = re.compile(
    rb"\x93NUMPY\x01\x00(..)\{'descr': '([<>|][biuf]\d{1,2})', 'fortran_order': (True|False), "
    rb"'shape': \(((?:%b,|%b(?:, %b){1,62})?)\), \} *\n" % (_N, _N, _N), re.DOTALL,
)  # fmt: skip
_MOST_HEADER = 10_000  # bytes, of NumPy
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
    struct.error,
    LookupError,
)

CONVERT_TORCH = (
    "Convert it in Python: x = torch.load(path, weights_only=True); "
    'safetensors.torch.save_file(x, "x.safetensors") for a dict of tensors, '
    'or np.save("x.npy", x.numpy()) for one.'
)

Header = tuple[tuple[int, ...], bool, np.dtype[Any], int]


def open_npy(data: memoryview, name: str) -> dict[str, Entry]:
    """Return the one tensor of a ``.npy`` file, under the name of the file.

    Raises:
        QuantError: the header can't be read, or does not match the length of the file.
    """
    header = read_npy_header(bytes(data[:_HEADER_BYTES]), name)
    info = _info(name, header, len(data))
    return {name: Entry(info, partial(_to_array, name, data, header))}


def open_npz(data: memoryview, name: str, limit: int) -> dict[str, Entry]:
    """Return the tensors of a ``.npz`` file by their names in it.

    Raises:
        QuantError: the zip is damaged or encrypted, or its arrays take more than ``limit`` bytes together.
    """
    _check_directory(data, name)
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except _BROKEN:
        raise QuantError(f"{short(name)} is a damaged zip; save it again with np.savez.") from None
    members = [m for m in archive.infolist() if not m.is_dir()]
    if any(not m.filename.endswith(".npy") for m in members) or not members:
        raise QuantError(
            f"{short(name)} is a zip, but does not contain only .npy arrays; save it with np.savez."
        )
    check_many(len(members), name)
    total = sum(m.file_size for m in members)
    if total > limit:
        raise QuantError(
            f"{short(name)} claims {megabytes(total)} once unpacked; the limit is {megabytes(limit)}. "
            "Save fewer arrays, or slices of them."
        )
    entries: dict[str, Entry] = {}
    for member in members:
        array_name = member.filename.removesuffix(".npy")
        if array_name in entries:
            raise QuantError(f"{short(name)} contains two arrays named {short(array_name)}; rename one.")
        header = read_npy_header(_unpack(archive, member, _HEADER_BYTES), array_name)
        info = _info(array_name, header, member.file_size)
        entries[array_name] = Entry(info, partial(_load_member, archive, member, array_name, header))
    x, dtype = entries.get("x"), next((m for m in members if m.filename == "dtype.npy"), None)
    if x is not None and dtype is not None and x.info.dtype_name == "float32":
        # a result of `quantcore.export` says the dtype of x, since NumPy has no bfloat16
        text = np.array("bfloat16").astype("<U8").tobytes()
        if dtype.file_size <= _HEADER_BYTES and _unpack(archive, dtype, _HEADER_BYTES).endswith(text):
            entries["x"] = replace(x, info=replace(x.info, dtype="bfloat16"))
    return entries


def _check_directory(data: memoryview, name: str) -> None:
    """Reject a zip whose directory alone would take long to read; zipfile has no limit of its own."""
    tail = bytes(data[-65_557:])  # the end record and the longest comment
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) < end + 22:
        raise QuantError(f"{short(name)} is a truncated zip; upload it again.")
    directory = struct.unpack("<I", tail[end + 12 : end + 16])[0]
    if b"data.pkl" in tail:
        raise QuantError(f"{short(name)} is a torch checkpoint, which contains a pickle. {CONVERT_TORCH}")
    if directory > _DIRECTORY_BYTES or b"PK\x06\x07" in tail[max(end - 20, 0) : end]:
        raise QuantError(f"{short(name)} is a zip with too many members; save fewer arrays.")


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, size: int) -> bytes:
    """Return the first ``size`` bytes of a member; its checksum is verified when it is read to the end."""
    name = member.filename
    if member.flag_bits & 1:
        raise QuantError(f"{short(name)} in the .npz is encrypted; save it without a password.")
    # zipfile unpacks bz2 and lzma without a limit
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise QuantError(
            f"{short(name)} in the .npz uses an unsupported compression; save it with np.savez_compressed."
        )
    try:
        with archive.open(member) as file:
            return file.read(size)
    except _BROKEN:
        raise QuantError(f"{short(name)} in the .npz is damaged; save it again with np.savez.") from None


def _load_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, header: Header
) -> npt.NDArray[Any]:
    data = _unpack(archive, member, member.file_size)
    if len(data) != member.file_size:
        raise QuantError(f"{short(name)} in the .npz is truncated; save it again with np.savez.")
    return _to_array(name, memoryview(data), header)


def plain_npy_header(start: bytes) -> Header | None:
    """Return what `read_npy_header` does, in a tenth of its time, if NumPy wrote the header for an array of
    plain numbers; else None."""
    match = _PLAIN.match(start)
    if match is None or match.end() != 10 + int.from_bytes(match[1], "little") or match.end() > _MOST_HEADER:
        return None
    try:
        dtype = np.dtype(match[2].decode())
    except TypeError:
        return None
    shape = tuple(int(n) for n in match[4].split(b",") if n.strip())
    return shape, match[3] == b"True", dtype, match.end()


def read_npy_header(start: bytes, name: str) -> Header:
    """Return shape, Fortran order, dtype and the offset of the data, from the first bytes of a ``.npy`` file.

    Raises:
        QuantError: they can't be read.
    """
    plain = plain_npy_header(start)
    if plain is not None:
        return plain
    stream = io.BytesIO(start)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # headers written by Python 2
            version = npy_format.read_magic(stream)
            read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
            shape, fortran, dtype = read(stream)
    except Exception:  # NumPy evaluates the header as a literal: any error means a bad header
        raise QuantError(f"{short(name)} has no readable .npy header; save it again with np.save.") from None
    return shape, fortran, dtype, stream.tell()


def _info(name: str, header: Header, length: int) -> TensorInfo:
    shape, _, dtype, start = header
    claimed = check_claim(name, shape, dtype.itemsize)
    if not dtype.hasobject and claimed != length - start:
        raise QuantError(
            f"The header of {short(name)} claims {megabytes(claimed)} of data, but "
            f"{megabytes(length - start)} follow; save the array again."
        )
    return TensorInfo(name, shape, str(dtype), claimed)


def _to_array(name: str, data: memoryview, header: Header) -> npt.NDArray[Any]:
    shape, fortran, dtype, start = header
    check_dtype(name, dtype)
    flat = np.frombuffer(data, dtype=dtype, count=math.prod(shape), offset=start)
    return flat.reshape(shape, order="F" if fortran else "C")
