"""What a class is made of, and what it refuses."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pages.serving.classroom.question import Question
from quantcore.errors import QuantError

Phase = Literal["open", "locked", "revealed"]
Act = Literal["open", "lock", "reveal", "revote", "reset"]


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
    """What presenter and projector see: how many browsers have ``joined``, and how many of them have ``answered`` the round
    that is ``current`` for phones; ``shown``, ``first``: the numbers of the round on the projector and of the first one that was
    not reset, 0 before that.
    """

    joined: int
    answered: int
    current: Round | None
    shown: int
    first: int


@dataclass(frozen=True)
class Tally:
    """The answers of a round: how many students answered, and how often each number was given, for each field."""

    round: Round
    answered: int
    counts: tuple[Counter[str], ...]
