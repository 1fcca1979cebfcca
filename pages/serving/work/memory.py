"""How much memory this process may use: the machine's, or its container's if that is less."""

import ctypes
import gc
import os
from contextlib import suppress
from pathlib import Path

# Version 1 of control groups writes "no limit" as the largest number of pages
_UNLIMITED = 2**60


def usable(root: Path = Path("/")) -> int:
    """Return the bytes of memory that this process may use.

    Args:
        root: the folder with proc and sys.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_limits(root)])


def give_back() -> None:
    """Return to the machine the freed memory that Python and the C library keep.

    After a sweep of the largest tensor, that was 1.35 times the tensor's size.
    """
    gc.collect()
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _limits(root: Path) -> list[int]:
    """Return the limits of the process's control groups (versions 2 and 1), and of their parents."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not on Linux
        return []
    found = []
    for line in lines:
        _, kinds, group = line.split(":", 2)
        if not kinds:
            found += _upward(root / "sys/fs/cgroup", group, "memory.max")
        elif "memory" in kinds.split(","):
            found += _upward(root / "sys/fs/cgroup/memory", group, "memory.limit_in_bytes")
    return [limit for limit in found if limit < _UNLIMITED]


def _upward(mount: Path, group: str, name: str) -> list[int]:
    """Return the limits of a group and of all its parents.

    A container often sees its own group as the mount's root, under a path that exists only on the host.
    """
    inner = mount / group.strip("/")
    found = []
    for folder in [inner, *inner.parents][: len(inner.parts) - len(mount.parts) + 1]:
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            continue
        if text.isdecimal():  # "max": no limit
            found.append(int(text))
    return found
