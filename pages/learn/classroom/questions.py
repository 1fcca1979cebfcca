"""Questions to a class about a quantized tensor, whose usual mistakes give different answers.

What each known mistake gives is evaluated when the question is asked and kept with it, so that the answers
can be explained without the tensor.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from itertools import islice, product, starmap
from typing import Any, Self

import numpy as np
import torch

import quantcore as qc
from pages.serving.classroom import Question
from quantcore import prediction
from quantcore.granularity import block_name
from quantcore.mistakes import answers, right, traced
from quantcore.numerics import decimal
from quantcore.tracing import Trace, number, scale_formula, trace

Place = tuple[int, ...]
CELLS = 6  # numbers asked for at once
SIDE, WIDE = 8, 48  # rows and columns that a projector shows, and characters in a row
SEARCHED = 64  # elements of a block among which they are chosen
DIGITS = 3  # significant digits of a scale
NAMES = {"codes": "code", "scale": "scale", "zero_point": "zero point"}


@dataclass(frozen=True)
class AskedNumber:
    """One number that is asked for.

    Attributes:
        place: of the element, or of the block in block form.
        how: the arithmetic of the right number.
        wrong: what one known mistake gives, the mistake's name in `MISTAKES`, and a sentence that explains
            it.
    """

    place: Place
    how: str
    wrong: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class TensorPart:
    """The part of a tensor that the projector shows, numbers as text.

    ``rows``, ``columns``: their indices; ``marked``: (row, column) in this part of the elements asked for.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]
    marked: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class AnswerKey:
    """The answer key of a question: what stands behind it; phones never see it.

    ``link``: page and query that show its tensor, "" if none can; ``part``: None if it needs no tensor.
    """

    asked: str
    link: str
    fields: tuple[AskedNumber, ...]
    part: TensorPart | None

    def to_text(self) -> str:
        """Write it as a question stores it."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, question: Question) -> Self:
        """Read the answer key of a question that `ask_about` made."""
        asked, link, fields, part = map(_tuples, json.loads(question.source).values())
        return cls(asked, link, tuple(starmap(AskedNumber, fields)), part and TensorPart(*part))


def ask_about(result: qc.Quantized, asked: str, link: str = "", at: Place | None = None) -> Question:
    """Make a question about codes of one block, or about the scales or zero points of the first blocks.

    Args:
        asked: "codes", "scale" or "zero_point".
        link: page and query that show the tensor.
        at: an element of the block whose codes are asked for; by default the first.

    Raises:
        QuantError: the numbers can't be predicted, as `prediction.mark` says, or phones can't show them.
    """
    scheme, fmt = result.scheme, result.scheme.format
    if not isinstance(fmt, qc.IntFormat):
        raise qc.QuantError(f"{fmt} is not an integer format; choose one, such as int8.")
    if asked == "codes":
        block = trace(result, at or (0,) * result.x.ndim).block
        places = telling(result, block)
    else:
        places = [tuple(map(int, place)) for place in np.ndindex(tuple(result.scale.shape))][:CELLS]
    prediction.mark(result, asked, places, [""] * len(places))  # raises if they can't be predicted
    if not places:
        raise qc.QuantError("This block has no finite value; choose an element of another one.")
    traces = [traced(result, asked, place) for place in places]
    part = _part(result, places if asked == "codes" else [])
    facts = [f"{fmt}: codes {fmt.qmin} to {fmt.qmax}", "symmetric" if scheme.symmetric else "asymmetric"]
    if scheme.convention != qc.TEXTBOOK:
        facts.append(f"as {scheme.convention.library}")
    given = [_given(result, asked, t, part is not None) for t in traces]
    one = asked == "codes" or len(places) == 1
    facts += (given[0] if one else []) + ([f"{DIGITS} significant digits"] if asked == "scale" else [])
    digits = DIGITS if asked == "scale" else 0
    correct = [right(t, asked) for t in traces]
    if not np.isfinite(correct).all():
        raise qc.QuantError(
            f"A {NAMES[asked]} asked for is not finite; remove NaN and infinities from the tensor."
        )
    explained = tuple(
        _explained(result, asked, trace, place, digits) for trace, place in zip(traces, places, strict=True)
    )
    return Question(
        _prompt(asked, len(places), result.scale.numel() == 1),
        " · ".join(facts),
        tuple(_name(result, asked, t, [] if one else more) for t, more in zip(traces, given, strict=True)),
        tuple(as_typed(value, digits) for value in correct),
        digits,
        AnswerKey(asked, link, explained, part).to_text(),
    )


def _prompt(asked: str, many: int, is_whole: bool) -> str:
    what = f"{NAMES[asked]}{'s' * (many > 1)}"
    if asked == "codes":
        return (
            f"Which {what} do these {many} values get?" if many > 1 else f"Which {what} does this value get?"
        )
    return f"Which {what} does this tensor get?" if is_whole else f"Which {what} do these blocks get?"


def _given(result: qc.Quantized, asked: str, t: Trace, is_shown: bool) -> list[str]:
    """Return what is given of a block: what the arithmetic of the number asked for begins with."""
    known = []
    is_implied = is_shown and result.scheme.range_setting.ends_are_elements
    if asked != "codes" and not is_implied and t.low is not None and t.high is not None:
        known.append(f"range {number(t.low)} to {number(t.high)}")
    if asked != "scale":
        known.append(f"scale {decimal(t.scale)}")
    if asked == "codes":
        known.append(f"zero point {number(t.zero_point)}")
    return known


def _part(result: qc.Quantized, places: Sequence[Place]) -> TensorPart | None:
    """Return the part with these elements, by default the whole tensor; None if a projector can't show it."""
    shape = tuple(result.x.shape)
    plane = result.x.reshape(-1, shape[-1] if shape else 1)
    flat = [int(np.ravel_multi_index(place, shape)) if place else 0 for place in places]
    at = [divmod(i, plane.shape[1]) for i in flat]
    is_large = max(plane.shape) > SIDE or max(map(len, map("".join, _texts(plane)))) > WIDE
    if not at and is_large:
        return None
    axes = [
        sorted({each[axis] for each in at}) if is_large else [*range(size)]
        for axis, size in enumerate(plane.shape)
    ]
    lead = shape[:-1]
    leading = [", ".join(map(str, np.unravel_index(row, lead))) if lead else "" for row in axes[0]]
    texts = _texts(plane[axes[0]][:, axes[1]])
    marked = tuple((axes[0].index(row), axes[1].index(column)) for row, column in at)
    return TensorPart(tuple(leading), tuple(map(str, axes[1])), texts, marked)


def _texts(plane: torch.Tensor) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(map(decimal, row)) for row in plane.tolist())


def telling(result: qc.Quantized, block: Place) -> list[Place]:
    """Return elements of a block whose codes tell mistakes apart, in reading order, each of another value.

    At an element, a mistake is told apart if no other gives the same code. The element that tells the most
    apart is taken, and others while each tells further ones apart; at least two, if the block has two values.
    """
    elements = _elements(result, block)
    apart = {place: _alone(result, place) for place in elements}
    chosen: list[Place] = []
    seen: set[str] = set()
    while elements and len(chosen) < CELLS:
        best = max(elements, key=lambda place: (len(apart[place] - seen), len(apart[place])))
        if not apart[best] - seen and len(chosen) >= 2:
            break
        elements = [place for place in elements if result.x[place] != result.x[best]]
        chosen.append(best)
        seen |= apart[best]
    return sorted(chosen)


def as_typed(value: float, digits: int) -> str:
    """Write a number as an answer is counted; see `Question.read`."""
    exact = Decimal(f"{value:.{digits}g}" if digits else f"{value:.0f}")
    return f"{exact.normalize() or Decimal():f}"


def _elements(result: qc.Quantized, block: Place) -> list[Place]:
    """Return the first elements of a block that are finite."""
    spans = traced(result, "scale", block).bounds
    every = product(*(range(*span) for span in spans))
    return [place for place in islice(every, SEARCHED) if np.isfinite(float(result.x[place]))]


def _alone(result: qc.Quantized, place: Place) -> set[str]:
    """Return the mistakes that alone give their code at an element."""
    given = {(answer.value, answer.mistake.name) for answer in answers(result, "codes", place)}
    often = Counter(value for value, _ in given)
    return {name for value, name in given if often[value] == 1}


def _explained(result: qc.Quantized, asked: str, t: Trace, place: Place, digits: int) -> AskedNumber:
    wrong: dict[tuple[str, str], str] = {}
    for answer in answers(result, asked, place):
        if digits or answer.value == round(answer.value):
            sentence = answer.sentence.removesuffix(f" It is {scale_formula(t)}.")  # which ``how`` says once
            wrong.setdefault((as_typed(answer.value, digits), answer.mistake.name), sentence)
    told = tuple((*key, sentence) for key, sentence in wrong.items())
    return AskedNumber(place, prediction.correct_steps(t, asked), told)


def _name(result: qc.Quantized, asked: str, t: Trace, given: Sequence[str]) -> str:
    if asked == "codes":
        return f"x = {decimal(t.x)}"
    name = NAMES[asked] if result.scale.numel() == 1 else block_name(t.bounds, result.x.shape)
    return ", ".join([name, *given])


def _tuples(value: Any) -> Any:
    """Return lists and records as tuples, however deep."""
    value = [*value.values()] if isinstance(value, dict) else value
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
