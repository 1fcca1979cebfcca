"""Where a checkpoint is stored: a local file or folder, any fsspec address, or files in memory.

A `Folder` opens files by name and nothing outside itself: no absolute paths, no ``..``, no symbolic links
that lead out of it, and only regular files.
"""

import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from quantcore.checkpoints.files.sources import (
    ByteCounter,
    ByteSource,
    LocalSource,
    MemorySource,
    RemoteSource,
    reason,
)
from quantcore.checkpoints.statement import NotFound, named
from quantcore.errors import QuantError

MAX_NAMES = 100_000  # files in one folder


class Folder(ABC):
    """The files of one release.

    ``counter``: counts the bytes read from all of them; ``opened``: the files opened so far, by name;
    ``is_near``: whether reads are so fast that they need not run in parallel.
    """

    is_near = False

    def __init__(self) -> None:
        self.counter = ByteCounter()
        self.opened: dict[str, ByteSource] = {}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The sorted names of the files directly in the folder, not in its subfolders.

        Raises:
            QuantError: it can't be listed, or has more than `MAX_NAMES` files.
        """
        try:
            found = self._list()
        except QuantError:
            raise
        except Exception as error:
            raise NotFound(f"The folder can't be listed: {reason(error)}.") from None
        if len(found) > MAX_NAMES:
            raise QuantError(f"The folder has {len(found):,} files; give one with at most {MAX_NAMES:,}.")
        return tuple(sorted(found))

    def present(self, names: Iterable[str]) -> set[str]:
        """Return which of the given files exist; where a folder can't be listed, each is looked up.

        Raises:
            QuantError: as `names`.
        """
        return set(names) & set(self.names)

    def open(self, name: str) -> ByteSource:
        """Return a file by its name relative to the folder.

        Raises:
            QuantError: the name leads outside the folder, or there is no such file.
        """
        if not is_inside(name):
            raise QuantError(
                f"{named(name)} lies outside the folder of the checkpoint, so it is not opened; "
                "put the file into the folder and correct the name."
            )
        if name not in self.opened:
            self.opened[name] = self._open(name)
        return self.opened[name]

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of a small file, such as config.json.

        Raises:
            QuantError: as `open`, or it has more than ``limit`` bytes.
        """
        source = self.open(name)
        if source.size > limit:
            raise QuantError(f"{named(name)} has {source.size:,} bytes; the limit is {limit:,}.")
        return bytes(source.read(0, source.size))

    def place(self, name: str | None) -> str:
        """Return the address of a file, or of the folder, for another process; empty if there is none."""
        return ""

    @abstractmethod
    def _list(self) -> list[str]: ...

    @abstractmethod
    def _open(self, name: str) -> ByteSource: ...


class LocalFolder(Folder):
    """A folder on this machine.

    Args:
        path: the folder's path.
        within: nothing outside this folder may be read, wherever links lead; the folder itself must be inside
            it.
    """

    is_near = True

    def __init__(self, path: "str | os.PathLike[str]", within: Path | None = None) -> None:
        super().__init__()
        self.path = Path(path)
        self._roots = [self.path.resolve()]
        # Hugging Face's cache: snapshots/<revision>/ is full of links to blobs/, which is next to snapshots/
        blobs = self._roots[0].parent.parent / "blobs"
        if self._roots[0].parent.name == "snapshots" and os.path.isdir(blobs) and not blobs.is_symlink():
            self._roots.append(blobs)
        if within is not None:
            self._roots = [root for root in self._roots if root.is_relative_to(within.resolve())]

    def place(self, name: str | None) -> str:
        """Return an absolute path."""
        return os.path.abspath(self.path / (name or ""))

    def _list(self) -> list[str]:
        with os.scandir(self.path) as entries:
            return [entry.name for entry in entries if self._is_listed(entry)]

    def _is_listed(self, entry: "os.DirEntry[str]") -> bool:
        # a link's target outside is not touched, not even to see whether it exists: opening it raises the
        # error
        if not entry.is_symlink():
            return entry.is_file()
        # a link that leads to nothing, to itself, or to what can't be read hides only itself
        outside = not self._has(os.path.realpath(entry.path))
        return outside or (os.path.isfile(entry) and os.access(entry, os.R_OK))

    def _has(self, real: str) -> bool:
        return any(Path(real).is_relative_to(root) for root in self._roots)

    def _open(self, name: str) -> ByteSource:
        try:
            real = os.path.realpath(self.path / name)
        except ValueError:  # characters that no file name can contain
            raise NotFound(f"There is no file {named(name)}; check the name.") from None
        if not self._has(real):
            raise QuantError(
                f"{named(name)} is a symbolic link to a file outside the folder, so it is not opened; "
                "put the file itself into the folder."
            )
        return LocalSource(real, name, self.counter)


class MemoryFolder(Folder):
    """Files in memory, such as uploads; only the bytes that are read are copied.

    Args:
        files: their bytes by name.
    """

    is_near = True

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__()
        self._files = files

    def _list(self) -> list[str]:
        return list(self._files)

    def _open(self, name: str) -> ByteSource:
        if name not in self._files:
            raise NotFound(f"There is no file {named(name)}; add it.")
        return MemorySource(name, memoryview(self._files[name]), self.counter)


class RemoteFolder(Folder):
    """A folder on an fsspec file system."""

    def __init__(self, fs: Any, path: str) -> None:
        super().__init__()
        self._fs, self._path = fs, path.rstrip("/")

    def place(self, name: str | None) -> str:
        """Return a URL."""
        return str(self._fs.unstrip_protocol(f"{self._path}/{name}" if name else self._path))

    def _list(self) -> list[str]:
        return [
            str(entry["name"]).rpartition("/")[2]
            for entry in self._fs.ls(self._path, detail=True)
            if entry["type"] == "file"
        ]

    def _open(self, name: str) -> ByteSource:
        return RemoteSource(self._fs, f"{self._path}/{name}", name, self.counter)


def is_inside(name: str) -> bool:
    """Tell whether a name is relative and stays inside its folder, on any system."""
    parts = re.split(r"[/\\]", name)
    bad = any(part in ("", ".", "..") for part in parts) or any(ord(c) < 32 for c in name)
    return not bad and ":" not in parts[0]


def locate(address: "str | os.PathLike[str]") -> tuple[Folder, str | None]:
    """Return an address's folder and file name; the name is None if the address is a folder.

    Args:
        address: a path on this machine, or an fsspec URL such as ``https://...`` or ``hf://...``.

    Raises:
        QuantError: there is nothing at the address, or the packages for its protocol are not installed.
    """
    text = os.fspath(address)
    if not isinstance(text, str) or not text or "\0" in text:
        raise NotFound("The address of a checkpoint is a path or a URL; give one as text.")
    if "::" in text or re.match(r"[A-Za-z][A-Za-z0-9+.\-]+://", text):
        return _remote(text)
    path = Path(os.path.expanduser(text))
    try:
        info = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"There is no file or folder {named(text)}; check the path.") from None
    except (OSError, ValueError) as error:
        raise NotFound(f"{named(text)} can't be opened: {reason(error)}; check the path.") from None
    if stat.S_ISDIR(info.st_mode):
        return LocalFolder(str(path)), None
    return LocalFolder(str(path.parent)), path.name


def _remote(url: str) -> tuple[Folder, str | None]:
    import fsspec

    try:
        fs, path = fsspec.core.url_to_fs(url)
        is_folder = fs.isdir(path) and not fs.isfile(path)
        if not is_folder and not fs.exists(path):
            raise NotFound(f"There is nothing at {named(url)}; check the address.")
    except QuantError:
        raise
    except Exception as error:
        raise NotFound(f"{named(url)} can't be opened: {reason(error)}.") from None
    if is_folder:
        return RemoteFolder(fs, path), None
    parent, _, name = path.rpartition("/")
    return RemoteFolder(fs, parent), name
