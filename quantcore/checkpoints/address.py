"""Where a checkpoint lies, and its bytes: a local file or folder, or any fsspec address.

A `ByteSource` reads ranges and counts them. A `Folder` opens files by name, and nothing outside itself: no absolute
name, no ``..``, no symbolic link that leaves it, nothing that is not a regular file.
"""

import os
import re
import stat
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from quantcore.checkpoints.problem import NotFound
from quantcore.errors import QuantError
from quantcore.tensors import short

MAX_NAMES = 100_000  # files of one folder


@dataclass
class ByteCounter:
    """How many bytes have been read, and in how many reads."""

    total: int = 0
    reads: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, size: int) -> None:
        """Count one read."""
        with self._lock:
            self.total += size
            self.reads += 1


class ByteSource(ABC):
    """The bytes of one file.

    ``name``: as messages and places show it. ``size``: bytes. ``gap``: reading this many bytes costs no more than
    another read, so that reads closer together are joined.
    """

    gap = 4096

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
                f"{_quoted(self.name)} has {self.size:,} bytes, but bytes {offset:,} to {offset + size:,} are needed; "
                "the file is truncated, download it again."
            )
        if size == 0:
            return memoryview(bytearray())
        try:
            data = self._read(offset, size)
        except QuantError:
            raise
        except Exception as error:  # whatever a file system raises
            raise QuantError(f"{_quoted(self.name)} can't be read: {_reason(error)}.") from None
        self.counter.add(len(data))
        if len(data) != size:
            raise QuantError(
                f"{_quoted(self.name)} has become shorter while it was read; open the checkpoint again."
            )
        return data

    @abstractmethod
    def _read(self, offset: int, size: int) -> memoryview: ...


class MemorySource(ByteSource):
    """Bytes that have been read or unpacked already; its reads share them."""

    gap = 2**62

    def __init__(self, name: str, data: bytearray | memoryview) -> None:
        super().__init__(name, len(data))
        self._data = memoryview(data)

    def _read(self, offset: int, size: int) -> memoryview:
        return self._data[offset : offset + size]


class DerivedSource(ByteSource):
    """Bytes that are computed from those of a file when they are first needed: unpacked, or in another order."""

    gap = 2**62

    def __init__(self, name: str, size: int, make: Callable[[], memoryview]) -> None:
        super().__init__(name, size)
        self._make = make

    @cached_property
    def _data(self) -> memoryview:
        return self._make()

    def _read(self, offset: int, size: int) -> memoryview:
        return self._data[offset : offset + size]


class LocalSource(ByteSource):
    """A regular file of this machine, opened for each read: releases have hundreds of shards."""

    def __init__(self, path: str, name: str, counter: ByteCounter | None = None) -> None:
        self._path = path
        file, info = _open_regular(path, name)
        os.close(file)
        super().__init__(name, info.st_size, counter)
        self._identity = _identity(info)

    def _read(self, offset: int, size: int) -> memoryview:
        file, info = _open_regular(self._path, self.name)
        try:
            if _identity(info) != self._identity:
                raise QuantError(
                    f"{_quoted(self.name)} has changed since it was opened; open the checkpoint again."
                )
            data = np.empty(size, np.uint8).data  # not zeroed, as a bytearray would be
            done = 0
            while done < size:  # one read returns 2 GB at most
                count = os.preadv(file, [data[done:]], offset + done)
                if count == 0:
                    break
                done += count
            return data[:done]
        finally:
            os.close(file)


def _open_regular(path: str, name: str) -> tuple[int, os.stat_result]:
    """Open a regular file, not through a link, and without waiting for a pipe's writer."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        raise NotFound(f"{_quoted(name)} can't be opened: {_reason(error)}.") from None
    info = os.fstat(file)
    if not stat.S_ISREG(info.st_mode):
        os.close(file)
        raise QuantError(f"{_quoted(name)} is not a regular file; give a file of the checkpoint.")
    return file, info


def _identity(info: os.stat_result) -> tuple[int, ...]:
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


class RemoteSource(ByteSource):
    """A file of an fsspec file system; each read is a request."""

    gap = 2**18

    def __init__(self, fs: Any, path: str, name: str, counter: ByteCounter | None = None) -> None:
        try:
            size = fs.size(path)
        except Exception as error:
            raise QuantError(f"{_quoted(name)} can't be opened: {_reason(error)}.") from None
        if size is None:
            raise QuantError(f"{_quoted(name)} does not tell its size; download it first.")
        super().__init__(name, int(size), counter)
        self._fs, self._path = fs, path

    def _read(self, offset: int, size: int) -> memoryview:
        return memoryview(bytearray(self._fs.cat_file(self._path, start=offset, end=offset + size)))[:size]


class Folder(ABC):
    """The files of one release."""

    def __init__(self) -> None:
        self.counter = ByteCounter()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of its files, sorted; of the folder itself, not of folders in it.

        Raises:
            QuantError: it can't be listed, or has more than `MAX_NAMES` files.
        """
        try:
            found = self._list()
        except Exception as error:
            raise NotFound(f"The folder can't be listed: {_reason(error)}.") from None
        if len(found) > MAX_NAMES:
            raise QuantError(f"The folder has {len(found):,} files; give one with at most {MAX_NAMES:,}.")
        return tuple(sorted(found))

    def open(self, name: str) -> ByteSource:
        """Return a file by its name relative to the folder.

        Raises:
            QuantError: the name leads outside the folder, or there is no such file.
        """
        if not is_inside(name):
            raise QuantError(
                f"{_quoted(name)} lies outside the folder of the checkpoint, so it is not opened; "
                "put the file into the folder and correct the name."
            )
        return self._open(name)

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of a small file, such as config.json.

        Raises:
            QuantError: as `open`, or it has more than ``limit`` bytes.
        """
        source = self.open(name)
        if source.size > limit:
            raise QuantError(f"{_quoted(name)} has {source.size:,} bytes; the limit is {limit:,}.")
        return bytes(source.read(0, source.size))

    @abstractmethod
    def _list(self) -> list[str]: ...

    @abstractmethod
    def _open(self, name: str) -> ByteSource: ...


class LocalFolder(Folder):
    """A folder of this machine."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = Path(path)
        self._roots = [self.path.resolve()]
        # Hugging Face's cache: snapshots/<revision>/ is full of links to blobs/ beside snapshots/
        blobs = self.path.resolve().parent.parent / "blobs"
        if self.path.resolve().parent.name == "snapshots" and blobs.is_dir() and not blobs.is_symlink():
            self._roots.append(blobs)

    def _list(self) -> list[str]:
        return [entry.name for entry in os.scandir(self.path) if entry.is_file()]

    def _open(self, name: str) -> ByteSource:
        real = (self.path / name).resolve()
        if not any(real.is_relative_to(root) for root in self._roots):
            raise QuantError(
                f"{_quoted(name)} is a symbolic link to a file outside the folder, so it is not opened; "
                "put the file itself into the folder."
            )
        return LocalSource(str(real), name, self.counter)


class RemoteFolder(Folder):
    """A folder of an fsspec file system."""

    def __init__(self, fs: Any, path: str) -> None:
        super().__init__()
        self._fs, self._path = fs, path.rstrip("/")

    def _list(self) -> list[str]:
        return [
            str(entry["name"]).rpartition("/")[2]
            for entry in self._fs.ls(self._path, detail=True)
            if entry["type"] == "file"
        ]

    def _open(self, name: str) -> ByteSource:
        return RemoteSource(self._fs, f"{self._path}/{name}", name, self.counter)


def is_inside(name: str) -> bool:
    """Whether a name is relative and stays inside its folder, on any system."""
    parts = re.split(r"[/\\]", name)
    bad = any(part in ("", ".", "..") for part in parts) or any(ord(c) < 32 for c in name)
    return not bad and ":" not in parts[0]


def locate(address: "str | os.PathLike[str]") -> tuple[Folder, str | None]:
    """Return the folder of an address, and the name of the file if it is one; None if it is a folder.

    Args:
        address: a path of this machine, or an fsspec URL such as ``https://...`` or ``hf://...``.

    Raises:
        QuantError: there is nothing at the address, or the packages for its protocol are not installed.
    """
    text = os.fspath(address)
    if not isinstance(text, str) or not text or "\0" in text:
        raise NotFound("The address of a checkpoint is a path or a URL; give its text.")
    if "::" in text or re.match(r"[A-Za-z][A-Za-z0-9+.\-]+://", text):
        return _remote(text)
    path = Path(text).expanduser()
    if path.is_dir():
        return LocalFolder(str(path)), None
    if not path.exists():
        raise NotFound(f"There is no file or folder {_quoted(text)}; check the path.")
    return LocalFolder(str(path.parent)), path.name


def _remote(url: str) -> tuple[Folder, str | None]:
    import fsspec

    try:
        fs, path = fsspec.core.url_to_fs(url)
        is_folder = fs.isdir(path) and not fs.isfile(path)
        if not is_folder and not fs.exists(path):
            raise NotFound(f"There is nothing at {_quoted(url)}; check the address.")
    except QuantError:
        raise
    except Exception as error:
        raise NotFound(f"{_quoted(url)} can't be opened: {_reason(error)}.") from None
    if is_folder:
        return RemoteFolder(fs, path), None
    parent, _, name = path.rpartition("/")
    return RemoteFolder(fs, parent), name


def _reason(error: Exception) -> str:
    text = (str(error).splitlines() or [""])[0].rstrip(".")[:200]
    return text or type(error).__name__


def _quoted(text: str) -> str:
    return short(text, 120)
