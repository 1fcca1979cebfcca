"""What keeps the folder of shared tensors within its limits."""

import re
import secrets
import time
from dataclasses import dataclass

from pages.serving.tensor_store.folder import SharedFolder
from pages.serving.tensor_store.record import MAX_RECORD, TensorRecord, address_in, content_name, record_name

LEAST = 256 * 1024  # bytes that even the smallest tensor counts as, which bounds the number of files
_UNFINISHED = 3600  # seconds; a record without content, or half a file, that is older has been abandoned
_NOTE = re.compile(r"(\d{8})\.([0-9a-f]+)\.(\d{1,15})\.[0-9a-f]+\.shared")


@dataclass(frozen=True)
class StoreLimits:
    """Space for all tensors and for those of one visitor on one day, in bytes, and their age in seconds."""

    space: int
    of_a_visitor: int
    age: float


def counted(size: int) -> int:
    """The bytes that a tensor's file of ``size`` bytes counts as."""
    return max(size, LEAST)


def note(visitor: str, size: int, now: float) -> str:
    """Name of the file that notes how much a visitor shares."""
    return f"{_day(now)}.{visitor}.{counted(size)}.{secrets.token_hex(8)}.shared"


def shared_today(sizes: dict[str, int], visitor: str, now: float) -> int:
    """How many bytes a visitor has shared today, by the notes among these files."""
    notes = filter(None, map(_NOTE.fullmatch, sizes))
    return sum(int(found[3]) for found in notes if (found[1], found[2]) == (_day(now), visitor))


def delete(folder: SharedFolder, address: str) -> None:
    """Delete a tensor, if it is still there."""
    folder.delete(content_name(address))
    folder.delete(record_name(address))


def delete_useless(folder: SharedFolder, sizes: dict[str, int], age: float, now: float) -> dict[str, TensorRecord]:
    """Delete what is too old or dated in the future, has a damaged record, or was left unfinished.

    Args:
        sizes: the files of the folder.
        age: seconds that a tensor may be kept.

    Returns:
        the records of the tensors that remain, by address.
    """
    addresses = {address for address in map(address_in, sizes) if address}
    names = [record_name(a) for a in addresses if sizes.get(record_name(a), MAX_RECORD + 1) <= MAX_RECORD]
    found = folder.read_all(names)
    records: dict[str, TensorRecord] = {}
    for address in addresses:
        record = TensorRecord.from_bytes(found.get(record_name(address), b""))
        if record is not None:
            unfinished = content_name(address) not in sizes and now - record.shared > _UNFINISHED
            if now - record.shared <= age and not unfinished and not record.is_from_the_future(now):
                records[address] = record
                continue
        elif record_name(address) not in sizes and folder.exists(record_name(address)):
            continue  # begun since the files were listed
        delete(folder, address)
    for old in filter(None, map(_NOTE.fullmatch, sizes)):
        if old[1] not in (_day(now), _day(now - _UNFINISHED)):  # clocks differ a little
            folder.delete(old[0])
    folder.delete_parts(list(sizes), _UNFINISHED)
    return records


def make_room(folder: SharedFolder, records: dict[str, TensorRecord], own: str, space: int, now: float) -> None:
    """Delete the least recently opened tensors until the rest, ``own`` included, fits."""
    total = sum(counted(record.size) for record in records.values())
    for address in sorted(records.keys() - {own}, key=lambda a: (records[a].last_used(now), a)):
        if total <= space:
            return
        delete(folder, address)
        total -= counted(records[address].size)


def _day(now: float) -> str:
    return time.strftime("%Y%m%d", time.gmtime(now))
