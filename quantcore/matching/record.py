"""The result of a search."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from quantcore.displayed import Displayed
from quantcore.matching.hypotheses.corruption import NONE, Corruption
from quantcore.matching.inputs import read_original
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
    schemes, as sentences without full stops; ``dtype``: of x as the library is given it; ``converted``: how
    many elements converting x to it changed, None if x has this dtype; ``rule``: the formula of the scale,
    empty where the scheme itself says it or none is known.
    """

    scheme: Scheme
    differing: int
    corruption: Corruption = NONE
    cells: tuple[DifferingCode, ...] = ()
    reasons: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()
    same: tuple[Scheme, ...] = ()
    explanations: tuple[str, ...] = ()
    dtype: torch.dtype = torch.float32
    converted: int | None = None
    rule: str = ""

    def given(self, x: Any) -> Tensor:
        """Return x as the library is given it."""
        return read_original(x).to(self.dtype)

    @property
    def schemes(self) -> tuple[Scheme, ...]:
        """All schemes of this candidate, the simplest first."""
        return (self.scheme, *self.same)


def few(differing: int, elements: int) -> bool:
    """Tell whether so few codes differ that the others are explained: at most 1 in 10.

    A wrong scale, or a mistake that was not made, also gives most codes of narrow formats.
    """
    return 10 * differing <= elements


def precisions(scheme: Scheme, dtype: torch.dtype) -> tuple[str, str]:
    """Return the dtypes in which a scheme's library computes scales and codes of x of a dtype."""
    rules = scheme.in_dtype(dtype).rules
    return rules.scale.scale_precision, rules.coding.coding_dtype


class KnownMistake(NamedTuple):
    """A mistake of `quantcore.mistakes.CASES` that gives the codes: its name there, its title, its scales."""

    name: str
    title: str
    smallest_scale: float
    largest_scale: float


@dataclass(frozen=True, repr=False)
class Matches(Displayed):
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
