"""Classes, their questions and answers, in one SQLite database that several processes on one machine may use.

A class goes through a plan, a list of steps; the projector shows one of them, and a step's question is asked
when it is shown first. Each time one is asked is a *round*, with a number of its own: a second vote on the
same question is a new round, and so is a question whose answers were reset, so that an answer that arrives
late can't count for another one. Each press of the presenter is a *turn*, and names the one that it follows.
"""

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from pages.serving.classroom import word
from pages.serving.classroom.database import READ, WRITE, Database
from pages.serving.classroom.question import (
    Act,
    Ballot,
    ClassError,
    Phase,
    Question,
    Round,
    Tally,
    as_json,
)
from pages.serving.classroom.step import MOST_BYTES, MOST_STEPS, ClassStep, with_ids
from pages.serving.log import log
from quantcore.errors import QuantError

# seconds; the upkeep runs every hour, and nothing is kept for more than a day
IDLE, LONGEST = 2 * 3600, 23 * 3600
MOST_BROWSERS, MOST_ROUNDS, MOST_CLASSES = 1000, 200, 1000
# seconds after a press within which another one is the same press: a double click, a worn clicker
BOUNCE = 0.6
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: nothing in it looks like something else
LENGTH = 8  # characters, 40 bits
_READ_AS = str.maketrans("oil", "011", " -")


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


class Board(NamedTuple):
    """What presenter and projector see.

    How many browsers have ``joined``, and how many of them have ``answered`` the round that is ``current``
    for phones; ``shown``: the step on the projector, None while it shows how to join, and which ``page`` of
    its answers; ``turn``: the number of presses so far.
    """

    joined: int
    answered: int
    current: Round | None
    shown: ClassStep | None
    page: int
    turn: int


class ClassStore(Database):
    """The classes in a database.

    ``secret`` is the presenter's; ``key`` is that or the projector's.

    Methods raise a `ClassError` if the class has ended, the secret is wrong, or the database can't be used.
    """

    def begin(self, plan: Sequence[ClassStep] = ()) -> tuple[str, str]:
        """Begin a class with this plan; return its code, and the secret with which one steers it."""
        code, secret = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH)), secrets.token_urlsafe(16)
        self.tidy()
        with self._transaction(WRITE):
            if self._row("SELECT count(*) FROM classes")[0] >= MOST_CLASSES:
                raise ClassError(
                    503, f"{MOST_CLASSES:,} classes are open here, the limit; try again in an hour."
                )
            now = self._now()
            row = code, _digest(viewing(secret)), now, now, _plan_text(with_ids(plan))
            query = "INSERT INTO classes (code, secret, began, touched, plan) VALUES (?, ?, ?, ?, ?)"
            self._db.execute(query, row)
        return code, secret

    def set_word(self, code: str, secret: str, chosen: str) -> None:
        """Keep the class for whoever knows its code and this word, which `regain` turns into the secret."""
        locked = word.locked(code, chosen, secret)
        with self._steering(code, secret):
            self._db.execute("UPDATE classes SET word = ? WHERE code = ?", (locked, code))

    def regain(self, code: str, chosen: str) -> str:
        """Return the secret of the class with this code and word; of each class, few tries are answered."""
        with self._transaction(WRITE):
            row = self._row("SELECT word, tried FROM classes WHERE code = ?", code)
            if row is None or row[0] is None:
                raise ClassError(403, word.NONE)
            next_try = word.counted(row[1], self._now())
            self._db.execute("UPDATE classes SET tried = ? WHERE code = ?", (next_try, code))
        secret = word.unlocked(code, chosen, row[0])
        with self._transaction(READ):
            known = self._row("SELECT secret FROM classes WHERE code = ?", code)
        if known is None or not secrets.compare_digest(known[0], _digest(viewing(secret))):
            raise ClassError(403, word.NONE)
        return secret

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

    def go(self, code: str, secret: str, step: str, page: int = 0, turn: int | None = None) -> None:
        """Show a step of the plan, or a further page of its answers; ask its question if it was not yet.

        Args:
            step: its id; "" shows how to join.
            turn: the one that the presenter saw; a press that was meant for another one changes nothing, and
                neither does one that follows another within `BOUNCE`.
        """
        with self._steering(code, secret):
            if not self._meant(code, turn):
                return
            found = self._step(code, step)
            if found is None and step:
                raise ClassError(409, "This step is not in the plan any more; choose another one.")
            asked = self._row("SELECT max(round) FROM rounds WHERE code = ? AND step = ?", code, step)[0]
            if found and found.question and not asked:
                self._begin_round(code, 1, found.question, step)
            else:
                query = "UPDATE classes SET step = ?, page = ? WHERE code = ?"
                self._db.execute(query, (step, page, code))

    def ask(self, code: str, secret: str, question: Question, step: str = "") -> int:
        """Ask the class a question, whether its plan has it or not; return the number of the round."""
        with self._steering(code, secret):
            self._meant(code, None)
            return self._begin_round(code, 1, question, step)

    def steer(self, code: str, secret: str, act: Act, turn: int | None = None) -> None:
        """Change the current round.

        ``open`` a locked one, ``lock`` its answers, ``reveal`` them, which locks them for good; ``revote``:
        ask the same question again and keep the answers so far; ``reset``: ask it again and delete the
        answers of this round. The projector shows it then.

        Args:
            turn: as for `go`.
        """
        with self._steering(code, secret):
            if not self._meant(code, turn):
                return
            now = self._current(code)
            if now is None:
                raise ClassError(409, "No question has been asked yet; ask one first.")
            if act in ("revote", "reset"):
                if act == "reset":
                    for table in ("answers", "rounds"):
                        query = f"DELETE FROM {table} WHERE code = ? AND round = ?"
                        self._db.execute(query, (code, now.number))
                self._begin_round(code, now.vote + (act == "revote"), now.question, now.step)
                return
            if now.phase == "revealed" and act != "reveal":
                raise ClassError(409, "The answers are revealed; ask the question again for new ones.")
            phases: dict[str, Phase] = {"open": "open", "lock": "locked", "reveal": "revealed"}
            query = "UPDATE rounds SET phase = ? WHERE code = ? AND round = ?"
            self._db.execute(query, (phases[act], code, now.number))
            self._db.execute("UPDATE classes SET step = ?, page = 0 WHERE code = ?", (now.step, code))

    def set_plan(self, code: str, secret: str, plan: Sequence[ClassStep]) -> None:
        """Replace the steps of the class; if the projector's is not among them, it shows how to join."""
        text = _plan_text(with_ids(plan))
        with self._steering(code, secret):
            self._db.execute("UPDATE classes SET plan = ? WHERE code = ?", (text, code))
            (at,) = self._row("SELECT step FROM classes WHERE code = ?", code)
            if at and self._step(code, at) is None:
                self._db.execute("UPDATE classes SET step = '', page = 0 WHERE code = ?", (code,))

    def plan(self, code: str, key: str) -> list[ClassStep]:
        """Return the steps of the class, in order."""
        with self._transaction(READ):
            self._find(code, key)
            return [ClassStep.from_json(each) for each in self._planned(code)]

    def end(self, code: str, secret: str) -> None:
        """End a class and delete all that was kept of it."""
        with self._steering(code, secret):
            self._delete(code)
        self._forget()

    def board(self, code: str, key: str) -> Board:
        """Return what presenter and projector see."""
        with self._transaction(READ):
            last = self._find(code, key)
            step, page, turn = self._row("SELECT step, page, turn FROM classes WHERE code = ?", code)
            (joined,) = self._row("SELECT count(*) FROM browsers WHERE code = ?", code)
            (answered,) = self._row("SELECT count(*) FROM answers WHERE code = ? AND round = ?", code, last)
            return Board(joined, answered, self._current(code), self._step(code, step), page, turn)

    def tallies(self, code: str, key: str, step: str | None = None) -> list[Tally]:
        """Return the answers of every round, in order; with a step, of all votes on its question."""
        with self._transaction(READ):
            self._find(code, key)
            found, values, only = [], [code], ""
            if step is not None:
                values += [step]
                first = "SELECT max(round) FROM rounds WHERE code = ?1 AND step = ?2 AND vote = 1"
                only = f"AND step = ?2 AND round >= ({first})"
            query = "SELECT round, vote, phase, question, step FROM rounds WHERE code = ?1"
            for row in self._db.execute(f"{query} {only} ORDER BY round", values).fetchall():
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
    def _steering(self, code: str, secret: str) -> Iterator[None]:
        with self._transaction(WRITE):
            self._find(code, viewing(secret))
            self._touch(code)
            yield

    def _meant(self, code: str, turn: int | None) -> bool:
        """Count a press, if it was meant for the turn that is there, and is not the one before it again."""
        there, steered = self._row("SELECT turn, steered FROM classes WHERE code = ?", code)
        if turn is not None and (turn != there or 0 <= self._now() - steered < BOUNCE):
            return False
        query = "UPDATE classes SET turn = turn + 1, steered = ? WHERE code = ?"
        self._db.execute(query, (self._now(), code))
        return True

    def _planned(self, code: str) -> list[Any]:
        found: list[Any] = json.loads(self._row("SELECT plan FROM classes WHERE code = ?", code)[0])
        return found

    def _step(self, code: str, name: str) -> ClassStep | None:
        """Return a step of the plan; None if it has none with this id."""
        found = (ClassStep.from_json(each) for each in self._planned(code) if name and each["id"] == name)
        return next(found, None)

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

    def _begin_round(self, code: str, vote: int, question: Question, step: str) -> int:
        number = self._find(code) + 1
        if number > MOST_ROUNDS:
            raise ClassError(409, f"This class has asked {MOST_ROUNDS} times, the limit; begin a new class.")
        row = code, number, vote, "open", question.to_text(), step
        self._db.execute("INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?)", row)
        query = "UPDATE classes SET last_round = ?, step = ?, page = 0 WHERE code = ?"
        self._db.execute(query, (number, step, code))
        return number

    def _current(self, code: str) -> Round | None:
        query = (
            "SELECT round, vote, phase, question, step FROM rounds WHERE code = ? ORDER BY round DESC LIMIT 1"
        )
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


def _round(row: tuple[int, int, Phase, str, str]) -> Round:
    number, vote, phase, question, step = row
    return Round(number, vote, phase, Question.from_text(question), step)


def _plan_text(plan: Sequence[ClassStep]) -> str:
    text = as_json([step.to_json() for step in plan])
    if len(plan) > MOST_STEPS or len(text.encode()) > MOST_BYTES:
        raise ClassError(
            400, f"A plan holds at most {MOST_STEPS} steps of {MOST_BYTES:,} bytes together; take one out."
        )
    return text


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
