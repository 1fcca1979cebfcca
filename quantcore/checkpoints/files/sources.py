"""The bytes of one file, read in ranges that are counted: on this machine, at a URL, or in memory."""

import os
import stat
import threading
import weakref
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quantcore.checkpoints.statement import NotFound, named
from quantcore.errors import QuantError
from quantcore.wording import megabytes

Range = tuple[int, int]  # the offset of some bytes, and how many
_MOST_RANGES = 1000  # tracked per file
# bytes of all derived sources; what was made last is kept in any case, since rows of it are read in turn
MAX_KEPT = 2**26
_MOST_KEPT = 32  # sources, of which each is looked at whenever one is made
_keeping = threading.Lock()
# those that keep their bytes, in the order in which they were made
_kept: list["weakref.ref[DerivedSource]"] = []


@dataclass
class ByteCounter:
    """How many bytes have been read, and in how many reads.

    ``before``: called with the number of bytes before each read, on the thread that reads; it may wait or
    raise. ``most_derived``: bytes of a tensor that may be computed in memory from the bytes of the files
    (`DerivedSource`).
    """

    total: int = 0
    reads: int = 0
    before: Callable[[int], None] | None = field(default=None, repr=False, compare=False)
    most_derived: int = field(default=2**62, repr=False, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    # for each file: the starts and ends, alternating, of the ranges read so far
    _ends: dict[str, list[int]] = field(default_factory=dict, repr=False, compare=False)

    def add(self, name: str, start: int, stop: int) -> None:
        """Count one read of a file."""
        with self._lock:
            self.total += stop - start
            self.reads += 1
            ends = self._ends.setdefault(name, [])
            first, last = bisect_left(ends, start), bisect_right(ends, stop)
            ends[first:last] = [start] * (first % 2 == 0) + [stop] * (last % 2 == 0)
            if len(ends) > 2 * _MOST_RANGES:
                self._ends[name] = _joined(ends)

    @property
    def different(self) -> int:
        """Bytes that have been read at least once."""
        with self._lock:
            return sum(
                stop - start
                for ends in self._ends.values()
                for start, stop in zip(ends[::2], ends[1::2], strict=True)
            )


def _joined(ends: list[int]) -> list[int]:
    """Return half as many ranges: the smaller gaps count as read, as ranges cost more than bytes."""
    inner = sorted(range(1, len(ends) - 1, 2), key=lambda i: ends[i] - ends[i + 1])[: len(ends) // 4]
    return [ends[0], *(end for i in sorted(inner) for end in ends[i : i + 2]), ends[-1]]


class ByteSource(ABC):
    """The bytes of one file.

    ``name``: as shown in messages and places.
    ``size``: in bytes.
    ``gap``: reading this many bytes more costs no more than another read, so reads that are closer together
        are joined.
    ``is_remote``: whether each read is a request to another machine.
    """

    gap = 4096
    is_remote = False

    def __init__(self, name: str, size: int, counter: ByteCounter | None = None) -> None:
        self.name, self.size = name, size
        self.counter = counter or ByteCounter()

    def read(self, offset: int, size: int) -> memoryview:
        """Return ``size`` bytes from ``offset``, writable, so that arrays can share them.

        Raises:
            QuantError: the range is not in the file, or the file can't be read or has become shorter.
        """
        if offset < 0 or size < 0 or offset + size > self.size:
            raise QuantError(
                f"{named(self.name)} has {self.size:,} bytes, but bytes {offset:,} to {offset + size:,} are "
                "needed; the file is truncated, download it again."
            )
        if size == 0:
            return memoryview(bytearray())
        if self.counter.before is not None:
            self.counter.before(size)
        try:
            data = self._read(offset, size)
        except QuantError:
            raise
        except Exception as error:  # whatever a file system raises
            raise QuantError(f"{named(self.name)} can't be read: {reason(error)}.") from None
        self._count(offset, offset + len(data))
        if len(data) != size:
            raise QuantError(
                f"{named(self.name)} became shorter while it was being read; open the checkpoint again."
            )
        return data

    def read_each(self, ranges: Sequence[Range]) -> list[memoryview]:
        """Return the bytes of each (offset, size), as `read` does; where a read has a price, for one.

        Raises:
            QuantError: as `read`.
        """
        return [self.read(offset, size) for offset, size in ranges]

    @property
    def in_file(self) -> int:
        """The bytes of a file that it takes: fewer if they are packed."""
        return self.size

    @property
    def identity(self) -> str:
        """A text that changes when the file does, as far as that shows without reading it; else empty."""
        return ""

    def _count(self, start: int, stop: int) -> None:
        self.counter.add(self.name, start, stop)

    @abstractmethod
    def _read(self, offset: int, size: int) -> memoryview: ...


class MemorySource(ByteSource):
    """Bytes that have been read or unpacked already; reads share them if they are writable."""

    gap = 2**62

    def __init__(self, name: str, data: bytearray | memoryview, counter: ByteCounter | None = None) -> None:
        super().__init__(name, len(data), counter)
        self._data = memoryview(data)

    def _read(self, offset: int, size: int) -> memoryview:
        data = self._data[offset : offset + size]
        return memoryview(bytearray(data)) if data.readonly else data


class DerivedSource(ByteSource):
    """Bytes that are computed from a file's when needed: reordered or converted; a few tensors' are kept."""

    gap = 2**62
    source: ByteSource
    _data: memoryview | None = None

    def _read(self, offset: int, size: int) -> memoryview:
        data = self._data
        if data is None:
            if self.size > self.most_derived:
                raise QuantError(
                    f"{named(self.name)} takes {megabytes(self.size)} of memory at once, more than the "
                    f"{megabytes(self.most_derived)} for it here; save it as a contiguous tensor."
                )
            data = self._make()
            self._keep(data)
        return data[offset : offset + size]

    @property
    def most_derived(self) -> int:
        """The limit of the file that its bytes come from."""
        source = self.source
        return source.most_derived if isinstance(source, DerivedSource) else source.counter.most_derived

    @abstractmethod
    def _make(self) -> memoryview: ...

    def _keep(self, data: memoryview) -> None:
        """Keep the bytes, in place of those that were made first if all would be too many."""
        with _keeping:
            kept = [each for ref in _kept if (each := ref()) is not None and each is not self]
            while len(kept) >= _MOST_KEPT or (kept and sum(e.size for e in kept) + self.size > MAX_KEPT):
                kept.pop(0)._data = None
            self._data = data
            _kept[:] = [weakref.ref(each) for each in (*kept, self)]


class LocalSource(ByteSource):
    """A regular file on this machine, opened anew for each read: releases can have hundreds of shards."""

    def __init__(self, path: str, name: str, counter: ByteCounter | None = None) -> None:
        self._path = path
        file, info = _open_regular(path, name)
        os.close(file)
        super().__init__(name, info.st_size, counter)
        self._identity = _identity(info)

    @property
    def identity(self) -> str:
        """Device, inode, size and time of the last change."""
        return " ".join(map(str, self._identity))

    def _read(self, offset: int, size: int) -> memoryview:
        file, _ = _open_regular(self._path, self.name)
        try:
            data = np.empty(size, np.uint8).data  # not zeroed first, unlike a bytearray
            done = 0
            while done < size:  # one read returns 2 GB at most
                count = os.preadv(file, [data[done:]], offset + done)
                if count == 0:
                    break
                done += count
            if _identity(os.fstat(file)) != self._identity:  # asked last: it may change while it is read
                raise QuantError(
                    f"{named(self.name)} has changed since it was opened; open the checkpoint again."
                )
            return data[:done]
        finally:
            os.close(file)


def _open_regular(path: str, name: str) -> tuple[int, os.stat_result]:
    """Open a regular file, without following a link or waiting for a pipe's writer."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        raise NotFound(f"{named(name)} can't be opened: {reason(error)}.") from None
    info = os.fstat(file)
    if not stat.S_ISREG(info.st_mode):
        os.close(file)
        raise QuantError(f"{named(name)} is not a regular file; give a file of the checkpoint.")
    return file, info


def _identity(info: os.stat_result) -> tuple[int, ...]:
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


class RemoteSource(ByteSource):
    """A file of an fsspec file system; each read is a request."""

    gap = 2**18
    is_remote = True

    def __init__(self, fs: Any, path: str, name: str, counter: ByteCounter | None = None) -> None:
        try:
            size = fs.size(path)
        except Exception as error:
            raise NotFound(f"{named(name)} can't be opened: {reason(error)}.") from None
        if size is None:
            raise QuantError(f"The size of {named(name)} is unknown; download it first.")
        super().__init__(name, int(size), counter)
        self._fs, self._path = fs, path

    def _read(self, offset: int, size: int) -> memoryview:
        return memoryview(bytearray(self._fs.cat_file(self._path, start=offset, end=offset + size)))[:size]


def reason(error: Exception) -> str:
    """Return the first line of an error's message; never the path, which may be a server's."""
    message = (isinstance(error, OSError) and error.strerror) or str(error)
    text = (message.splitlines() or [""])[0].rstrip(".")[:200]
    return text or type(error).__name__
