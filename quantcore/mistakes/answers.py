"""Wrong answers about the numbers of a result, each explained by the mistake that gives it."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import block_bounds
from quantcore.mistakes.catalogue import IN_ANSWERS
from quantcore.mistakes.cell import Cell
from quantcore.mistakes.record import Mistake
from quantcore.quantization import Quantized
from quantcore.tracing import Trace, scale_formula, trace

Place = tuple[int, ...]


class Answer(NamedTuple):
    """A wrong answer: the mistake that gives it, its name, the value, and the sentence that explains it."""

    mistake: Mistake
    kind: str
    value: float
    sentence: str


def answers(result: Quantized, asked: str, place: Place) -> Iterator[Answer]:
    """Yield the wrong answers that one mistake gives; one that gives the right answer anyway is left out.

    Args:
        asked: "codes" for the code of the element at ``place``; "scale" or "zero_point" of the block at
            ``place``, a position in block form.

    >>> from quantcore import Scheme, apply
    >>> result = apply([[0.5, -1.0], [2.0, 0.1]], Scheme.parse("int4"))
    >>> [answer.mistake.name for answer in answers(result, "codes", (0, 1)) if answer.value == -4]
    ['floor']

    Raises:
        QuantError: the codes are not integers, or blocks cross row boundaries.
    """
    if not isinstance(result.scheme.format, IntFormat):
        raise QuantError(f"{result.scheme.format} is not an integer format; choose one, such as int8.")
    yield from wrong(traced(result, asked, place), result, asked)


def wrong(t: Trace, result: Quantized, asked: str) -> Iterator[Answer]:
    """Yield the `answers` for an element that was traced, or for the block of one."""
    cell = Cell(t, result)
    how = f" It is {scale_formula(t)}." if asked == "scale" else ""
    for mistake, given in IN_ANSWERS.items():
        values = {"codes": given.code, "scale": given.scale, "zero_point": given.zero_point}[asked]
        for value, sentence in values(cell):
            if math.isfinite(value) and value != right(t, asked):
                yield Answer(mistake, given.kind, value, sentence + how)


def traced(result: Quantized, asked: str, place: Place) -> Trace:
    """Return the trace of an element, or of the first one of a block if codes are not asked for.

    Raises:
        QuantError: blocks cross row boundaries.
    """
    if asked == "codes":
        return trace(result, place)
    if result.blocked_shape != tuple(result.x.shape):
        raise QuantError("These groups cross row boundaries; choose groups along an axis to predict them.")
    bounds = block_bounds(result.blocked_shape, result.block, place)
    return trace(result, tuple(start for start, _ in bounds))


def right(t: Trace, asked: str) -> float:
    """Return the code, scale or zero point of a trace."""
    return {"codes": t.code, "scale": t.scale, "zero_point": t.zero_point}[asked]
