"""Where a checkpoint lies: a local file or folder, or any fsspec address.

A `Folder` opens files by name, and nothing outside itself: no absolute
name, no ``..``, no symbolic link that leaves it, nothing that is not a regular file.
"""

import os
import re
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Any

from quantcore.checkpoints.problem import NotFound
from quantcore.checkpoints.sources import (
    ByteCounter,
    ByteSource,
    LocalSource,
    RemoteSource,
    quoted,
    reason,
)
from quantcore.errors import QuantError

MAX_NAMES = 100_000  # files of one folder


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
            raise NotFound(f"The folder can't be listed: {reason(error)}.") from None
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
                f"{quoted(name)} lies outside the folder of the checkpoint, so it is not opened; "
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
            raise QuantError(f"{quoted(name)} has {source.size:,} bytes; the limit is {limit:,}.")
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
                f"{quoted(name)} is a symbolic link to a file outside the folder, so it is not opened; "
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
        raise NotFound(f"There is no file or folder {quoted(text)}; check the path.")
    return LocalFolder(str(path.parent)), path.name


def _remote(url: str) -> tuple[Folder, str | None]:
    import fsspec

    try:
        fs, path = fsspec.core.url_to_fs(url)
        is_folder = fs.isdir(path) and not fs.isfile(path)
        if not is_folder and not fs.exists(path):
            raise NotFound(f"There is nothing at {quoted(url)}; check the address.")
    except QuantError:
        raise
    except Exception as error:
        raise NotFound(f"{quoted(url)} can't be opened: {reason(error)}.") from None
    if is_folder:
        return RemoteFolder(fs, path), None
    parent, _, name = path.rpartition("/")
    return RemoteFolder(fs, parent), name
