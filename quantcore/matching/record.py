"""What a search finds."""

from dataclasses import dataclass
from typing import NamedTuple

from quantcore.matching.hypotheses.corruption import NONE, Corruption
from quantcore.scheme import Scheme


@dataclass(frozen=True)
class Cell:
    """A code that does not fit: ``expected`` by the scheme, ``got`` in what was given, and why.

    ``index``: in the original.
    """

    index: tuple[int, ...]
    expected: int
    got: int
    reason: str


@dataclass(frozen=True)
class Candidate:
    """Schemes that give the codes, or nearly.

    ``scheme``: the simplest of them; ``same``: the others, with the same integers, scales and zero points;
    ``corruption``: what went wrong (falsy where nothing did); ``differing``: how many codes do not fit, ``cells``
    the first of them, ``reasons`` how many for each kind of reason; ``notes``: how a given scale and zero_point
    differ from the scheme's, empty where they are equal or none was given; ``explanations``: what the mistakes did to
    these numbers, and what else gives the codes, a sentence each without its full stop.
    """

    scheme: Scheme
    differing: int
    corruption: Corruption = NONE
    cells: tuple[Cell, ...] = ()
    reasons: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()
    same: tuple[Scheme, ...] = ()
    explanations: tuple[str, ...] = ()

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        """All schemes that this stands for, the simplest first."""
        return (self.scheme, *self.same)


@dataclass(frozen=True)
class Matches:
    """``candidates``: exact ones first, then the nearest, the simplest first among equals.

    ``tried``: how many schemes were compared.
    """

    candidates: tuple[Candidate, ...] = ()
    tried: int = 0

    @property
    def exact(self) -> tuple[Candidate, ...]:
        """Those that give every code."""
        return tuple(c for c in self.candidates if not c.differing)


class Progress(NamedTuple):
    """How far a search is, from 0 to 1, what it does, and what it has found so far."""

    fraction: float
    what: str
    matches: Matches
