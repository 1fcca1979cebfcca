"""A folder on any file system that fsspec knows, used by several processes at the same time."""

import os
import secrets
import time
from contextlib import suppress

import fsspec
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

_PART = ".part"


class SharedFolder:
    """A folder at a path or an fsspec URL. Methods raise whatever its file system raises: anything.

    Raises:
        ValueError: there is no such protocol.
        ImportError: the protocol needs a package that is not installed.
    """

    def __init__(self, url: str) -> None:
        fs, root = url_to_fs(url)
        self._fs: fsspec.AbstractFileSystem = fs
        self._root = str(root).rstrip("/")

    def sizes(self) -> dict[str, int]:
        """Return the sizes in bytes of all files by name; empty if the folder does not exist yet."""
        self._fs.invalidate_cache()  # other processes write here too
        for _ in range(10):
            try:
                found = self._fs.ls(self._root, detail=True)
            except FileNotFoundError:
                return {}
            except KeyError:  # fsspec's memory file system, if a file is deleted while it lists
                continue
            files = (entry for entry in found if entry["type"] == "file")
            return {entry["name"].rpartition("/")[2]: int(entry["size"] or 0) for entry in files}
        raise OSError("the list of files changes too often")

    def read(self, name: str, most: int) -> bytes:
        """Return at most ``most`` bytes of a file.

        Raises:
            FileNotFoundError: there is no such file.
        """
        return bytes(self._fs.cat_file(self._path(name), start=0, end=most))

    def read_all(self, names: list[str]) -> dict[str, bytes]:
        """Return the contents of the files that still exist, read concurrently if the file system can."""
        found = self._fs.cat([self._path(name) for name in names], on_error="return") if names else {}
        contents = {}
        for path, data in found.items():
            if isinstance(data, bytes):
                contents[path.rpartition("/")[2]] = data
            elif not isinstance(data, FileNotFoundError):
                raise data
        return contents

    def exists(self, name: str) -> bool:
        """Tell whether there is such a file now."""
        self._fs.invalidate_cache()
        return bool(self._fs.exists(self._path(name)))

    def write(self, name: str, data: bytes) -> None:
        """Write a file that appears all at once, in place of any earlier one."""
        part = self._path(f"{name}.{secrets.token_hex(8)}{_PART}")
        try:
            try:
                self._fs.pipe_file(part, data)
            except FileNotFoundError:  # no folder yet
                if isinstance(
                    self._fs, LocalFileSystem
                ):  # other users of the machine must not see the addresses
                    os.makedirs(self._root, mode=0o700, exist_ok=True)
                else:
                    self._fs.makedirs(self._root, exist_ok=True)
                self._fs.pipe_file(part, data)
            self._fs.mv(part, self._path(name))
        except BaseException:
            with suppress(Exception):
                self._fs.rm_file(part)
            raise

    def delete(self, name: str) -> None:
        """Delete a file, if it is still there."""
        with suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name))

    def delete_parts(self, names: list[str], seconds: float) -> None:
        """Delete unfinished files written ``seconds`` ago, or in the future: their writers have ended."""
        for name in names:
            if name.endswith(_PART):
                with suppress(FileNotFoundError, NotImplementedError):
                    if abs(time.time() - self._fs.modified(self._path(name)).timestamp()) > seconds:
                        self.delete(name)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"
