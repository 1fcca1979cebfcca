"""Zip files, their members as ranges of bytes, among them NumPy's ``.npz``; and a single ``.npy``.

Every claimed size is checked against a limit first. Of arrays, only headers are read, and nothing is
unpickled.
"""

import io
import math
import struct
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

from quantcore.checkpoints.containers.stored import Container, StoredTensor, strided
from quantcore.checkpoints.files.sources import ByteSource, DerivedSource
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError
from quantcore.tensors import plain_npy_header, read_npy_header
from quantcore.wording import megabytes, shape_text, short

MAX_DIRECTORY = 8 * 2**20
MAX_MEMBERS = 20_000
MAX_UNUSUAL = 3_000  # arrays of an .npz whose headers are not as NumPy writes those of plain numbers
# of all compressed members, which must be unpacked completely to be checked and are looked at byte by byte
MAX_UNPACKED = 200_000_000
# what they may take beyond so many times what they take in the file: float32 masks of zeros and ones pack to
# a thirtieth, zeros alone to a thousandth
MAX_SMALL, MAX_TIMES = 64 * 2**20, 40
# bytes unpacked at once, and between two places to begin at; each of these takes 50 kB
_PART, _STEP = 2**18, 2**23
_AT_ONCE = 2**20  # bytes of a member that is unpacked as a whole
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    RuntimeError,
    ValueError,
    struct.error,
    LookupError,
)
_HEADER_BYTES = 2**14  # NumPy itself rejects headers of more than 10,000 bytes
_PLAIN_HEADER = 256  # bytes that have the header of an array of plain numbers
_AT_A_TIME = 2**12  # starts of members that are read together
_DTYPES = {
    "f8": "F64", "f4": "F32", "f2": "F16", "b1": "BOOL", "i8": "I64", "i4": "I32", "i2": "I16", "i1": "I8",
    "u8": "U64", "u4": "U32", "u2": "U16", "u1": "U8",
}  # fmt: skip


class Archive:
    """The directory of a zip file.

    Raises:
        QuantError: it is not a zip file, is damaged, has too long a directory, or claims too much once
            unpacked.
    """

    def __init__(self, source: ByteSource) -> None:
        self.source = source
        try:
            self._zip = zipfile.ZipFile(_File(source))
        except QuantError:  # also a ValueError
            raise
        except _BROKEN:
            raise QuantError(f"{named(source.name)} is a damaged zip file; download it again.") from None
        infos = self._zip.infolist()
        if len(infos) > MAX_MEMBERS:
            raise QuantError(
                f"{named(source.name)} has {len(infos):,} members; at most {MAX_MEMBERS:,} are read, so save "
                "it as .safetensors, or in several files."
            )
        # is_dir() fails for an empty name
        files = [info for info in infos if not info.filename.endswith("/")]
        ordered = sorted(files, key=lambda info: info.header_offset)
        for info, after in pairwise(ordered):
            if info.header_offset + 30 + info.compress_size > after.header_offset:
                raise QuantError(
                    f"In {named(source.name)}, the members {short(info.filename, 80)} and "
                    f"{short(after.filename, 80)} overlap; "
                    "save it again."
                )
        packed = [info for info in files if not _is_plain(info)]
        unpacked, in_file = sum(info.file_size for info in packed), sum(info.compress_size for info in packed)
        if unpacked > MAX_SMALL + MAX_TIMES * in_file:
            raise QuantError(
                f"{named(source.name)} has {megabytes(in_file)} of compressed members that claim "
                f"{megabytes(unpacked)} once unpacked, as little but zeros does; save it without compression."
            )
        if unpacked > MAX_UNPACKED:
            raise QuantError(
                f"The compressed members of {named(source.name)} take {megabytes(unpacked)} once unpacked; "
                f"the limit is {megabytes(MAX_UNPACKED)}. Save it without compression."
            )
        self._offsets: dict[str, int | None] = {}  # None: the member's own header is damaged
        self.members = {info.filename: info for info in files}
        if len(self.members) < len(files):
            raise QuantError(f"{named(source.name)} has two members with the same name; save it again.")

    def start(self, member: str, size: int) -> bytes:
        """Return the first ``size`` bytes of a member, unpacked.

        Raises:
            QuantError: it is damaged, encrypted or compressed in an unusual way.
        """
        ((_, found),) = self.starts([member], size)
        return found

    def starts(self, members: Sequence[str], size: int) -> Iterator[tuple[str, bytes]]:
        """Yield each member with its first ``size`` bytes, unpacked, in a few steps for all.

        Raises:
            QuantError: as `start`.
        """
        infos = [self._checked(member) for member in members]
        # deflating makes what it can't shorten longer by five bytes in 16 kB
        room = size + size // 1000 + 1024
        ranges = [
            (
                self.offset(info.filename),
                min(info.file_size, size) if _is_plain(info) else min(info.compress_size, room),
            )
            for info in infos
        ]
        for at in range(0, len(infos), _AT_A_TIME):
            some = infos[at : at + _AT_A_TIME]
            for info, data in zip(some, self.source.read_each(ranges[at : at + _AT_A_TIME]), strict=True):
                yield info.filename, bytes(data) if _is_plain(info) else self._unpacked(info, data, size)

    def _unpacked(self, info: zipfile.ZipInfo, packed: memoryview, size: int) -> bytes:
        """Return the first ``size`` bytes of a deflated member, of its own first bytes."""
        member, expected = info.filename, min(size, info.file_size)
        try:
            found = zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, expected + 1)[:size]
        except zlib.error:
            raise self._damaged(member) from None
        is_whole = len(found) == info.file_size
        if len(found) < expected or (is_whole and zlib.crc32(found) != info.CRC):
            raise self._damaged(member)
        return found

    def bytes_of(self, member: str) -> tuple[ByteSource, int]:
        """Return where the bytes of a member lie: the file itself if they are stored as they are.

        Raises:
            QuantError: as `start`.
        """
        info = self._checked(member)
        if _is_plain(info):
            return self.source, self.offset(member)
        packed = self.offset(member), info.compress_size
        return UnpackedBytes(self.source, member, *packed, info.file_size, info.CRC), 0

    def offset(self, member: str) -> int:
        """Return the offset of a member's data in the file."""
        if not self._offsets:  # of all: to read each on its own takes a tenth of a millisecond or more
            infos = [info for info in self.members.values() if info.header_offset + 30 <= self.source.size]
            headers = self.source.read_each([(info.header_offset, 30) for info in infos])
            self._offsets = dict.fromkeys(self.members)
            self._offsets |= {
                info.filename: self._begin(info, one) for info, one in zip(infos, headers, strict=True)
            }
        offset = self._offsets[member]
        if offset is None:
            raise self._damaged(member)
        return offset

    def _begin(self, info: zipfile.ZipInfo, header: memoryview) -> int | None:
        """Return where a member's data begin by its own header; None if that is damaged."""
        if bytes(header[:4]) != b"PK\x03\x04":
            return None
        name, extra = struct.unpack("<HH", header[26:30])
        offset: int = info.header_offset + 30 + name + extra
        return offset if offset + info.compress_size <= self.source.size else None

    def _checked(self, member: str) -> zipfile.ZipInfo:
        info = self.members[member]
        if info.flag_bits & 1:
            raise QuantError(f"{self._named(member)} is encrypted; save it without encryption.")
        # zipfile unpacks bz2 and lzma without a limit
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise QuantError(
                f"{self._named(member)} has an unusual compression; save it without compression."
            )
        if _is_plain(info) and info.compress_size != info.file_size:
            raise self._damaged(member)
        return info

    def _named(self, member: str) -> str:
        return _named(self.source, member)

    def _damaged(self, member: str) -> QuantError:
        return _damaged(self.source, member)


def _is_plain(info: zipfile.ZipInfo) -> bool:
    return info.compress_type == zipfile.ZIP_STORED


class _Place(NamedTuple):
    """Where unpacking can go on: at a byte of the packed data, with so many unpacked before it."""

    packed: int
    unpacked: int
    unpacker: Any  # zlib's, with the bytes that repetitions refer to


class UnpackedBytes(DerivedSource):
    """A deflated member of a zip file, of which only what is read is unpacked into memory.

    All of it is unpacked once, to check its size and CRC-32; then each read begins where the last one ended,
    or at the last of the places noted meanwhile.

    Args:
        source: the zip file; the member's ``packed`` bytes begin at ``offset``.
        member: its name.
        size: its bytes once unpacked, whose CRC-32 is ``crc``.
    """

    def __init__(
        self, source: ByteSource, member: str, offset: int, packed: int, size: int, crc: int
    ) -> None:
        super().__init__(f"{source.name}, {member} unpacked", size)
        self.source, self.member, self.offset, self.packed, self.crc = source, member, offset, packed, crc
        self._places: list[_Place] = []
        # where the last read ended: the offset of its last part, and the parts from it on
        self._going_on: tuple[int, Iterator[tuple[int, bytes]]] = -1, iter(())

    @property
    def in_file(self) -> int:
        """The packed bytes."""
        return self.packed

    def _read(self, offset: int, size: int) -> memoryview:
        return super()._read(offset, size) if self.size <= _AT_ONCE else self._unpack(offset, size)

    def _make(self) -> memoryview:
        return self._unpack(0, self.size)

    def _unpack(self, offset: int, size: int) -> memoryview:
        """Return some of the bytes."""
        self._places = self._places or self._checked()
        found, parts = bytearray(size), self._parts(offset)
        for start, data in parts:
            part = memoryview(data)[max(0, offset - start) : max(0, offset + size - start)]
            found[max(0, start - offset) : max(0, start - offset) + len(part)] = part
            if start + len(data) >= offset + size:
                if start + len(data) < self.size:  # rows are read in turn
                    self._going_on = start, chain([(start, data)], parts)
                break
        return memoryview(found)

    def _parts(self, offset: int) -> Iterator[tuple[int, bytes]]:
        """Return the parts from where the last read ended, if that is nearer to a byte than any place."""
        place = self._places[bisect_right(self._places, offset, key=lambda each: each.unpacked) - 1]
        (start, parts), self._going_on = self._going_on, (-1, iter(()))  # of one thread
        return parts if place.unpacked <= start <= offset else self._from(place)

    def _checked(self) -> list[_Place]:
        """Unpack all of it once, and note places to begin at."""
        places, crc, size = [_Place(0, 0, zlib.decompressobj(-zlib.MAX_WBITS))], 0, 0
        for _, data in self._from(places[0], places):
            crc, size = zlib.crc32(data, crc), size + len(data)
            if size > self.size:
                break
        if size != self.size or crc != self.crc:
            raise _damaged(self.source, self.member)
        return places

    def _from(self, place: _Place, noted: list[_Place] | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield the bytes from a place on, by parts, each with its offset; note places ``_STEP`` apart."""
        at, done, unpacker, left = place.packed, place.unpacked, place.unpacker.copy(), b""
        while not unpacker.eof:
            if not left and at < self.packed:
                left = bytes(self.source.read(self.offset + at, min(_PART, self.packed - at)))
                at += len(left)
            is_last = not left  # of long repetitions much may come after the last packed byte
            try:
                data = unpacker.decompress(left, _PART)
            except zlib.error:
                raise _damaged(self.source, self.member) from None
            if is_last and not data:
                break
            left = unpacker.unconsumed_tail
            if data:
                yield done, data
            done += len(data)
            if noted is not None and done >= noted[-1].unpacked + _STEP:
                noted.append(_Place(at - len(left), done, unpacker.copy()))


def _named(source: ByteSource, member: str) -> str:
    return f"{short(member, 80)} in {short(source.name, 80)}"


def _damaged(source: ByteSource, member: str) -> QuantError:
    return QuantError(f"{_named(source, member)} is damaged; save the file again.")


class _File(io.RawIOBase):
    """A byte source as a file for `zipfile`."""

    def __init__(self, source: ByteSource) -> None:
        self._source, self._at = source, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size}[whence]
        if start + offset < 0:
            raise ValueError("before the start")
        self._at = start + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        rest = max(0, self._source.size - self._at)
        size = rest if size < 0 else min(size, rest)
        if size > MAX_DIRECTORY:
            raise QuantError(
                f"{named(self._source.name)} has a directory of {size:,} bytes; "
                f"at most {MAX_DIRECTORY:,} are read."
            )
        data = bytes(self._source.read(self._at, size))
        self._at += size
        return data


def open_npz(source: ByteSource) -> Container:
    """Read the directory of the zip file and the header of each array.

    Raises:
        QuantError: the zip file is damaged, or a member is not an array of numbers.
    """
    archive, found, unusual = Archive(source), dict[str, StoredTensor](), 0
    for member in archive.members:
        if not member.endswith(".npy"):
            raise QuantError(
                f"{named(source.name)} holds {short(member, 80)}, which is not an array; save only arrays."
            )
    for member, header in archive.starts(list(archive.members), _PLAIN_HEADER):
        name = member.removesuffix(".npy")
        if plain_npy_header(header) is None:
            unusual += 1
            if unusual > MAX_UNUSUAL:
                raise QuantError(
                    f"{named(source.name)} has more than {MAX_UNUSUAL:,} arrays whose headers are not as "
                    "NumPy writes them; save it again with np.savez, or as .safetensors."
                )
            header = archive.start(member, _HEADER_BYTES)
        data, offset = archive.bytes_of(member)
        found[name] = _stored(name, header, data, offset, archive.members[member].file_size)
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
    if any(n < 0 or n >= 2**48 for n in shape) or math.prod(shape) * dtype.itemsize != size - begin:
        raise QuantError(
            f"The header of {short(name, 80)} claims the shape {shape_text(shape)} of {dtype}, but "
            f"{size - begin:,} bytes follow; "
            "save the array again."
        )
    whole = StoredTensor(name, _DTYPES[code], shape, source, offset + begin, size - begin)
    axes = range(len(shape))
    strides = tuple(math.prod(shape[:i] if fortran else shape[i + 1 :]) for i in axes)
    return strided(whole, strides, dtype)
