"""How an element becomes a code where mistakes are made: its program, with choices or lines changed."""

import dataclasses
from functools import lru_cache

from torch import Tensor

from quantcore.conventions import TEXTBOOK, CodingStage
from quantcore.formats import INT8, IntFormat
from quantcore.mistakes.catalogue import IN_CODES
from quantcore.numerics import rounding
from quantcore.programs import Program, code_program

Kinds = tuple[str, ...]  # keys of `IN_CODES`


@lru_cache(maxsize=1024)
def program_of(coding: CodingStage, kinds: Kinds = (), fmt: IntFormat = INT8) -> Program:
    """Return how an element becomes a code where these mistakes are made; ``fmt``: for what follows v alone.

    It starts from x, s and z; from 1/s too, where the library stores it; and from s8, the scale of x in int8,
    if x is quantized twice.
    """
    mistakes = [IN_CODES[kind] for kind in kinds]
    for mistake in mistakes:
        coding = dataclasses.replace(coding, **mistake.choices)
    convention = dataclasses.replace(TEXTBOOK, coding=coding)
    found = code_program(fmt, convention, round_=rounding(coding.rounding))
    for mistake in mistakes:
        if mistake.step is not None:
            name, of = mistake.step
            found = found.changed(name, of(fmt), mistake.title)
    return found


def codes_of_values(values: Tensor, coding: CodingStage, kinds: Kinds, fmt: IntFormat) -> Tensor:
    """Return the codes for the values before the clamp; the mistakes made before it change nothing."""
    found: Tensor = program_of(coding, kinds, fmt).run(("q",), {"v": values})[0]
    return found
