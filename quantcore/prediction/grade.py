"""Mark answers to "which code, scale or zero point?", and find the step where a wrong answer went wrong.

A wrong answer is explained by repeating the arithmetic with one step wrong, for each of `quantcore.mistakes.MISTAKES`, until
one gives what was typed.

>>> from quantcore import Scheme, apply
>>> result = apply([[0.5, -1.0], [2.0, 0.1]], Scheme.parse("int4"))
>>> [mark.kind for mark in mark_codes(result, [(0, 0), (0, 1)], ["2", "-4"])]
['right', 'rounding']
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from quantcore.errors import QuantError
from quantcore.mistakes import Answer, first_of, wrong
from quantcore.quantization import Quantized
from quantcore.range_setting import Given
from quantcore.tracing import Trace, number, scale_formula, trace, zero_point_formula

LEAST_DIGITS = 3  # significant digits expected of a scale
Place = tuple[int, ...]


@dataclass(frozen=True)
class Mark:
    """The mark of one answer.

    ``kind``: "right", "blank", "not a number", "too few digits" (of a scale), "not an integer", a likely error, or
    "wrong" where none explains it; ``sentence``: what went wrong, with the numbers, empty if nothing did;
    ``answer``: the right answer.
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

    Where several wrong steps give the same answer, the one that explains the most answers is named.

    Raises:
        QuantError: the format is not an integer format, or the numbers of answers and places differ.
    """
    _check(result, places, typed)
    traces = [trace(result, place) for place in places]
    found = [
        _mark_integer(text, t.code, "a code", wrong(t, result, "codes"), correct_steps(t))
        for t, text in zip(traces, typed, strict=True)
    ]
    return _likeliest(found)


def mark_scales(result: Quantized, blocks: Sequence[Place], typed: Sequence[str]) -> list[Mark]:
    """Mark what was typed as the scales of blocks (positions in block form); 3 significant digits are enough.

    Raises:
        QuantError: as `mark_codes`; or scale and zero point were given, so that there is nothing to predict.
    """
    _check(result, blocks, typed, given=True)
    return _likeliest([_mark_scale(text, result, block) for block, text in zip(blocks, typed, strict=True)])


def mark_zero_points(result: Quantized, blocks: Sequence[Place], typed: Sequence[str]) -> list[Mark]:
    """Mark what was typed as the zero points of blocks (positions in block form).

    Raises:
        QuantError: as `mark_scales`; or the convention's zero points are not integers.
    """
    _check(result, blocks, typed, given=True)
    if result.scheme.convention.zero_point.zero_point_form != "integer":
        library = result.scheme.convention.library
        raise QuantError(f"Zero points in {library} are not integers; choose the textbook library.")
    found = []
    for block, text in zip(blocks, typed, strict=True):
        t = trace(result, first_of(result, block))
        how = f"It is {zero_point_formula(t)} = {number(t.zero_point)}."
        found.append(_mark_integer(text, int(t.zero_point), "a zero point", wrong(t, result, "zero_point"), how))
    return _likeliest(found)


def usual_answers(result: Quantized, step: str, place: Place, most: int = 5) -> list[str]:
    """Return the answers that people usually give: the right one and those of likely errors, in order of their size.

    Args:
        step: what is asked for: "codes" (``place`` is an element), or "scale" or "zero_point" (it is a block).
        most: how many answers at most.

    Raises:
        QuantError: blocks cross row boundaries.
    """
    t = trace(result, place if step == "codes" else first_of(result, place))
    right = {"codes": float(t.code), "scale": t.scale, "zero_point": float(t.zero_point)}[step]
    values = dict.fromkeys([number(right)])
    for error in wrong(t, result, step):
        if len(values) == most:
            break
        values.setdefault(number(error.value + 0.0))  # no -0
    return sorted(values, key=float)


def _likeliest(found: list[list[Mark]]) -> list[Mark]:
    """Return, for each answer, the kind that explains the most answers; ties go to the first."""
    often = Counter(kind for marks in found for kind in {mark.kind for mark in marks})
    return [max(marks, key=lambda mark: often[mark.kind]) for marks in found]


def _check(result: Quantized, places: Sequence[Place], typed: Sequence[str], given: bool = False) -> None:
    if not result.scheme.format.has_zero_point:
        raise QuantError(f"{result.scheme.format} is not an integer format; choose one, such as int8.")
    if given and isinstance(result.scheme.range_setting, Given):
        raise QuantError(
            "Scale and zero point are given, not computed; choose a range setting to predict them from."
        )
    if len(places) != len(typed):
        raise QuantError(
            f"There are {len(typed)} answers to {len(places)} questions; give one answer to each."
        )


def correct_steps(t: Trace) -> str:
    """Say the correct steps to a code, in one sentence."""
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


def _not_a_number(text: str, what: str, answer: str) -> list[Mark]:
    if not text.strip():
        return [Mark(text, "blank", "", answer)]
    return [Mark(text, "not a number", f"{text.strip()[:20]!r} is not a number, but {what} is.", answer)]


def _mark_integer(text: str, right: int, what: str, errors: Iterable[Answer], how: str) -> list[Mark]:
    """Return every mark that an answer can get, the likeliest first."""
    value, answer = _read(text), str(right)
    if value is None:
        return _not_a_number(text, what, answer)
    if value == right:
        return [Mark(text, "right", "", answer)]
    if value != value.to_integral_value():
        return [Mark(text, "not an integer", f"{what.capitalize()} is an integer: round it. {how}", answer)]
    marks = [Mark(text, e.mistake.kind, e.sentence, answer) for e in errors if value == Decimal(e.value)]
    off = "high" if value > right else "low"
    last = ("off by one", f"Too {off} by one. {how}") if abs(value - right) == 1 else ("wrong", how)
    return marks or [Mark(text, *last, answer)]


def _mark_scale(text: str, result: Quantized, block: Place) -> list[Mark]:
    t, right = trace(result, first_of(result, block)), float(result.scale[block])
    value, answer = _read(text), number(right)
    if value is None:
        return _not_a_number(text, "a scale", answer)
    if _agrees(value, right):
        return [Mark(text, "right", "", answer)]
    if len(value.as_tuple().digits) < LEAST_DIGITS and _within_last_digit(value, right):
        more = f"Correct as far as it goes; give {LEAST_DIGITS} significant digits."
        return [Mark(text, "too few digits", more, answer)]
    errors = wrong(t, result, "scale")
    marks = [Mark(text, e.mistake.kind, e.sentence, answer) for e in errors if _agrees(value, e.value)]
    return marks or [Mark(text, "wrong", f"It is {scale_formula(t)} = {answer}.", answer)]


def _agrees(value: Decimal, right: float) -> bool:
    """Tell whether it is the number rounded to the digits typed; 4 or more may also be truncated."""
    if float(value) == right or Decimal(number(right)) == value:
        return True
    digits = len(value.as_tuple().digits)
    return digits >= LEAST_DIGITS and _within_last_digit(value, right, 0.5 if digits == LEAST_DIGITS else 1)


def _within_last_digit(value: Decimal, right: float, units: float = 0.5) -> bool:
    exponent = int(value.as_tuple().exponent)
    return abs(value - Decimal(right)) <= Decimal(units).scaleb(exponent)
