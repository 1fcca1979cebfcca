"""The members of a zip file as ranges of its bytes; every claimed size is checked against a limit first."""

import io
import struct
import zipfile
import zlib

from quantcore.checkpoints.files.sources import ByteSource, DerivedSource
from quantcore.checkpoints.problem import named
from quantcore.errors import QuantError
from quantcore.wording import megabytes, short

MAX_DIRECTORY = 8 * 2**20
MAX_MEMBERS = 50_000
MAX_UNPACKED = 512 * 2**20  # of a compressed member, which must be unpacked completely
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    RuntimeError,
    ValueError,
    struct.error,
    LookupError,
    NotImplementedError,
)


class Archive:
    """The directory of a zip file.

    Raises:
        QuantError: it is not a zip file, is damaged, or has too long a directory.
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
                f"{named(source.name)} has {len(infos):,} members; at most {MAX_MEMBERS:,} are read."
            )
        files = [
            info for info in infos if not info.filename.endswith("/")
        ]  # is_dir() fails for an empty name
        self.members = {info.filename: info for info in files}
        if len(self.members) < len(files):
            raise QuantError(f"{named(source.name)} has two members with the same name; save it again.")

    def start(self, member: str, size: int) -> bytes:
        """Return the first ``size`` bytes of a member, unpacked.

        Raises:
            QuantError: it is damaged, encrypted or compressed in an unusual way.
        """
        info = self._checked(member)
        if info.compress_type == zipfile.ZIP_STORED:
            offset = self.offset(member)
            return bytes(self.source.read(offset, min(size, info.file_size)))
        try:
            with self._zip.open(info) as file:
                return file.read(size)
        except QuantError:  # also a ValueError
            raise
        except _BROKEN:
            raise QuantError(self._damaged(member)) from None

    def bytes_of(self, member: str) -> tuple[ByteSource, int]:
        """Return where the bytes of a member lie: the file itself if they are stored as they are.

        Raises:
            QuantError: as `start`, or it is too large to be unpacked.
        """
        info = self._checked(member)
        if info.compress_type == zipfile.ZIP_STORED:
            return self.source, self.offset(member)
        if info.file_size > MAX_UNPACKED:
            raise QuantError(
                f"{short(member, 80)} in {short(self.source.name, 80)} takes {megabytes(info.file_size)} once unpacked; "
                f"the limit is {megabytes(MAX_UNPACKED)}. Save it without compression."
            )
        name = f"{self.source.name}, {member} unpacked"
        return DerivedSource(name, info.file_size, lambda: self._unpacked(member)), 0

    def _unpacked(self, member: str) -> memoryview:
        info = self.members[member]
        data = bytearray(self.start(member, info.file_size))
        if len(data) != info.file_size:
            raise QuantError(self._damaged(member))
        return memoryview(data)

    def offset(self, member: str) -> int:
        """Return the offset of a member's data in the file."""
        info = self.members[member]
        local = self.source.read(info.header_offset, 30)
        if bytes(local[:4]) != b"PK\x03\x04":
            raise QuantError(self._damaged(member))
        name, extra = struct.unpack("<HH", local[26:30])
        offset: int = info.header_offset + 30 + name + extra
        if offset + info.compress_size > self.source.size:
            raise QuantError(self._damaged(member))
        return offset

    def _checked(self, member: str) -> zipfile.ZipInfo:
        info = self.members[member]
        if info.flag_bits & 1:
            raise QuantError(
                f"{short(member, 80)} in {short(self.source.name, 80)} is encrypted; save it without encryption."
            )
        # zipfile unpacks bz2 and lzma without a limit
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise QuantError(
                f"{short(member, 80)} in {short(self.source.name, 80)} has an unusual compression; save it without compression."
            )
        if info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size:
            raise QuantError(self._damaged(member))
        return info

    def _damaged(self, member: str) -> str:
        return f"{short(member, 80)} in {short(self.source.name, 80)} is damaged; save the file again."


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
                f"{named(self._source.name)} has a directory of {size:,} bytes; at most {MAX_DIRECTORY:,} are read."
            )
        data = bytes(self._source.read(self._at, size))
        self._at += size
        return data
