"""Questions about a scheme's arithmetic: marks for answers, and tensors to practice on.

A wrong answer to "which code, scale or zero point?" is explained by repeating the arithmetic with one step
wrong, for each of `quantcore.mistakes.MISTAKES`, until one gives what was typed.

>>> from quantcore import INT4, Fixed, Scheme, apply
>>> result = apply([[0.5, -1.0], [2.0, 0.1]], Scheme.parse("int4"))
>>> [answer.kind for answer in mark(result, "codes", [(0, 0), (0, 1)], ["2", "-4"])]
['right', 'rounding']

The tensors have few digits and a scale that divides easily, yet ties, clipping and negative values:

>>> found = practice(INT4, symmetric=True, seed=0)
>>> result = apply(found.x, Scheme(INT4, range_setting=Fixed(found.low, found.high)))
>>> float(result.scale) == found.scale
True
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt

from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.mistakes import Answer, right, traced, wrong
from quantcore.quantization import Quantized
from quantcore.tracing import Trace, number, scale_formula, zero_point_formula

SCALES = tuple(map(Decimal, ("0.25", "0.5", "1", "2", "4", "5", "10")))
DIGITS = 3  # significant digits of every value
ROWS, COLUMNS = 4, 6
NEAR = 40  # steps from 0: larger quotients are too hard for mental arithmetic
FAR = 300  # steps from 0: beyond that, values just outside the range have too many digits
_INSIDE = tuple(map(Decimal, ("0", "0.1", "0.2", "0.25", "0.3", "0.4", "0.6", "0.7", "0.75", "0.8", "0.9")))
_TIE = (Decimal("0.5"),)
LEAST_DIGITS = 3  # significant digits expected of a scale
USUAL = 5  # answers of `usual_answers`, at most
_NAMES = {"codes": "a code", "scale": "a scale", "zero_point": "a zero point"}
Place = tuple[int, ...]


@dataclass(frozen=True)
class Mark:
    """The mark of one answer.

    ``kind``: "right", "blank", "not a number", "too few digits" (of a scale), "not an integer", a likely
    error, or "wrong" where none explains it; ``sentence``: what went wrong, with the numbers, empty if
    nothing did; ``answer``: the right answer.
    """

    typed: str
    kind: str
    sentence: str
    answer: str

    @property
    def right(self) -> bool:
        """Whether the answer is right."""
        return self.kind == "right"


def mark(result: Quantized, asked: str, places: Sequence[Place], typed: Sequence[str]) -> list[Mark]:
    """Mark what was typed as codes of elements, or as scales or zero points of blocks.

    Where several wrong steps give the same answer, the one that explains the most answers is named. Of a
    scale, 3 significant digits are enough.

    Args:
        asked: "codes" (``places`` are elements), "scale" or "zero_point" (they are blocks, positions in block
            form).

    Raises:
        QuantError: the format is not an integer format; scale and zero point were given, so that there is
            nothing to predict; the convention's zero points are not integers; blocks cross row boundaries; or
            the numbers of answers and places differ.
    """
    _check(result, asked, places, typed)
    found = []
    for place, text in zip(places, typed, strict=True):
        t = traced(result, asked, place)
        marks = _mark_scale if asked == "scale" else _mark_integer
        found.append(marks(text, t, asked, wrong(t, result, asked)))
    # of the kinds that an answer may have, the one that explains the most answers; ties go to the first
    often = Counter(kind for marks in found for kind in {mark.kind for mark in marks})
    return [max(marks, key=lambda mark: often[mark.kind]) for marks in found]


def usual_answers(result: Quantized, asked: str, place: Place) -> list[str]:
    """Return the usual answers: the right one and those of likely errors, in order of their size.

    Args:
        asked: "codes" (``place`` is an element), or "scale" or "zero_point" (it is a block).

    Raises:
        QuantError: blocks cross row boundaries.
    """
    t = traced(result, asked, place)
    values = dict.fromkeys([number(right(t, asked))])
    for error in wrong(t, result, asked):
        if len(values) == USUAL:
            break
        values.setdefault(number(error.value + 0.0))  # no -0
    return sorted(values, key=float)


def _check(result: Quantized, asked: str, places: Sequence[Place], typed: Sequence[str]) -> None:
    scheme = result.scheme
    if not scheme.format.has_zero_point:
        raise QuantError(f"{scheme.format} is not an integer format; choose one, such as int8.")
    if asked != "codes" and scheme.range_setting.gives_parameters:
        raise QuantError(
            "Scale and zero point are given, not computed; choose a range setting to predict them from."
        )
    if asked == "zero_point" and scheme.convention.zero_point.zero_point_form != "integer":
        library = scheme.convention.library
        raise QuantError(f"Zero points in {library} are not integers; choose the textbook library.")
    if len(places) != len(typed):
        raise QuantError(
            f"There are {len(typed)} answers to {len(places)} questions; give one answer to each."
        )


def correct_steps(t: Trace, asked: str) -> str:
    """Say the correct steps to a code, scale or zero point, in one sentence."""
    if asked != "codes":
        formula = {"scale": scale_formula, "zero_point": zero_point_formula}[asked]
        return f"It is {formula(t)} = {number(right(t, asked))}."
    steps, rounded = [f"x / s = {number(t.quotient)}"], f"rounded to {number(t.rounded + 0.0)}"  # 0 for -0
    if t.summed is None:
        steps.append(rounded)
    if t.zero_point:
        total = t.shifted if t.summed is None else t.summed
        steps.append(f"plus the zero point {number(t.zero_point)} is {number(total)}")
    if t.summed is not None:
        steps.append(rounded)
    if t.overflow:
        steps.append(f"{'wrapped' if t.overflow == 'wrap' else 'clamped'} to {t.code}")
    return f"{', '.join(steps)}."


def _read(text: str) -> Decimal | None:
    """Read the number that was typed, with either minus sign, and a decimal point or comma."""
    plain = text.strip().replace("−", "-").replace(",", ".")
    try:
        value = Decimal(plain)
    except InvalidOperation:
        return None
    # float32 goes from 1e-45 to 3e38; far beyond that, Decimal's own arithmetic fails
    return value if value.is_finite() and abs(value.adjusted()) < 60 else None


def _not_a_number(text: str, asked: str, answer: str) -> list[Mark]:
    if not text.strip():
        return [Mark(text, "blank", "", answer)]
    sentence = f"{text.strip()[:20]!r} is not a number, but {_NAMES[asked]} is."
    return [Mark(text, "not a number", sentence, answer)]


def _mark_integer(text: str, t: Trace, asked: str, errors: Iterable[Answer]) -> list[Mark]:
    """Return every mark that an answer can get, the likeliest first."""
    value, correct, how = _read(text), int(right(t, asked)), correct_steps(t, asked)
    answer = str(correct)
    if value is None:
        return _not_a_number(text, asked, answer)
    if value == correct:
        return [Mark(text, "right", "", answer)]
    if value != value.to_integral_value():
        sentence = f"{_NAMES[asked].capitalize()} is an integer: round it. {how}"
        return [Mark(text, "not an integer", sentence, answer)]
    marks = [Mark(text, e.kind, e.sentence, answer) for e in errors if value == Decimal(e.value)]
    off = "high" if value > correct else "low"
    last = ("off by one", f"Too {off} by one. {how}") if abs(value - correct) == 1 else ("wrong", how)
    return marks or [Mark(text, *last, answer)]


def _mark_scale(text: str, t: Trace, asked: str, errors: Iterable[Answer]) -> list[Mark]:
    value, answer = _read(text), number(t.scale)
    if value is None:
        return _not_a_number(text, asked, answer)
    if _agrees(value, t.scale):
        return [Mark(text, "right", "", answer)]
    if len(value.as_tuple().digits) < LEAST_DIGITS and _within_last_digit(value, t.scale):
        more = f"Correct as far as it goes; give {LEAST_DIGITS} significant digits."
        return [Mark(text, "too few digits", more, answer)]
    marks = [Mark(text, e.kind, e.sentence, answer) for e in errors if _agrees(value, e.value)]
    return marks or [Mark(text, "wrong", correct_steps(t, asked), answer)]


def _agrees(value: Decimal, right: float) -> bool:
    """Tell whether it is the number rounded to the digits typed; 4 or more may also be truncated."""
    if float(value) == right or Decimal(number(right)) == value:
        return True
    digits = len(value.as_tuple().digits)
    return digits >= LEAST_DIGITS and _within_last_digit(value, right, 0.5 if digits == LEAST_DIGITS else 1)


def _within_last_digit(value: Decimal, right: float, units: float = 0.5) -> bool:
    exponent = int(value.as_tuple().exponent)
    return abs(value - Decimal(right)) <= Decimal(units).scaleb(exponent)


@dataclass(frozen=True)
class Practice:
    """``x``: float32, (4, 6); ``low``, ``high``: the range that gives exactly scale and zero point."""

    x: npt.NDArray[np.float32]
    low: float
    high: float
    scale: float
    zero_point: int


def practice(fmt: IntFormat, symmetric: bool, seed: int, clipping: bool = False) -> Practice:
    """Return the practice tensor of a seed for a format.

    Every row has a tie (x / s ends in .5) and, if the range includes any, a negative value. x / s has at most
    2 decimals, x at most 3 significant digits.

    Args:
        clipping: one value per row lies outside the range (up to 8 bits); otherwise the range is the tensor's
            min to max.
    """
    random = np.random.default_rng(seed)
    scale, zero_point, bounds = _grid(fmt, symmetric, random)
    code_range = (
        fmt.qmin - zero_point,
        fmt.qmax - zero_point,
    )  # symmetric codes reach one step further below 0
    rows = [_row(bounds, code_range if clipping else None, scale, random) for _ in range(ROWS)]
    low, high = (bound * scale for bound in bounds)
    if not clipping:  # the tie and the negative value come first and must stay
        places = random.permutation(ROWS)
        rows[places[0]][-1], rows[places[1]][-1] = low, high
    x = np.array([[row[i] for i in random.permutation(COLUMNS)] for row in rows], np.float32)
    return Practice(x, float(low), float(high), float(scale), zero_point)


def _grid(fmt: IntFormat, symmetric: bool, random: Any) -> tuple[Decimal, int, tuple[int, int]]:
    """Draw an easy scale, a zero point, and bounds of the range in steps that have few digits too."""
    scales = [SCALES[i] for i in random.permutation(len(SCALES))]
    if symmetric:
        highest = fmt.qmax - fmt.middle
        tries = [(fmt.middle, (-highest, highest))]
    else:
        zeros = random.permutation(np.arange(fmt.qmin + 1, fmt.qmax))[:64]
        tries = [(int(z), (fmt.qmin - int(z), fmt.qmax - int(z))) for z in zeros]
    every = [(scale, zero, bounds) for zero, bounds in tries for scale in scales]
    few = (found for found in every if all(_short(bound * found[0]) for bound in found[2]))
    return next(few, every[0])  # no scale gives the bounds of a wide format few digits


def _row(
    bounds: tuple[int, int], code_range: tuple[int, int] | None, scale: Decimal, random: Any
) -> list[Decimal]:
    """Draw one row: a tie, a negative value, one outside ``code_range``, then any others."""
    low, high = max(bounds[0], -NEAR), min(bounds[1], NEAR)
    row = [_value(low, high, _TIE, scale, random), _value(low, 0, _INSIDE, scale, random)]
    if code_range and max(map(abs, code_range)) < FAR:
        # at least a full step: a value less than half a step outside still gets its nearest code
        lowest, highest = code_range
        above = random.random() < 0.5
        beyond = (highest + 1, highest + 5) if above else (lowest - 5, lowest - 1)
        row.append(_value(*beyond, (*_INSIDE, *_TIE), scale, random))
    return row + [_value(low, high, _INSIDE, scale, random) for _ in range(COLUMNS - len(row))]


def _value(low: int, high: int, fractions: tuple[Decimal, ...], scale: Decimal, random: Any) -> Decimal:
    """Draw a value of few digits whose x / s lies between two integers."""
    while True:
        value: Decimal = (
            int(random.integers(low, high)) + fractions[random.integers(len(fractions))]
        ) * scale
        if _short(value):
            return value


def _short(value: Decimal) -> bool:
    return len(value.normalize().as_tuple().digits) <= DIGITS
