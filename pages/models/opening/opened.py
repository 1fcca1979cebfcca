"""What an address leads to: a shipped example, a path in the operator's folder, or an allowed URL.

The handles of open checkpoints are shared by all visitors, and the latest few are kept.
"""

import hashlib
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pages.models.opening import guarded
from pages.serving import models_folder, remote
from pages.serving.remote.folders import locate
from pages.serving.work.byte_cache import ByteCache
from pages.shared.computing import turn
from quantcore.checkpoints import EXAMPLES, Checkpoint, Folder, LocalFolder, NotFound, open_checkpoint
from quantcore.errors import QuantError
from quantcore.wording import megabytes, short

EXAMPLE = "example:"  # prefix of the addresses of shipped examples
AGAIN = 600  # seconds; a URL is opened anew after at most this long
MOST, MOST_BYTES = 16, 300_000_000  # handles that are kept, and bytes that they may take
HEADERS = 12  # memory that headers take once read, in multiples of their bytes; 100,000 tensors took 9
# Bytes counted for a stored tensor at least, so that few large checkpoints are kept: it takes less, but each
# object makes every collection of garbage longer, in which nobody is served; 100,000 tensors, by 0.1 s
TENSOR = 3000
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")

_handles = ByteCache(lambda: MOST_BYTES, entries=MOST)
_times_forgotten = Counter[str]()
Progress = Callable[[int, int], None]
Located = tuple[Folder, str | None]  # a folder, and the name of a file in it


@dataclass(frozen=True)
class OpenCheckpoint:
    """A checkpoint of which only the headers have been read.

    Attributes:
        checkpoint: its tensors and findings.
        key: identifies the content for caches: equal keys mean equal bytes.
        title: a short name to display.
        total_bytes: bytes of its files.
    """

    checkpoint: Checkpoint
    key: str
    title: str
    total_bytes: int

    @property
    def is_remote(self) -> bool:
        """Whether it is on another machine, where reading scattered rows means reading everything."""
        piece = next(iter(self.checkpoint.release.stored.values()), None)
        return piece is not None and piece.source.is_remote


@dataclass(frozen=True)
class CheckpointLocation:
    """Where a checkpoint is.

    Attributes:
        state: changes when its files do, as far as can be known without opening them.
        is_remote: whether changes are noticed only by opening it again.
        is_shipped: whether it is an example, which needs no guard.
    """

    state: str
    title: str
    locate: Callable[[], Located]
    is_remote: bool = False
    is_shipped: bool = False

    def open(self, progress: Progress = lambda done, of: None) -> OpenCheckpoint:
        """Open it, or share what another visitor has opened.

        Raises:
            QuantError: there is no checkpoint, or it can't be read.
        """
        key = f"{self.state} {_times_forgotten[self.state]}"
        read = read_here if self.is_shipped else guarded.open_checkpoint
        make = partial(opened, self.state, self.title, self.locate, progress, read)
        found: OpenCheckpoint = _handles.get(key, "handle", make, check=turn.check, size=_counted)
        return found

    def forget(self) -> None:
        """Make the next `open` read it anew."""
        if len(_times_forgotten) > 10_000:
            _times_forgotten.clear()
        _times_forgotten[self.state] += 1


def _counted(opened: OpenCheckpoint) -> int:
    """Return the bytes counted for an open checkpoint; to look at the objects of 100,000 tensors takes 5 s.

    The largest alone is counted as no more than are kept: otherwise each run would read it again.
    """
    checkpoint = opened.checkpoint
    return max(HEADERS * checkpoint.counter.total, min(TENSOR * len(checkpoint.release.stored), MOST_BYTES))


def location_of(address: str, root: Path | None) -> CheckpointLocation:
    """Return where an address leads.

    Args:
        root: the folder in which visitors may open paths; None: paths can't be opened.

    Raises:
        QuantError: nothing is there, or it is not allowed.
    """
    if address.startswith(EXAMPLE):
        name = address.removeprefix(EXAMPLE)
        path = EXAMPLES.get(name)
        if path is None:
            raise NotFound(f"There is no example {short(name, 60)}; choose one from the menu.")
        folder, file = (LocalFolder(path), None) if path.is_dir() else (LocalFolder(path.parent), path.name)
        return replace(_local(folder, file, name), is_shipped=True)
    if _SCHEME.match(address):
        state = f"{address} {int(time.monotonic() // AGAIN)}"
        title = address.partition("?")[0].rstrip("/").rpartition("/")[2]
        found = partial(locate, remote.current(), address)
        return CheckpointLocation(state, title, found, is_remote=True)
    if root is None:
        raise QuantError("This server does not open paths; upload the files instead.")
    return _local(*models_folder.confined(root, address), address)


def _local(folder: LocalFolder, name: str | None, address: str) -> CheckpointLocation:
    """Return a place here; its state has size, time and inode of each file, and links are not followed."""
    try:
        with os.scandir(folder.path) as entries:
            found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:
        raise NotFound("The folder can't be read; choose another.") from None
    files = sorted((each, info.st_size, info.st_mtime_ns, info.st_ino) for each, info in found)
    title = address.rstrip("/").rpartition("/")[2]
    return CheckpointLocation(repr((str(folder.path), name, files)), title, lambda: (folder, name))


def read_here(folder: Folder, name: str | None, progress: Progress) -> Checkpoint:
    """Read the headers of files that are known to be harmless."""
    return open_checkpoint(folder, name, progress=progress)


def opened(
    where: str,
    title: str,
    locate: Callable[[], Located],
    progress: Progress,
    read: Callable[[Folder, str | None, Progress], Checkpoint] = guarded.open_checkpoint,
) -> OpenCheckpoint:
    """Open a checkpoint when it is this visitor's turn.

    Args:
        where: distinguishes files with the same names, sizes and identities.
        read: reads the headers.

    Raises:
        QuantError: as `open_checkpoint`.
    """
    with turn.current() as mine:
        folder, name = locate()
        lock, total, asked = threading.Lock(), 0, 0

        def wait(size: int) -> None:
            """Wait before each read: how long headers are is known only while they are read."""
            nonlocal total, asked
            with lock:  # a run has one turn, but remote headers are read by several threads
                total += size
                if total * HEADERS > MOST_BYTES:  # it could not be kept, and each run would read it again
                    raise QuantError(
                        f"The headers take more than {megabytes(MOST_BYTES // HEADERS)}, the limit here; "
                        "open fewer files at once."
                    )
                if total > asked:
                    asked = max(2 * total, 1 << 18)
                    mine.need(HEADERS * asked)

        # its bytes as they are stored, in order, and with what is kept of the one before
        folder.counter.most_derived = turn.GATE.largest() // 4
        folder.counter.before = wait
        try:
            checkpoint = read(folder, name, progress).as_matrices()
        finally:
            folder.counter.before = None
    files = sorted(folder.opened.items())
    identity = repr((where, [(each, source.size, source.identity) for each, source in files]))
    return OpenCheckpoint(
        checkpoint,
        hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()[:32],
        title,
        sum(source.size for _, source in files),
    )
