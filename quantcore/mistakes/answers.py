"""Wrong answers about the numbers of a result, each explained by the mistake that gives it."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import block_bounds
from quantcore.mistakes.catalogue import IN_ANSWERS
from quantcore.mistakes.cell import Cell
from quantcore.mistakes.record import InAnswers, Mistake
from quantcore.quantization import Quantized
from quantcore.scheme import bits_per_element
from quantcore.tracing import Trace, number, scale_formula, trace

Place = tuple[int, ...]
OF_BLOCKS = ("scale", "zero_point")  # what is asked of blocks


class Answer(NamedTuple):
    """A wrong answer: the mistake that gives it, its name, the value, and the sentence that explains it."""

    mistake: Mistake
    kind: str
    value: float
    sentence: str


def answers(result: Quantized, asked: str, place: Place) -> Iterator[Answer]:
    """Yield the wrong answers that one mistake gives; one that gives the right answer anyway is left out.

    Args:
        asked: "codes", "dequantized" or "error" of the element at ``place``; "scale" or "zero_point" of the
            block at ``place``, a position in block form; or "bits" per element, wherever.

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
    correct = right(t, result, asked)
    for mistake, given in IN_ANSWERS.items():
        for value, sentence in _values(given, cell, asked):
            if math.isfinite(value) and value != correct:
                yield Answer(mistake, given.kind, value, sentence + how)


def _values(given: InAnswers, cell: Cell, asked: str) -> Iterator[tuple[float, str]]:
    """Yield what a mistake gives; one in the code gives a wrong value, and that a wrong error."""
    if asked == "dequantized":
        yield from given.value(cell)
        for code, sentence in given.code(cell):
            yield (code - cell.t.zero_point) * cell.t.scale, sentence
    elif asked == "error":
        yield from given.error(cell)
        for value, sentence in _values(given, cell, "dequantized"):
            yield cell.t.x - value, f"x̂ was taken as {number(value)}. {sentence}"
    else:
        each = {"codes": given.code, "scale": given.scale, "zero_point": given.zero_point, "bits": given.bits}
        yield from each[asked](cell)


def traced(result: Quantized, asked: str, place: Place) -> Trace:
    """Return the trace of an element, or of the first one of a block if its scale or zero point is asked for.

    Raises:
        QuantError: blocks cross row boundaries.
    """
    if asked not in OF_BLOCKS:
        return trace(result, place)
    if result.blocked_shape != tuple(result.x.shape):
        raise QuantError("These groups cross row boundaries; choose groups along an axis to predict them.")
    bounds = block_bounds(result.blocked_shape, result.block, place)
    return trace(result, tuple(start for start, _ in bounds))


def right(t: Trace, result: Quantized, asked: str) -> float:
    """Return the number asked for, of an element that was traced, or of the block of one."""
    if asked == "bits":
        return bits_per_element(result.scheme, tuple(result.x.shape))
    return float(getattr(t, "code" if asked == "codes" else asked))
