"""What an address in a link leads to: a shipped example, a path in the operator's folder, or an allowed URL."""

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pages.models.opening.opened import Located, OpenCheckpoint, Progress, forget, shared
from pages.serving import models_folder, remote
from quantcore.checkpoints import EXAMPLES, LocalFolder, NotFound
from quantcore.errors import QuantError
from quantcore.wording import short

EXAMPLE = "example:"
AGAIN = 600  # seconds; a URL is opened anew after at most this long
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")


@dataclass(frozen=True)
class CheckpointLocation:
    """Where a checkpoint is.

    Attributes:
        state: changes when its files do, as far as can be known without opening them.
        is_remote: whether changes are noticed only by opening it again.
    """

    state: str
    title: str
    locate: Callable[[], Located]
    is_remote: bool = False

    def open(self, progress: Progress) -> OpenCheckpoint:
        """Open it, or share what another visitor has opened.

        Raises:
            QuantError: there is no checkpoint, or it can't be read.
        """
        return shared(self.state, self.title, self.locate, progress)

    def forget(self) -> None:
        """Make the next `open` read it anew."""
        forget(self.state)


def examples() -> list[str]:
    """Return the addresses of the shipped examples."""
    return [f"{EXAMPLE}{name}" for name in EXAMPLES]


def schemes() -> list[str]:
    """Return the prefixes of the URLs that visitors may open."""
    return [f"{scheme}://" for scheme in remote.current().hosts.schemes()]


def location_of(address: str, root: Path | None) -> CheckpointLocation:
    """Return where an address leads.

    Args:
        root: the folder in which visitors may open paths; None: paths can't be opened.

    Raises:
        QuantError: nothing is there, or it is not allowed.
    """
    if address.startswith(EXAMPLE):
        return _example(address.removeprefix(EXAMPLE))
    if _SCHEME.match(address):
        return _url(address)
    if root is None:
        raise QuantError("This server does not open paths; upload the files instead.")
    return _local(*models_folder.confined(root, address), address)


def _url(address: str) -> CheckpointLocation:
    state = f"{address} {int(time.monotonic() // AGAIN)}"
    title = address.partition("?")[0].rstrip("/").rpartition("/")[2]
    return CheckpointLocation(state, title, partial(remote.locate, remote.current(), address), is_remote=True)


def _example(name: str) -> CheckpointLocation:
    path = EXAMPLES.get(name)
    if path is None:
        raise NotFound(f"There is no example {short(name, 60)}; choose one from the menu.")
    folder, file = (LocalFolder(path), None) if path.is_dir() else (LocalFolder(path.parent), path.name)
    return _local(folder, file, name)


def _local(folder: LocalFolder, name: str | None, address: str) -> CheckpointLocation:
    title = address.rstrip("/").rpartition("/")[2]
    return CheckpointLocation(repr((str(folder.path), name, _files(folder.path))), title, lambda: (folder, name))


def _files(folder: Path) -> list[tuple[str, int, int, int]]:
    """Return name, size, modification time and inode of each file in a folder; links are not followed."""
    try:
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:
        raise NotFound("The folder can't be read; choose another.") from None
    return sorted((name, info.st_size, info.st_mtime_ns, info.st_ino) for name, info in found)
