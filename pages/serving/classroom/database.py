"""The SQLite database of the classes: its tables, and its transactions between processes and threads."""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pages.serving.classroom import clock
from pages.serving.classroom.question import ClassError

_WAIT = 5.0  # seconds for another process's write, during which this process reads on
_PAUSE = 0.02  # seconds between two attempts
READ, WRITE = "BEGIN", "BEGIN IMMEDIATE"  # while one process writes, the others wait
_TABLES = """
CREATE TABLE IF NOT EXISTS classes (
    code TEXT PRIMARY KEY, secret BLOB, began REAL, touched REAL, last_round INTEGER DEFAULT 0, plan TEXT,
    step TEXT DEFAULT '', page INTEGER DEFAULT 0, turn INTEGER DEFAULT 0, steered REAL DEFAULT 0, word BLOB,
    tried REAL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rounds (
    code TEXT, round INTEGER, vote INTEGER, phase TEXT, question TEXT, step TEXT, PRIMARY KEY (code, round)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS browsers (
    code TEXT, browser BLOB, PRIMARY KEY (code, browser)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS answers (
    code TEXT, round INTEGER, browser BLOB, typed TEXT, time REAL,
    PRIMARY KEY (code, round, browser)
) WITHOUT ROWID;
"""


class Database:
    """An open database, with its clock.

    Args:
        path: the file of the database, on a local disk.
        elapsed: the seconds since the machine booted.
        wall: the seconds since 1970.
    """

    def __init__(
        self,
        path: Path,
        elapsed: Callable[[], float] = clock.since_boot,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._elapsed, self._ahead, self._lock = elapsed, 0.0, threading.Lock()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # else SQLite makes it readable for other users
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self._db = sqlite3.connect(path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
        self._db.executescript("PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON;")
        with self._transaction(WRITE):  # not in the log yet: a second process waits until the tables exist
            for table in (*_TABLES.split(";"), clock.TABLE):
                self._db.execute(table)
            self._ahead = clock.ahead(self._db, elapsed, wall)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA busy_timeout = {1e3 * _PAUSE:.0f}")

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        """Let all that happens in it happen or nothing, and see one moment."""
        with _in_words(), self._begun(begin):
            try:
                yield
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    @contextmanager
    def _begun(self, statement: str) -> Iterator[None]:
        """Hold the connection once the statement succeeded; while it waits, other threads have it."""
        end = time.monotonic() + _WAIT
        while True:
            with self._lock:
                try:
                    self._db.execute(statement).fetchall()
                except sqlite3.OperationalError as error:
                    busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                    if not busy or time.monotonic() > end:
                        raise
                else:
                    yield
                    return
            time.sleep(_PAUSE)

    def _alone(self, statement: str) -> None:
        """Execute a statement outside of transactions."""
        with _in_words(), self._begun(statement):
            pass

    def _now(self) -> float:
        """Return the seconds since 1970, as this machine counts them since it booted."""
        return self._elapsed() + self._ahead

    def _row(self, query: str, *values: object) -> Any:
        """Return the first row of a query's result."""
        return self._db.execute(query, values).fetchone()


@contextmanager
def _in_words() -> Iterator[None]:
    """Say in one sentence why the database can't be used."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            problem = "The class can't be reached now, because another process writes to it"
        elif code == sqlite3.SQLITE_FULL:
            problem = "The class can't be changed now, because the server's disk is full"
        else:
            problem = f"The class can't be reached now ({error})"
        raise ClassError(503, f"{problem}; nothing was changed. Try again in a moment.") from error
