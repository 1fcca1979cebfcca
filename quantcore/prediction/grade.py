"""Mark answers to "which code, scale or zero_point?", and find the step at which a wrong one went astray.

A wrong answer is not only compared with the right one: the arithmetic is done again with one step wrong, for
each step of `predict_steps`, until one gives what was typed.

>>> from quantcore import Scheme, apply
>>> result = apply([[0.5, -1.0], [2.0, 0.1]], Scheme.parse("int4"))
>>> [mark.kind for mark in mark_codes(result, [(0, 0), (0, 1)], ["2", "-4"])]
['right', 'rounding']
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import block_bounds
from quantcore.prediction.likely_errors import LikelyErrors, wrong_codes, wrong_scales, wrong_zero_points
from quantcore.quantization import Quantized
from quantcore.range_setting import Given
from quantcore.tracing import Trace, number, scale_formula, trace, zero_point_formula

LEAST_DIGITS = 3  # of a scale, significant ones
Place = tuple[int, ...]


@dataclass(frozen=True)
class Mark:
    """What is to be said of one answer.

    ``kind``: "right", "blank", "words", "digits" (too few of a scale to tell), "fraction" (of what is whole), a
    wrong step, or "unknown"; ``sentence``: where it went astray, with the numbers, empty if it did not;
    ``answer``: the right one.
    """

    typed: str
    kind: str
    sentence: str
    answer: str

    @property
    def right(self) -> bool:
        """Whether the answer is right."""
        return self.kind == "right"


def mark_codes(result: Quantized, places: Sequence[Place], typed: Sequence[str]) -> list[Mark]:
    """Mark what was typed as the codes of the elements at ``places``.

    Where several wrong steps give the same answer, the one that explains most of the answers is named.

    Raises:
        QuantError: the codes stand for no integers, or there are not as many answers as places.
    """
    _check(result, places, typed)
    traces = [trace(result, place) for place in places]
    found = [
        _mark_integer(text, t.code, "a code", wrong_codes(t, result), _correct_steps(t))
        for t, text in zip(traces, typed, strict=True)
    ]
    return _likeliest(found)


def mark_scales(result: Quantized, blocks: Sequence[Place], typed: Sequence[str]) -> list[Mark]:
    """Mark what was typed as the scales of blocks (positions in block form); 3 significant digits suffice.

    Raises:
        QuantError: as `mark_codes`; or the parameters were given by hand: there is nothing to predict.
    """
    _check(result, blocks, typed, given=True)
    return _likeliest([_mark_scale(text, result, block) for block, text in zip(blocks, typed, strict=True)])


def mark_zero_points(result: Quantized, blocks: Sequence[Place], typed: Sequence[str]) -> list[Mark]:
    """Mark what was typed as the zero points of blocks (positions in block form).

    Raises:
        QuantError: as `mark_scales`; or the convention's zero points are no integers.
    """
    _check(result, blocks, typed, given=True)
    if result.scheme.convention.zero_point != "integer":
        library = result.scheme.convention.library
        raise QuantError(f"{library} keeps no whole number as zero_point; choose the textbook.")
    found = []
    for block, text in zip(blocks, typed, strict=True):
        t = trace(result, first_of(result, block))
        how = f"It is {zero_point_formula(t)} = {number(t.zero_point)}."
        found.append(_mark_integer(text, int(t.zero_point), "a zero_point", wrong_zero_points(t), how))
    return _likeliest(found)


def _likeliest(found: list[list[Mark]]) -> list[Mark]:
    """Of all that each answer can be, the kind that explains the most answers; the first among equals."""
    often = Counter(kind for marks in found for kind in {mark.kind for mark in marks})
    return [max(marks, key=lambda mark: often[mark.kind]) for marks in found]


def first_of(result: Quantized, block: Place) -> Place:
    """Return the first element of a block of boxes.

    Raises:
        QuantError: the blocks run over the ends of rows.
    """
    if result.laid_shape != tuple(result.x.shape):
        raise QuantError("These groups run over the ends of rows; choose groups along an axis to predict.")
    return tuple(start for start, _ in block_bounds(result.laid_shape, result.block, block))


def _check(result: Quantized, places: Sequence[Place], typed: Sequence[str], given: bool = False) -> None:
    if not isinstance(result.scheme.format, IntFormat):
        raise QuantError(f"The codes of {result.scheme.format} are bit patterns; choose an integer format.")
    if given and isinstance(result.scheme.range_setting, Given):
        raise QuantError("Scale and zero_point were given by hand; choose a range to predict them from.")
    if len(places) != len(typed):
        raise QuantError(f"There are {len(typed)} answers to {len(places)} questions; give one each.")


def _correct_steps(t: Trace) -> str:
    """The right way to a code in one sentence."""
    steps = [f"x / s = {number(t.quotient)}"]
    if t.summed is None:
        steps.append(f"rounded {number(t.rounded)}")
    if t.zero_point:
        steps.append(f"with the zero_point added {number(t.shifted if t.summed is None else t.summed)}")
    if t.summed is not None:
        steps.append(f"rounded {number(t.rounded)}")
    if t.overflow:
        steps.append(f"{'wrapped' if t.overflow == 'wrap' else 'clamped'} to {t.code}")
    return f"{', '.join(steps)}."


def _read(text: str) -> Decimal | None:
    """The number that was typed, with any minus sign, and a point or a comma."""
    plain = text.strip().replace("−", "-").replace(",", ".")
    try:
        value = Decimal(plain)
    except InvalidOperation:
        return None
    # float32 ends at 3e38 and 1e-45; of more, Decimal's own arithmetic would give up
    return value if value.is_finite() and abs(value.adjusted()) < 60 else None


def _not_a_number(text: str, what: str, answer: str) -> list[Mark]:
    if not text.strip():
        return [Mark(text, "blank", "", answer)]
    return [Mark(text, "words", f"{text.strip()[:20]!r} is no number; {what} is one.", answer)]


def _mark_integer(text: str, right: int, what: str, errors: LikelyErrors, how: str) -> list[Mark]:
    """All that an answer can be, the likeliest first."""
    value, answer = _read(text), str(right)
    if value is None:
        return _not_a_number(text, what, answer)
    if value == right:
        return [Mark(text, "right", "", answer)]
    if value != value.to_integral_value():
        return [Mark(text, "fraction", f"{what.capitalize()} is a whole number: round it. {how}", answer)]
    marks = [Mark(text, e.kind, e.sentence, answer) for e in errors if value == Decimal(e.value)]
    off = "high" if value > right else "low"
    last = ("off by one", f"One too {off}. {how}") if abs(value - right) == 1 else ("unknown", how)
    return marks or [Mark(text, *last, answer)]


def _mark_scale(text: str, result: Quantized, block: Place) -> list[Mark]:
    right = float(result.scale[block])
    value, answer = _read(text), number(right)
    if value is None:
        return _not_a_number(text, "a scale", answer)
    if _agrees(value, right):
        return [Mark(text, "right", "", answer)]
    if len(value.as_tuple().digits) < LEAST_DIGITS and _within_last_digit(value, right):
        more = f"As far as it goes; give {LEAST_DIGITS} significant digits."
        return [Mark(text, "digits", more, answer)]
    t = trace(result, first_of(result, block))
    errors = wrong_scales(t, result, block)
    marks = [Mark(text, e.kind, e.sentence, answer) for e in errors if _agrees(value, e.value)]
    return marks or [Mark(text, "unknown", f"It is {scale_formula(t)} = {answer}.", answer)]


def _agrees(value: Decimal, right: float) -> bool:
    """Whether it is the number, or the number rounded to the digits that were typed; with 4 or more of them,
    cut off will do.
    """
    if float(value) == right or Decimal(number(right)) == value:
        return True
    digits = len(value.as_tuple().digits)
    return digits >= LEAST_DIGITS and _within_last_digit(value, right, 0.5 if digits == LEAST_DIGITS else 1)


def _within_last_digit(value: Decimal, right: float, units: float = 0.5) -> bool:
    exponent = int(value.as_tuple().exponent)
    return abs(value - Decimal(right)) <= Decimal(units).scaleb(exponent)
