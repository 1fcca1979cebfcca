"""The time that classes are stored with: the machine's since it booted, which no setting of a clock changes.

The wall clock is read once per boot. No jump of it by hours ends, keeps or reorders a class.
"""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

TABLE = "CREATE TABLE IF NOT EXISTS clocks (boot TEXT PRIMARY KEY, ahead REAL) WITHOUT ROWID"
_BOOT = Path("/proc/sys/kernel/random/boot_id")  # Linux only


def since_boot() -> float:
    """Return the seconds since the machine booted, the same in all its processes.

    Those asleep are included where the system counts them.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def ahead(db: sqlite3.Connection, elapsed: Callable[[], float], wall: Callable[[], float]) -> float:
    """Return what to add to ``elapsed`` for the time that all processes store, in a write transaction.

    After a boot, time goes on where the wall clock is, but never before what is stored: without a boot's
    name, an ``elapsed`` that began anew shows in that.
    """
    boot = _BOOT.read_text("ascii").strip() if _BOOT.exists() else ""
    (latest,) = db.execute("SELECT max(max(began, touched)) FROM classes").fetchone()
    known = db.execute("SELECT ahead FROM clocks WHERE boot = ?", (boot,)).fetchone()
    if known is not None and elapsed() + known[0] >= (latest or 0.0):
        return float(known[0])
    found = max(wall(), latest or 0.0) - elapsed()
    db.execute("DELETE FROM clocks")  # a machine has booted once since then
    db.execute("INSERT INTO clocks VALUES (?, ?)", (boot, found))
    return found
