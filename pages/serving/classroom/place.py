"""Where the database of classes is: in the store's folder, if that is on a local disk."""

import functools
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from pages.serving import settings
from pages.serving.classroom.question import ClassError
from pages.serving.classroom.step import ClassStep
from pages.serving.classroom.store import LONGEST, ClassStore
from pages.serving.log import log
from pages.serving.metrics import REFUSED
from pages.serving.middleware.limits import Rate
from pages.serving.network import network

NAME = "classes-2.sqlite3"  # with another layout of its tables it gets another number
EARLIER = "classes-1.sqlite3"
# On these, processes can't share memory, through which SQLite's WAL shows each what the others wrote
NETWORK = {
    "9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2",
    "orangefs",
    "smb3", "smbfs",
}  # fmt: skip
_begins = Rate(burst=20, per_second=1 / 60)  # of one network, such as a school's
_regains = Rate(burst=20, per_second=1 / 60)
_MOUNTS = Path("/proc/self/mountinfo")  # Linux only; elsewhere a folder counts as local


def file_system(folder: Path, mounts: str) -> str:
    """Return the type of the file system of a folder, by the content of /proc/self/mountinfo; "" if unknown.

    >>> file_system(Path("/store/a"), "36 35 98:0 / /store rw,noatime master:1 - nfs4 host:/export rw")
    'nfs4'
    """
    found, depth = "", -1
    for line in mounts.splitlines():
        fields, _, kind = line.partition(" - ")
        columns = fields.split()
        if len(columns) < 5 or not kind:
            continue
        point = Path(columns[4].encode().decode("unicode_escape"))  # a space is written as \040
        if folder.is_relative_to(point) and len(point.parts) >= depth:  # a later mount hides an earlier one
            found, depth = kind.split()[0], len(point.parts)
    return found


def path_at(chosen: settings.Settings) -> Path:
    """Return where the database is, or will be once a class begins.

    Raises:
        ClassError: these settings allow none, in one sentence.
    """
    folder = Path(os.path.expanduser(chosen.store)).resolve()
    kind = file_system(folder, _MOUNTS.read_text("utf-8", "replace") if _MOUNTS.exists() else "")
    problem = ""
    if chosen.store.lower() == settings.OFF:
        problem = "is off; set it to a local folder"
    elif "://" in chosen.store:
        problem = "is a URL; set it to a local folder"
    elif kind in NETWORK or kind.startswith("fuse."):
        lost = "where answers could get lost; set it to a folder on a local disk"
        problem = f"is on a network file system ({kind}), {lost}"
    if problem:
        raise ClassError(503, f"There are no classes here, since QUANTSCOPE_STORE {problem}.")
    return folder / NAME


def opened_at(chosen: settings.Settings) -> ClassStore:
    """Return the store of classes of these settings.

    Raises:
        ClassError: there can be none, in one sentence.
    """
    path = path_at(chosen)
    try:
        return ClassStore(path)
    except (OSError, sqlite3.Error, ClassError) as error:
        log.error("Classes can't be stored: %s: %s", type(error).__name__, error)
        raise ClassError(
            503,
            "There are no classes here, since QUANTSCOPE_STORE can't be written; its administrator finds "
            "why in the log.",
        ) from error


def check() -> None:
    """Raise a `ClassError` if this server's settings allow no classes; opens nothing."""
    path_at(settings.current())


@functools.cache
def current() -> ClassStore:
    """Return the store of classes of this process.

    Raises:
        ClassError: as `opened_at`.
    """
    return opened_at(settings.current())


def begin(visitor: str, plan: Sequence[ClassStep]) -> tuple[str, str]:
    """Begin a class as `ClassStore.begin`.

    Args:
        visitor: network address of who begins it; "" if unknown.

    Raises:
        ClassError: also if too many were begun from there.
    """
    if not _begins.allows(network(visitor)):
        REFUSED.labels("classes").inc()
        raise ClassError(429, "Too many classes were begun from your network; try again in a minute.")
    return current().begin(plan)


def regain(visitor: str, code: str, chosen: str) -> str:
    """Return the secret of a class as `ClassStore.regain`; ``visitor``: as for `begin`.

    Raises:
        ClassError: also if too many words were tried from there.
    """
    if not _regains.allows(network(visitor)):
        REFUSED.labels("classes").inc()
        raise ClassError(429, "Too many words were tried from your network; try again in a minute.")
    return current().regain(code, chosen)


def tidy() -> None:
    """Delete classes that have ended, also those of an earlier version."""
    for old in Path(os.path.expanduser(settings.current().store)).glob(EARLIER + "*"):
        if time.time() - old.stat().st_mtime > LONGEST:
            old.unlink(missing_ok=True)
    if (Path(os.path.expanduser(settings.current().store)) / NAME).exists():  # else no class has begun
        try:
            current().tidy()
        except ClassError as error:
            log.error("Classes that have ended can't be deleted: %s", error)
