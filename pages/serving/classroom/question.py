"""A question to a class, how what students type is read, and its rounds and answers."""

import json
import re
from collections import Counter
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Self

from pages.serving.classroom import stored
from pages.serving.classroom.stored import TensorPart
from quantcore.errors import QuantError
from quantcore.prediction import Mark, NumberKey

MOST_FIELDS, MOST_TYPED = 8, 12  # answers to one question, and characters of one
MOST_CHOICES = 6
ROOM = 900  # bytes of what a phone is sent, which has 1,024 with its frame
Phase = Literal["open", "locked", "revealed"]
Act = Literal["open", "lock", "reveal", "revote", "reset"]
_NUMBER = re.compile(r"[-−]?(\d+([.,]\d*)?|[.,]\d+)", re.ASCII)


@dataclass(frozen=True)
class Question:
    """What a class predicts: numbers, or one of several choices.

    Attributes:
        prompt: the question.
        facts: what is given, in one line.
        fields: the names of the numbers asked for, such as "x = 0.3".
        keys: the answer key of each; a choice is answered with its index, counted from 0.
        choices: what one chooses from; none if numbers are typed.
        asked: the phone's own words for the prompt, "" if they are the lecturer's; see `words`.
        link: page and query that show its tensor, "" if none can.
        part: of the tensor; None if it needs none.

    Raises:
        QuantError: it has no field, a field has no right number, or phones can't be sent all of it.
    """

    prompt: str
    facts: str
    fields: tuple[str, ...]
    keys: tuple[NumberKey, ...]
    choices: tuple[str, ...] = ()
    asked: str = ""
    link: str = ""
    part: TensorPart | None = None

    def __post_init__(self) -> None:
        if not 0 < len(self.fields) <= MOST_FIELDS or len(self.fields) != len(self.keys):
            raise QuantError(
                f"This question asks for {len(self.fields)} numbers and has {len(self.keys)} right ones; "
                f"ask for 1 to {MOST_FIELDS}, each with its right number."
            )
        if self.choices and not (len(self.fields) == 1 and 2 <= len(self.choices) <= MOST_CHOICES):
            raise QuantError(
                f"This question has {len(self.choices)} choices for {len(self.fields)} answers; give 2 to "
                f"{MOST_CHOICES} choices for one."
            )
        for key in self.keys:
            self._check(key)
        size = len(as_json(self.shown() | {"right": self.right}).encode()) + len(self.fields) * (
            MOST_TYPED + 9
        )
        if size > ROOM:
            raise QuantError(
                f"This question takes {size} bytes, and phones are sent at most {ROOM}: ask for fewer "
                "numbers."
            )

    def _check(self, key: NumberKey) -> None:
        if key.digits != self.digits:
            raise QuantError("Not all answers have the same number of digits; ask two questions.")
        try:
            fits = self.read(key.right) == key.right
        except QuantError:
            fits = False
        if not fits:
            raise QuantError(
                f"The right number {key.right[:40]} can't be typed in {MOST_TYPED} characters; choose "
                "another tensor."
            )

    @property
    def digits(self) -> int:
        """Significant digits of the answers; 0: they are integers."""
        return self.keys[0].digits

    @property
    def right(self) -> tuple[str, ...]:
        """The right numbers, as `read` returns them."""
        return tuple(key.right for key in self.keys)

    def shown(self) -> dict[str, object]:
        """Return what students see before the answers are revealed."""
        found = {"prompt": self.prompt, "facts": self.facts, "fields": self.fields, "digits": self.digits}
        return found | {name: getattr(self, name) for name in ("choices", "asked") if getattr(self, name)}

    def read(self, text: str) -> str:
        """Return a typed number in one form: a minus sign and a point, no spaces, no leading zeros.

        >>> question = Question("Which code?", "", ("x = 0.3",), (NumberKey("1"),))
        >>> question.read("−07"), question.read("-0")
        ('-7', '0')

        Raises:
            QuantError: it is not a number, or too long, or not an integer where one is asked for.
        """
        plain = text.strip()
        if len(plain) > MOST_TYPED or not _NUMBER.fullmatch(plain):
            raise QuantError(f"{plain[:20]!r} is not a number of at most {MOST_TYPED} characters; type one.")
        value = Decimal(plain.replace("−", "-").replace(",", "."))
        if self.choices and value not in range(len(self.choices)):
            raise QuantError(f"{plain!r} is not one of the {len(self.choices)} choices; press one.")
        if not self.digits:
            if value != value.to_integral_value():
                raise QuantError(f"{plain!r} is not an integer; type one.")
            return f"{value.normalize() or Decimal():f}"
        return f"{value:f}".rstrip(".") if value else "0"

    def said(self, answer: str) -> str:
        """Return an answer as people read it: a number, or a choice with its letter."""
        return f"{letter(int(answer))}: {self.choices[int(answer)]}" if self.choices else answer

    def reasons(self, field: int, answer: str) -> list[Mark]:
        """Return what explains an answer, the likeliest first; nothing if it is right.

        The sentences leave out the arithmetic of the right number, which the key has.
        """
        key = self.keys[field]
        marks = key.marks(answer)
        if marks[0].right:
            return []
        if self.choices and not any(mark.mistake for mark in marks):  # an index has no neighbor, nor digits
            marks = [Mark(answer, "wrong", key.how, key.right)]
        if not any(mark.mistake for mark in marks):
            for name, other in zip(self.fields, self.keys, strict=True):
                if other.right == answer != key.right:
                    return [Mark(answer, "swapped", f"That is the answer to {name}.", key.right)]
        return [replace(mark, sentence=mark.sentence.removesuffix(key.how).strip()) for mark in marks]

    def to_json(self) -> dict[str, Any]:
        """Return the question as it is stored, without what has its default."""
        found = {name: value for name, value in asdict(self).items() if value not in ("", (), None)}
        found["keys"] = [
            {name: value for name, value in key.items() if value not in ("", ())} for key in found["keys"]
        ]
        return found

    def to_text(self) -> str:
        """Return the question as it is stored, in one line."""
        return as_json(self.to_json())

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `to_text` returned."""
        return cls.from_json(json.loads(text))

    @classmethod
    def from_json(cls, found: object) -> Self:
        """Read what `to_json` returned.

        Raises:
            QuantError: it is not a question.
        """
        return cls(**stored.values(found, frozenset(cls.__dataclass_fields__)))


def letter(index: int) -> str:
    """Return the letter of a choice.

    >>> letter(0), letter(5)
    ('A', 'F')
    """
    return chr(ord("A") + index)


def as_json(content: object) -> str:
    """Write JSON without spaces, in which a letter of any alphabet stands for itself."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


class ClassError(QuantError):
    """What a class refuses. ``status``: of the response that says so, as HTTP numbers them."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True)
class Round:
    """One vote on a question.

    ``number``: in the class; ``vote``: 1, or 2 after a revote, and so on; ``step``: the id of its step.
    """

    number: int
    vote: int
    phase: Phase
    question: Question
    step: str = ""


@dataclass(frozen=True)
class Tally:
    """The answers of a round: how many students answered, and how often each number was given, per field."""

    round: Round
    answered: int
    counts: tuple[Counter[str], ...]


class Ballot(NamedTuple):
    """What a browser answered in a round.

    ``student``: the browser's number in this class, which says nothing about who joined when; ``time``: in
    seconds since 1970, 0 if it was not kept.
    """

    student: int
    round: int
    typed: tuple[str, ...]
    time: float
