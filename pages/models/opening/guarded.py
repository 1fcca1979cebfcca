"""The headers of a checkpoint that a stranger gave, read in a process of its own while this run waits."""

from collections.abc import Callable
from typing import Any

from pages.serving import guard
from pages.shared.computing import turn
from pages.shared.computing.guarded import SECONDS, room
from quantcore.checkpoints import OPENERS, ByteSource, Checkpoint, Folder, assemble, headers
from quantcore.errors import QuantError
from quantcore.wording import short

_MOST_SECONDS = 20.0  # for a release with hundreds of shards
_MOST_RANGES, _MOST_JOINED = 20_000, 1 << 26  # that are asked for in one step, and their bytes
_MEMORY = 512_000_000  # headers, which the server keeps in 300 MB at most, and as JSON


def _joined(source: ByteSource, ranges: list[tuple[int, int]]) -> bytes:
    """Return the bytes of some ranges: headers of members, of which a file has so many."""
    if len(ranges) > _MOST_RANGES or sum(max(size, 0) for _, size in ranges) > _MOST_JOINED:
        raise QuantError(f"{short(source.name, 80)} has too many parts; save it again, in several files.")
    return b"".join(source.read_each(ranges))


def open_checkpoint(folder: Folder, name: str | None, progress: Callable[[int, int], None]) -> Checkpoint:
    """Return as `quantcore.checkpoints.open_checkpoint` a checkpoint; its headers are read by a guest.

    Raises:
        QuantError: as there, or reading the headers takes too much time or memory.
    """
    files = 1 if name is not None else sum(each.lower().endswith(tuple(OPENERS)) for each in folder.names)
    seconds = min(SECONDS * max(files, 1), _MOST_SECONDS)
    remedy = "open fewer files at once, or check that the file is not damaged"
    work = guard.GuestWork("Reading the headers", remedy, seconds, room(_MEMORY))

    def show(done: int, of: int) -> tuple[None, tuple[()]]:
        progress(done, of)
        return None, ()

    def opened(file: str) -> tuple[list[Any], tuple[()]]:
        source = folder.open(file)
        return [source.size, source.is_remote, source.gap], ()

    here: dict[str, guard.Function] = {"progress": show, "names": lambda: (list(folder.names), ())}
    files_of: dict[str, guard.Function] = {
        "present": lambda names: (sorted(folder.present(names)), ()),
        "open": opened,
        "read": lambda file, offset, size: (None, [folder.open(file).read(offset, size)]),
        "read_each": lambda file, ranges: (None, [_joined(folder.open(file), ranges)]),
    }
    served = guard.Served(here | files_of) if folder.is_near else guard.Served(here, files_of)
    answer = guard.ask("checkpoint", [name, folder.is_near], work=work, served=served, check=turn.check)
    return assemble(headers.from_json(answer.value, folder.open), folder.counter, folder.place(name))
