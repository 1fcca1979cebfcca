"""A question to a class, how what students type is read, and its rounds and answers."""

import json
import re
from collections import Counter
from dataclasses import asdict, dataclass
from decimal import Context, Decimal
from typing import Literal, NamedTuple, Self

from quantcore.errors import QuantError

MOST_FIELDS, MOST_TYPED = 8, 12  # answers to one question, and characters of one
ROOM = 900  # bytes of what a phone is sent, which has 1,024 with its frame
Phase = Literal["open", "locked", "revealed"]
Act = Literal["open", "lock", "reveal", "revote", "reset"]
_NUMBER = re.compile(r"[-−]?(\d+([.,]\d*)?|[.,]\d+)", re.ASCII)


@dataclass(frozen=True)
class Question:
    """What a class predicts.

    Attributes:
        prompt: the question.
        facts: what is given, in one line.
        fields: the names of the numbers asked for, such as "x = 0.3".
        right: the right number of each, as `read` returns it.
        digits: significant digits to which answers are rounded; 0: they are integers.
        source: what the presenter's page makes the question from; phones never see it.

    Raises:
        QuantError: it has no field, a field has no right number, or phones can't be sent all of it.
    """

    prompt: str
    facts: str
    fields: tuple[str, ...]
    right: tuple[str, ...]
    digits: int = 0
    source: str = ""

    def __post_init__(self) -> None:
        if not 0 < len(self.fields) <= MOST_FIELDS or len(self.fields) != len(self.right):
            raise QuantError(
                f"This question asks for {len(self.fields)} numbers and has {len(self.right)} right ones; "
                f"ask for 1 to {MOST_FIELDS}, each with its right number."
            )
        for text in self.right:
            if len(text) > MOST_TYPED or self.read(text) != text:
                raise QuantError(
                    f"The right number {text[:40]} can't be typed in {MOST_TYPED} characters; choose another "
                    "tensor."
                )
        size = len(as_json(self.shown() | {"right": self.right}).encode()) + len(self.fields) * (
            MOST_TYPED + 3
        )
        if size > ROOM:
            raise QuantError(
                f"This question takes {size} bytes, and phones are sent at most {ROOM}: ask for fewer "
                "numbers."
            )

    def shown(self) -> dict[str, object]:
        """Return what students see before the answers are revealed."""
        return {"prompt": self.prompt, "facts": self.facts, "fields": self.fields, "digits": self.digits}

    def read(self, text: str) -> str:
        """Return a typed number in the one form in which equal numbers are equal texts.

        >>> question = Question("Which code?", "", ("x = 0.3",), ("1",))
        >>> question.read("−07"), question.read("-0")
        ('-7', '0')

        Raises:
            QuantError: it is not a number, or too long, or not an integer where one is asked for.
        """
        plain = text.strip()
        if len(plain) > MOST_TYPED or not _NUMBER.fullmatch(plain):
            raise QuantError(f"{plain[:20]!r} is not a number of at most {MOST_TYPED} characters; type one.")
        value = Decimal(plain.replace("−", "-").replace(",", "."))
        if not self.digits and value != value.to_integral_value():
            raise QuantError(f"{plain!r} is not an integer; type one.")
        rounded = Context(prec=self.digits).plus(value) if self.digits else value
        return f"{rounded.normalize() or Decimal():f}"

    def to_text(self) -> str:
        """Return the question as it is stored."""
        return as_json(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `to_text` returned."""
        found = json.loads(text)
        return cls(**found | {name: tuple(found[name]) for name in ("fields", "right")})


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
    """One vote on a question. ``number``: in the class; ``vote``: 1, or 2 after a revote, and so on."""

    number: int
    vote: int
    phase: Phase
    question: Question


class Board(NamedTuple):
    """What presenter and projector see.

    How many browsers have ``joined``, and how many of them have ``answered`` the round that is ``current``
    for phones; ``shown``, ``first``: the numbers of the round on the projector and of the first one that was
    not reset, 0 before that.
    """

    joined: int
    answered: int
    current: Round | None
    shown: int
    first: int


@dataclass(frozen=True)
class Tally:
    """The answers of a round: how many students answered, and how often each number was given, per field."""

    round: Round
    answered: int
    counts: tuple[Counter[str], ...]
