"""What an address in a link leads to: a shipped example, or a path in the operator's folder."""

import hashlib
import os
import re
from pathlib import Path

from pages.models.opening.opened import Opened, Progress, shared
from pages.serving import models_folder
from quantcore.checkpoints import LocalFolder, NotFound
from quantcore.errors import QuantError
from quantcore.tensors import short

EXAMPLE = "example:"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://")


def examples() -> list[str]:
    """The addresses of the shipped examples."""
    return [f"{EXAMPLE}{name}" for name in _shipped()]


def _shipped() -> dict[str, Path]:
    return {}


def open_at(address: str, root: Path | None, progress: Progress) -> Opened:
    """Open what an address leads to.

    Args:
        root: the folder in which visitors may open paths; None: nowhere.

    Raises:
        QuantError: nothing can be opened there, or it is not allowed.
    """
    if address.startswith(EXAMPLE):
        return _example(address.removeprefix(EXAMPLE), progress)
    scheme = _SCHEME.match(address)
    if scheme is not None:
        raise QuantError(
            f"This server does not open {scheme[1].lower()}:// addresses; give a path or upload the files."
        )
    if root is None:
        raise QuantError("This server opens no paths; upload the files instead.")
    folder, name = models_folder.confined(root, address)
    return _local(folder, name, address, progress)


def _example(name: str, progress: Progress) -> Opened:
    path = _shipped().get(name)
    if path is None:
        raise NotFound(f"There is no example {short(name, 60)}; choose one from the menu.")
    folder, file = (LocalFolder(path), None) if path.is_dir() else (LocalFolder(path.parent), path.name)
    return _local(folder, file, name, progress)


def _local(folder: LocalFolder, name: str | None, title: str, progress: Progress) -> Opened:
    """Open files of this machine; when one of the folder changes, the next visitor opens them again."""
    key = hashlib.sha256(repr((str(folder.path), name, _states(folder.path))).encode(errors="surrogatepass"))
    return shared(key.hexdigest(), title, folder, name, progress, str(folder.path))


def _states(folder: Path) -> list[tuple[str, int, int, int]]:
    """Name, size, time of change and inode of the files of a folder, links as such."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    return sorted((name, info.st_size, info.st_mtime_ns, info.st_ino) for name, info in found)
