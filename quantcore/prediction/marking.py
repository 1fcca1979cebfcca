"""The answer keys of a result's numbers, and the marks of what was typed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import permutations

from quantcore.errors import QuantError
from quantcore.mistakes import right, traced, wrong
from quantcore.numerics import decimal
from quantcore.prediction.exact import SHOWN, exact_numbers, shown, without_tails
from quantcore.prediction.key import KnownWrong, Mark, NumberKey, as_typed, unit
from quantcore.quantization import Quantized
from quantcore.scheme import storage
from quantcore.tracing import Trace, number, scale_formula, zero_point_formula

# what can be asked for: its name, and the significant digits that are enough; 0: an integer
ASKED = {
    "codes": "code",
    "scale": "scale",
    "zero_point": "zero point",
    "dequantized": "dequantized value",
    "error": "error",
    "bits": "bits per element",
}
DIGITS = {"codes": 0, "zero_point": 0, "scale": 3, "dequantized": 3, "error": 3, "bits": 3}
USUAL = 5  # answers of `usual_answers`, at most
Place = tuple[int, ...]


def mark(result: Quantized, asked: str, places: Sequence[Place], typed: Sequence[str]) -> list[Mark]:
    """Mark what was typed as numbers of elements, or as scales or zero points of blocks.

    Where several wrong steps give the same answer, the one that explains the most answers is named. Answers
    that stand in each other's place are called swapped, if no one mistake explains both.

    Args:
        asked: a key of `ASKED`: "codes", "dequantized", "error" (``places`` are elements), "scale",
            "zero_point" (they are blocks, positions in block form), or "bits".

    Raises:
        QuantError: as for `check`, or the numbers of answers and places differ.
    """
    check(result, asked)
    if len(places) != len(typed):
        raise QuantError(
            f"There are {len(typed)} answers to {len(places)} questions; give one answer to each."
        )
    keys = [number_key(result, asked, place) for place in places]
    found = [key.marks(text) for key, text in zip(keys, typed, strict=True)]
    # of the kinds that an answer may have, the one that explains the most answers; ties go to the first
    often = Counter(kind for marks in found for kind in {mark.kind for mark in marks})
    return swapped([max(marks, key=lambda mark: often[mark.kind]) for marks in found])


def swapped(marks: Sequence[Mark]) -> list[Mark]:
    """Return the marks, in which two wrong answers that are each other's right ones are called swapped."""
    found = list(marks)
    for (i, first), (j, other) in permutations(enumerate(marks), 2):
        is_one_habit = first.mistake != "" and first.kind == other.kind  # both signs wrong, for example
        given = first.typed.strip(), other.typed.strip()
        if not is_one_habit and first.answer != other.answer and given == (other.answer, first.answer):
            sentence = f"Answers {min(i, j) + 1} and {max(i, j) + 1} stand in each other's place."
            found[i] = Mark(first.typed, "swapped", sentence, first.answer)
    return found


def usual_answers(result: Quantized, asked: str, place: Place) -> list[str]:
    """Return the usual answers: the right one and those of likely errors, in order of their size.

    Args:
        asked: as for `mark`; ``place`` is an element or a block.

    Raises:
        QuantError: blocks cross row boundaries.
    """
    key = number_key(result, asked, place)
    values = dict.fromkeys([key.right, *(number(float(known.value)) for known in key.wrong)])
    return sorted(list(values)[:USUAL], key=float)


def check(result: Quantized, asked: str) -> None:
    """Check that numbers of a result can be asked for.

    Raises:
        QuantError: the format is not an integer format; scale and zero point were given, so that there is
            nothing to predict; or the convention's zero points are not integers.
    """
    scheme = result.scheme
    if not scheme.format.has_zero_point:
        raise QuantError(f"{scheme.format} is not an integer format; choose one, such as int8.")
    if asked in ("scale", "zero_point") and scheme.range_setting.gives_parameters:
        raise QuantError(
            "Scale and zero point are given, not computed; choose a range setting to predict them from."
        )
    if asked != "scale" and asked != "codes" and scheme.convention.zero_point.zero_point_form != "integer":
        library = scheme.convention.library
        raise QuantError(f"Zero points in {library} are not integers; choose the textbook library.")


def number_key(result: Quantized, asked: str, place: Place, for_class: bool = False) -> NumberKey:
    """Return the answer key of a number: what counts as right, and what known mistakes give.

    Args:
        asked: as for `mark`; ``place`` is an element or a block.
        for_class: whether numbers are written as a class is shown them, see `shown`.

    Raises:
        QuantError: blocks cross row boundaries.
    """
    t = traced(result, asked, place)
    correct, digits, write = right(t, result, asked) + 0.0, DIGITS[asked], without_tails if for_class else str
    exact = exact_numbers(result, asked, t, shown if for_class else decimal)
    key = NumberKey(
        _short(correct, digits, exact) if for_class else number(correct),
        digits,
        (*([repr(correct)] if for_class and digits else []), *map(str, exact)),
        how=write(correct_steps(t, result, asked)),
    )
    known = dict[tuple[str, str], KnownWrong]()
    again = f" It is {scale_formula(t)}." if for_class else ""  # which ``how`` says once
    for error in wrong(t, result, asked):
        value = error.value + 0.0  # no -0
        if (digits or value == round(value)) and not key.accepts(Decimal(value)):
            text = repr(value) if digits else f"{value:.0f}"
            sentence = write(error.sentence.removesuffix(again))
            known.setdefault((text, sentence), KnownWrong(text, error.mistake.name, sentence))
    return replace(key, wrong=tuple(known.values()))


def _short(correct: float, digits: int, exact: Sequence[Fraction]) -> str:
    """Write the right number with the digits asked for; with more if it is halfway between two such."""
    text = as_typed(correct, digits)
    if digits and any(abs(Fraction(text) - value) * 2 == unit(value, digits) for value in exact):
        return as_typed(correct, SHOWN)
    return text


def correct_steps(t: Trace, result: Quantized, asked: str) -> str:
    """Say the correct steps to a number, in one sentence."""
    if asked in ("scale", "zero_point"):
        formula = {"scale": scale_formula, "zero_point": zero_point_formula}[asked]
        return f"It is {formula(t)} = {number(right(t, result, asked))}."
    if asked == "bits":
        return _storage_steps(result)
    steps = _code_steps(t)
    if asked != "codes":
        steps += [f"x̂ = (q - z) · s = ({t.code} - {number(t.zero_point)}) · {number(t.scale)} = "
                  f"{number(t.dequantized)}"]  # fmt: skip
    if asked == "error":
        steps += [f"x - x̂ = {number(t.error)}"]
    return f"{', '.join(steps)}."


def _code_steps(t: Trace) -> list[str]:
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
    return steps


def _storage_steps(result: Quantized) -> str:
    found = storage(result.scheme, tuple(result.x.shape))
    parts = [f"codes {found.codes:,}", f"scales {found.scales:,}"]
    parts += [f"zero points {found.zero_points:,}"] if found.zero_points else []
    total = number(found.bits_per_element)
    return f"In bits: {', '.join(parts)}; divided by {found.elements:,} elements, that is {total}."
