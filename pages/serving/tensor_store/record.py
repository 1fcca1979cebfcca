"""The names of a shared tensor's files, the record of its content, and the limits of their folder."""

import json
import re
import secrets
import time
from dataclasses import asdict, dataclass

from pages.serving.tensor_store.folder import SharedFolder

ADDRESS = re.compile(r"[0-9a-f]{32}")  # can't lead out of the folder
CONTENT, RECORD = ".safetensors", ".json"  # what follows it in the names of the two files
MAX_RECORD = 1000  # bytes; a record has about 160
_MOST = 1e18  # bytes or seconds; JSON's numbers may be too large for a float
_CLOCKS_DIFFER = 86400  # seconds
LEAST = 256 * 1024  # bytes that even the smallest tensor counts as, which bounds the number of files
_UNFINISHED = 3600  # seconds; a record without content, or half a file, that is older has been abandoned
_NOTE = re.compile(r"(\d{8})\.([0-9a-f]+)\.(\d{1,15})\.[0-9a-f]+\.shared")


@dataclass(frozen=True)
class TensorRecord:
    """What is known about a stored tensor: ``size`` in bytes; ``shared``, ``opened``: seconds since 1970."""

    sha256: str
    size: int
    shared: float
    opened: float

    def to_bytes(self) -> bytes:
        """Return the record as its file holds it."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "TensorRecord | None":
        """Read a record; None if it is damaged."""
        try:
            record = cls(**json.loads(data))
        except (ValueError, TypeError, RecursionError):
            return None
        numbers = (record.size, record.shared, record.opened)
        is_valid = isinstance(record.sha256, str) and type(record.size) is int and record.size > 0
        is_valid &= all(type(n) in (int, float) and abs(n) < _MOST for n in numbers)  # NaN is not
        return record if is_valid else None

    def is_from_the_future(self, now: float) -> bool:
        """Tell whether its date is wrong even if clocks differ by a day: it would never be too old."""
        return self.shared > now + _CLOCKS_DIFFER

    def last_used(self, now: float) -> float:
        """Return when the tensor was last opened, as far as is known: a date in the future says nothing."""
        return self.opened if self.opened <= now + _CLOCKS_DIFFER else self.shared


@dataclass(frozen=True)
class StoreLimits:
    """Space for all tensors and for those of one visitor on one day, in bytes, and their age in seconds."""

    space: int
    of_a_visitor: int
    age: float


def counted(size: int) -> int:
    """Return the bytes that a tensor's file of ``size`` bytes counts as."""
    return max(size, LEAST)


def note(visitor: str, size: int, now: float) -> str:
    """Return the name of the file that notes how much a visitor shares."""
    return f"{_day(now)}.{visitor}.{counted(size)}.{secrets.token_hex(8)}.shared"


def shared_today(sizes: dict[str, int], visitor: str, now: float) -> int:
    """Count the bytes that a visitor has shared today, by the notes among these files."""
    notes = filter(None, map(_NOTE.fullmatch, sizes))
    return sum(int(found[3]) for found in notes if (found[1], found[2]) == (_day(now), visitor))


def delete(folder: SharedFolder, address: str) -> None:
    """Delete a tensor, if it is still there."""
    folder.delete(address + CONTENT)
    folder.delete(address + RECORD)


def delete_useless(
    folder: SharedFolder, sizes: dict[str, int], age: float, now: float
) -> dict[str, TensorRecord]:
    """Delete what is too old or dated in the future, has a damaged record, or was left unfinished.

    Args:
        sizes: the files of the folder.
        age: seconds that a tensor may be kept.

    Returns:
        the records of the tensors that remain, by address.
    """
    stems = {name.rpartition(".")[0] for name in sizes if name.endswith((CONTENT, RECORD))}
    addresses = set(filter(ADDRESS.fullmatch, stems))
    names = [a + RECORD for a in addresses if sizes.get(a + RECORD, MAX_RECORD + 1) <= MAX_RECORD]
    found = folder.read_all(names)
    records: dict[str, TensorRecord] = {}
    for address in addresses:
        record = TensorRecord.from_bytes(found.get(address + RECORD, b""))
        if record is not None:
            unfinished = address + CONTENT not in sizes and now - record.shared > _UNFINISHED
            if now - record.shared <= age and not unfinished and not record.is_from_the_future(now):
                records[address] = record
                continue
        elif address + RECORD not in sizes and folder.exists(address + RECORD):
            continue  # begun since the files were listed
        delete(folder, address)
    for old in filter(None, map(_NOTE.fullmatch, sizes)):
        if old[1] not in (_day(now), _day(now - _UNFINISHED)):  # clocks differ a little
            folder.delete(old[0])
    folder.delete_parts(list(sizes), _UNFINISHED)
    return records


def make_room(
    folder: SharedFolder, records: dict[str, TensorRecord], own: str, space: int, now: float
) -> None:
    """Delete the least recently opened tensors until the rest, ``own`` included, fits."""
    total = sum(counted(record.size) for record in records.values())
    for address in sorted(records.keys() - {own}, key=lambda a: (records[a].last_used(now), a)):
        if total <= space:
            return
        delete(folder, address)
        total -= counted(records[address].size)


def _day(now: float) -> str:
    return time.strftime("%Y%m%d", time.gmtime(now))
