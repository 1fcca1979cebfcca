"""Classes, their questions and answers, in one SQLite database that several processes on one machine may use.

A class asks one question at a time. Each time one is asked is a *round*, with a number of its own: a second
vote on the same question is a new round, and so is a question whose answers were reset, so that an answer
that arrives late can't count for another one.
"""

import hashlib
import json
import os
import secrets
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pages.serving.classroom import clock
from pages.serving.classroom.question import (
    Act,
    Ballot,
    Board,
    ClassError,
    Phase,
    Question,
    Round,
    Tally,
    as_json,
)
from pages.serving.log import log
from quantcore.errors import QuantError

# seconds; the upkeep runs every hour, and nothing is kept for more than a day
IDLE, LONGEST = 2 * 3600, 23 * 3600
MOST_BROWSERS, MOST_ROUNDS, MOST_CLASSES = 1000, 200, 1000
MOST_PLANNED, PLAN_BYTES = 40, 400_000  # questions of a plan, and their size
# seconds after a press within which another one is the same press: a double click, a worn clicker
BOUNCE = 0.6
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: nothing in it looks like something else
LENGTH = 8  # characters, 40 bits
_READ_AS = str.maketrans("oil", "011", " -")
_WAIT = 5.0  # seconds for another process's write, during which this process reads on
_PAUSE = 0.02  # seconds between two attempts
READ, WRITE = "BEGIN", "BEGIN IMMEDIATE"  # while one process writes, the others wait
_TABLES = """
CREATE TABLE IF NOT EXISTS classes (
    code TEXT PRIMARY KEY, secret BLOB, began REAL, touched REAL, last_round INTEGER, shown INTEGER,
    steered REAL, plan TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rounds (
    code TEXT, round INTEGER, vote INTEGER, phase TEXT, question TEXT, PRIMARY KEY (code, round)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS browsers (
    code TEXT, browser BLOB, PRIMARY KEY (code, browser)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS answers (
    code TEXT, round INTEGER, browser BLOB, typed TEXT, time REAL DEFAULT 0,
    PRIMARY KEY (code, round, browser)
) WITHOUT ROWID;
"""


def code_of(text: str) -> str:
    """Return a class's code as it is stored, however it was typed; "" if it is not one.

    >>> code_of(" K3F7-9OXM "), code_of("k3f7")
    ('k3f790xm', '')
    """
    plain = text[:40].lower().translate(_READ_AS)
    return plain if len(plain) == LENGTH and set(plain) <= set(ALPHABET) else ""


def viewing(secret: str) -> str:
    """Return the key of the projector's link, which reads like the presenter's secret and steers nothing."""
    return hashlib.sha256(secret.encode()).hexdigest()[:32]


class ClassStore:
    """The classes in a database.

    ``secret`` is the presenter's; ``key`` is that or the projector's.

    Args:
        path: the file of the database, on a local disk.
        elapsed: the seconds since the machine booted.
        wall: the seconds since 1970.

    Methods raise a `ClassError` if the class has ended, the secret is wrong, or the database can't be used.
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
            if not any(column[1] == "time" for column in self._db.execute("PRAGMA table_info(answers)")):
                # of an earlier version
                self._db.execute("ALTER TABLE answers ADD COLUMN time REAL DEFAULT 0")
            self._ahead = clock.ahead(self._db, elapsed, wall)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA busy_timeout = {1e3 * _PAUSE:.0f}")

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def begin(self, plan: Sequence[Question] = ()) -> tuple[str, str]:
        """Begin a class with these questions; return its code, and the secret with which one steers it."""
        code, secret = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH)), secrets.token_urlsafe(16)
        self.tidy()
        with self._transaction(WRITE):
            if self._row("SELECT count(*) FROM classes")[0] >= MOST_CLASSES:
                raise ClassError(
                    503, f"{MOST_CLASSES:,} classes are open here, the limit; try again in an hour."
                )
            now = self._now()
            row = code, _digest(viewing(secret)), now, now, _plan_text(plan)
            self._db.execute("INSERT INTO classes VALUES (?, ?, ?, ?, 0, 0, 0, ?)", row)
        return code, secret

    def join(self, code: str, browser: str = "") -> str:
        """Let a browser into a class; return the name under which it answers: the same as before."""
        with self._transaction(WRITE):
            self._touch(code)
            if browser and self._joined(code, browser):
                return browser
            if self._row("SELECT count(*) FROM browsers WHERE code = ?", code)[0] >= MOST_BROWSERS:
                full = f"This class is full: {MOST_BROWSERS:,} browsers have joined. Ask your teacher."
                raise ClassError(503, full)
            browser = secrets.token_urlsafe(12)
            self._db.execute("INSERT INTO browsers VALUES (?, ?)", (code, _digest(browser)))
        return browser

    def state(self, code: str, browser: str) -> tuple[Round | None, tuple[str, ...] | None]:
        """Return the current round, None before the first question, and this browser's answer, if any."""
        with self._transaction(READ):
            self._check_joined(code, browser)
            self._find(code)
            now = self._current(code)
            query = "SELECT typed FROM answers WHERE code = ? AND round = ? AND browser = ?"
            row = now and self._row(query, code, now.number, _digest(browser))
            return now, tuple(json.loads(row[0])) if row else None

    def answer(self, code: str, browser: str, number: int, typed: Sequence[str]) -> Round:
        """Count a browser's answer to a round, in place of an earlier one; return the round.

        Raises:
            ClassError: also if the round is over or locked, or an answer is not a number.
        """
        with self._transaction(WRITE):
            self._check_joined(code, browser)
            self._touch(code)
            now = self._current(code)
            if now is None or now.number != number:
                over = "That question is over, so this answer was not counted; answer the one shown now."
                raise ClassError(409, over)
            if now.phase != "open":
                raise ClassError(409, f"The answers are {now.phase}, so this one was not counted.")
            if len(typed) != len(now.question.fields):
                asked = len(now.question.fields)
                raise ClassError(400, f"The question asks for {asked} numbers, not {len(typed)}.")
            try:
                values = [now.question.read(text) for text in typed]
            except QuantError as error:
                raise ClassError(400, str(error)) from None
            row = code, number, _digest(browser), as_json(values), self._now()
            self._db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", row)
            return now

    def ask(self, code: str, secret: str, question: Question, after: int | None = None) -> int:
        """Ask the class a question; return the number of the round.

        Args:
            after: number of the round, 0 before the first, on which the presenter pressed; a press that was
                meant for another one changes nothing, and neither does one that follows another within
                `BOUNCE`.
        """
        with self._steering(code, secret):
            if self._meant(code, after):
                return self._begin_round(code, 1, question)
            return self._find(code)

    def steer(self, code: str, secret: str, act: Act, number: int | None = None) -> None:
        """Change the current round.

        ``open`` a locked one, ``lock`` its answers, ``reveal`` them, which locks them for good; ``revote``:
        ask the same question again and keep the answers so far; ``reset``: ask it again and delete the
        answers of this round.

        Args:
            number: of the round on which the presenter pressed, as for `ask`.
        """
        with self._steering(code, secret):
            if not self._meant(code, number):
                return
            now = self._current(code)
            if now is None:
                raise ClassError(409, "No question has been asked yet; ask one first.")
            if act in ("revote", "reset"):
                if act == "reset":
                    for table in ("answers", "rounds"):
                        query = f"DELETE FROM {table} WHERE code = ? AND round = ?"
                        self._db.execute(query, (code, now.number))
                self._begin_round(code, now.vote + (act == "revote"), now.question)
                return
            if now.phase == "revealed" and act != "reveal":
                raise ClassError(409, "The answers are revealed; ask the question again for new ones.")
            phases: dict[str, Phase] = {"open": "open", "lock": "locked", "reveal": "revealed"}
            query = "UPDATE rounds SET phase = ? WHERE code = ? AND round = ?"
            self._db.execute(query, (phases[act], code, now.number))

    def look(self, code: str, secret: str, back: bool, number: int) -> None:
        """Show the previous or the next round on the projector; phones stay at the current one.

        ``number``: as for `ask`, of the round on the projector.
        """
        nearest, beyond = ("max", "<") if back else ("min", ">")
        query = f"SELECT {nearest}(round) FROM rounds WHERE code = ? AND round {beyond} ?"
        with self._steering(code, secret):
            (found,) = self._row(query, code, number)
            if found and self._meant(code, number, "shown"):
                self._db.execute("UPDATE classes SET shown = ? WHERE code = ?", (found, code))

    def set_plan(self, code: str, secret: str, plan: Sequence[Question]) -> None:
        """Replace the questions that the class will be asked."""
        with self._steering(code, secret):
            self._db.execute("UPDATE classes SET plan = ? WHERE code = ?", (_plan_text(plan), code))

    def plan(self, code: str, key: str) -> list[Question]:
        """Return the questions that the class will be asked, in order, those that it was asked included."""
        with self._transaction(READ):
            self._find(code, key)
            (text,) = self._row("SELECT plan FROM classes WHERE code = ?", code)
            return [Question.from_text(each) for each in json.loads(text)]

    def end(self, code: str, secret: str) -> None:
        """End a class and delete all that was kept of it."""
        with self._steering(code, secret):
            self._delete(code)
        self._forget()

    def board(self, code: str, key: str) -> Board:
        """Return what presenter and projector see."""
        with self._transaction(READ):
            last = self._find(code, key)
            (shown,) = self._row("SELECT shown FROM classes WHERE code = ?", code)
            (first,) = self._row("SELECT min(round) FROM rounds WHERE code = ?", code)
            (joined,) = self._row("SELECT count(*) FROM browsers WHERE code = ?", code)
            (answered,) = self._row("SELECT count(*) FROM answers WHERE code = ? AND round = ?", code, last)
            return Board(joined, answered, self._current(code), shown, first or 0)

    def tallies(self, code: str, key: str, number: int | None = None) -> list[Tally]:
        """Return the answers of every round, in order; with a number, of all votes on its question so far."""
        with self._transaction(READ):
            first, last = 0, self._find(code, key)
            if number is not None:
                query = "SELECT max(round) FROM rounds WHERE code = ? AND round <= ? AND vote = 1"
                first, last = self._row(query, code, number)[0] or 0, number
            found = []
            query = "SELECT round, vote, phase, question FROM rounds WHERE code = ? AND round BETWEEN ? AND ?"
            query += " ORDER BY round"
            for row in self._db.execute(query, (code, first, last)):
                now = _round(row)
                query = "SELECT typed FROM answers WHERE code = ? AND round = ?"
                given = [json.loads(typed) for (typed,) in self._db.execute(query, (code, now.number))]
                fields = range(len(now.question.fields))
                columns = tuple(Counter(values[i] for values in given) for i in fields)
                found.append(Tally(now, len(given), columns))
            return found

    def ballots(self, code: str, key: str) -> list[Ballot]:
        """Return every browser's answers, by student and round."""
        with self._transaction(READ):
            self._find(code, key)
            query = "SELECT browser, round, typed, time FROM answers WHERE code = ?1 ORDER BY browser, round"
            rows = self._db.execute(query, (code,)).fetchall()
        numbers = {browser: i for i, browser in enumerate(dict.fromkeys(row[0] for row in rows), 1)}
        return [Ballot(numbers[row[0]], row[1], tuple(json.loads(row[2])), row[3]) for row in rows]

    def tidy(self) -> None:
        """Delete the classes that have ended by themselves."""
        with self._transaction(WRITE):
            query = "SELECT code FROM classes WHERE touched < ? OR began < ?"
            ended = self._db.execute(query, (self._now() - IDLE, self._now() - LONGEST)).fetchall()
            for (code,) in ended:
                self._delete(code)
        if ended:
            self._forget()

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
    def _steering(self, code: str, secret: str) -> Iterator[None]:
        with self._transaction(WRITE):
            self._find(code, viewing(secret))
            self._touch(code)
            yield

    def _meant(self, code: str, number: int | None, column: str = "last_round") -> bool:
        """Tell whether a press was meant for the round that is there, and is not the one before it again."""
        if number is None:
            return True
        there, steered = self._row(f"SELECT {column}, steered FROM classes WHERE code = ?", code)
        if number != there or 0 <= self._now() - steered < BOUNCE:
            return False
        self._db.execute("UPDATE classes SET steered = ? WHERE code = ?", (self._now(), code))
        return True

    def _find(self, code: str, key: str | None = None) -> int:
        """Return the last round of a class that has not ended; with a key, only if that may read it."""
        row = self._row("SELECT secret, began, touched, last_round FROM classes WHERE code = ?", code)
        now = self._now()
        if row is None or row[1] < now - LONGEST or row[2] < now - IDLE:
            raise ClassError(
                404,
                "There is no class with this code now: check the code, or ask your teacher whether it has "
                "ended.",
            )
        # stored is what can be computed from the projector's key, and that from the secret, but not back
        digests = [] if key is None else [_digest(each) for each in (key, viewing(key))]
        if key is not None and not any(secrets.compare_digest(row[0], digest) for digest in digests):
            raise ClassError(403, "Only the presenter's own link can steer this class; open it from there.")
        return int(row[3])

    def _touch(self, code: str) -> None:
        self._find(code)
        self._db.execute("UPDATE classes SET touched = ? WHERE code = ?", (self._now(), code))

    def _begin_round(self, code: str, vote: int, question: Question) -> int:
        number = self._find(code) + 1
        if number > MOST_ROUNDS:
            raise ClassError(409, f"This class has asked {MOST_ROUNDS} times, the limit; begin a new class.")
        row = code, number, vote, "open", question.to_text()
        self._db.execute("INSERT INTO rounds VALUES (?, ?, ?, ?, ?)", row)
        query = "UPDATE classes SET last_round = ?1, shown = ?1 WHERE code = ?2"
        self._db.execute(query, (number, code))
        return number

    def _current(self, code: str) -> Round | None:
        query = "SELECT round, vote, phase, question FROM rounds WHERE code = ? ORDER BY round DESC LIMIT 1"
        row = self._row(query, code)
        return row and _round(row)

    def _joined(self, code: str, browser: str) -> bool:
        query = "SELECT 1 FROM browsers WHERE code = ? AND browser = ?"
        return self._row(query, code, _digest(browser)) is not None

    def _check_joined(self, code: str, browser: str) -> None:
        """Check first: whether a class has this code learns only who joins, which the limits count."""
        if not self._joined(code, browser):
            raise ClassError(403, "This browser has not joined the class; reload the page to join.")

    def _delete(self, code: str) -> None:
        for table in ("answers", "browsers", "rounds", "classes"):
            self._db.execute(f"DELETE FROM {table} WHERE code = ?", (code,))

    def _forget(self) -> None:
        """Empty the log of changes, in which deleted answers could still be read."""
        try:
            self._alone("PRAGMA wal_checkpoint(TRUNCATE)")
        except ClassError as error:  # the answers are deleted, and the next checkpoint empties the log
            log.warning("The log of the database of classes is not emptied yet: %s", error)


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


def _round(row: tuple[int, int, Phase, str]) -> Round:
    return Round(*row[:3], Question.from_text(row[3]))


def _plan_text(plan: Sequence[Question]) -> str:
    text = as_json([question.to_text() for question in plan])
    if len(plan) > MOST_PLANNED or len(text.encode()) > PLAN_BYTES:
        raise ClassError(
            400,
            f"A plan holds at most {MOST_PLANNED} questions of {PLAN_BYTES:,} bytes together; take one out.",
        )
    return text


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
