"""Open checkpoints: their handles are shared by all visitors, and the latest few are kept."""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from pages.serving.work.byte_cache import ByteCache
from pages.shared.computing import turn
from quantcore.checkpoints import Checkpoint, Folder, open_checkpoint
from quantcore.errors import QuantError
from quantcore.wording import megabytes

MOST, MOST_BYTES = 16, 300_000_000  # handles that are kept, and bytes that they may take
HEADERS = (
    12  # memory that headers take once read, in multiples of their bytes; measured: 9, for 100,000 tensors
)

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


class _Handle:
    """A checkpoint that tells the cache its size: counting the objects of 100,000 tensors would take 5 s."""

    __slots__ = ("_bytes", "opened")

    def __init__(self, opened: OpenCheckpoint) -> None:
        self.opened = opened
        self._bytes = HEADERS * opened.checkpoint.counter.total

    def __sizeof__(self) -> int:
        return self._bytes


def shared(state: str, title: str, locate: Callable[[], Located], progress: Progress) -> OpenCheckpoint:
    """Return the handle of a checkpoint, which is opened unless a visitor's handle is still kept.

    Args:
        state: changes when the files do, as far as can be known before they are opened.

    Raises:
        QuantError: as `open_checkpoint`.
    """
    key = f"{state} {_times_forgotten[state]}"
    make = lambda: _Handle(opened(state, title, locate, progress))  # noqa: E731
    found: _Handle = _handles.get(key, "handle", make, check=turn.check)
    return found.opened


def forget(state: str) -> None:
    """Open a checkpoint anew when it is next asked for."""
    if len(_times_forgotten) > 10_000:
        _times_forgotten.clear()
    _times_forgotten[state] += 1


def opened(where: str, title: str, locate: Callable[[], Located], progress: Progress) -> OpenCheckpoint:
    """Open a checkpoint when it is this visitor's turn.

    Args:
        where: distinguishes files with the same names, sizes and identities.

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
                        f"The headers take more than {megabytes(MOST_BYTES // HEADERS)}, the limit here; open fewer files at once."
                    )
                if total > asked:
                    asked = max(2 * total, 1 << 18)
                    mine.need(HEADERS * asked)

        folder.counter.before = wait
        try:
            checkpoint = open_checkpoint(folder, name, progress=progress).as_matrices()
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
