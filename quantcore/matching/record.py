"""The result of a search."""

from dataclasses import dataclass
from typing import NamedTuple

from quantcore.matching.hypotheses.corruption import NONE, Corruption
from quantcore.scheme import Scheme


@dataclass(frozen=True)
class DifferingCode:
    """A code that differs: ``expected`` from the scheme, ``got`` as given, and why.

    ``index``: in the original.
    """

    index: tuple[int, ...]
    expected: int
    got: int
    reason: str


@dataclass(frozen=True)
class Candidate:
    """Schemes that give the codes, or most of them.

    ``scheme``: the simplest of them; ``same``: the others, with the same integers, scales and zero points;
    ``corruption``: what went wrong (falsy if nothing did); ``differing``: how many codes differ; ``cells``:
    the first of them; ``reasons``: how many per kind of reason; ``notes``: how a given scale and zero_point
    differ from the scheme's; ``explanations``: what the mistakes did to these values, and other possible
    schemes, as sentences without full stops.
    """

    scheme: Scheme
    differing: int
    corruption: Corruption = NONE
    cells: tuple[DifferingCode, ...] = ()
    reasons: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()
    same: tuple[Scheme, ...] = ()
    explanations: tuple[str, ...] = ()

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        """All schemes of this candidate, the simplest first."""
        return (self.scheme, *self.same)


class KnownMistake(NamedTuple):
    """A mistake of `quantcore.mistakes.CASES` that gives the codes: its name there, its title, its scales."""

    name: str
    title: str
    smallest_scale: float
    largest_scale: float


@dataclass(frozen=True)
class Matches:
    """``candidates``: the exact ones, or else the nearest; ties go to the simplest.

    ``tried``: how many schemes were compared; ``mistakes``: the known mistakes that give exactly these codes,
    empty until the search is over; a candidate may give the same codes without any mistake.
    """

    candidates: tuple[Candidate, ...] = ()
    tried: int = 0
    mistakes: tuple[KnownMistake, ...] = ()

    @property
    def exact(self) -> tuple[Candidate, ...]:
        """The candidates that give every code."""
        return tuple(c for c in self.candidates if not c.differing)


class Progress(NamedTuple):
    """The progress of a search: from 0 to 1, what it is doing, and what it has found so far."""

    fraction: float
    what: str
    matches: Matches
