"""Questions to a class about a quantized tensor, whose usual mistakes give different answers.

What each known mistake gives is evaluated when the question is asked and kept with it, so that the answers can be explained
without the tensor.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from itertools import islice
from typing import Self

import numpy as np

import quantcore as qc
from pages.serving.classroom import Question
from quantcore.mistakes import answers, first_of
from quantcore.numerics import decimal
from quantcore.prediction import grade
from quantcore.tracing import number, scale_formula, trace, zero_point_formula

Place = tuple[int, ...]
CELLS = 6  # numbers asked for at once
SEARCHED = 64  # elements of a block among which they are chosen
DIGITS = 3  # significant digits of a scale
MARKERS = {"codes": grade.mark_codes, "scale": grade.mark_scales, "zero_point": grade.mark_zero_points}
NAMES = {"codes": "code", "scale": "scale", "zero_point": "zero point"}


@dataclass(frozen=True)
class Explained:
    """One number that is asked for.

    Attributes:
        place: of the element, or of the block in block form.
        how: the arithmetic of the right number.
        wrong: what one known mistake gives, the mistake's name in `MISTAKES`, and the sentence that explains it.
    """

    place: Place
    how: str
    wrong: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Source:
    """What stands behind a question; phones never see it. ``link``: query of the view that shows its tensor."""

    asked: str
    link: str
    fields: tuple[Explained, ...]

    def to_text(self) -> str:
        """As a question stores it."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, question: Question) -> Self:
        """The source of a question that `ask_about` made."""
        found = json.loads(question.source)
        fields = tuple(
            Explained(tuple(each["place"]), each["how"], tuple(map(tuple, each["wrong"])))
            for each in found["fields"]
        )
        return cls(found["asked"], found["link"], fields)


def ask_about(result: qc.Quantized, asked: str, link: str = "", at: Place | None = None) -> Question:
    """Make a question about codes of one block, or about the scales or zero points of the first blocks.

    Args:
        asked: "codes", "scale" or "zero_point".
        link: query of the view that shows the tensor.
        at: an element of the block whose codes are asked for; by default the first.

    Raises:
        QuantError: the numbers can't be predicted, as `grade.mark_codes` and the others say, or phones can't show them.
    """
    fmt = result.scheme.format
    if not isinstance(fmt, qc.IntFormat):
        raise qc.QuantError(f"{fmt} is not an integer format; choose one, such as int8.")
    if asked == "codes":
        block = trace(result, at or (0,) * result.x.ndim).block
        places = telling(result, block)
    else:
        places = [tuple(map(int, place)) for place in np.ndindex(tuple(result.scale.shape))][:CELLS]
        block = places[0]
    MARKERS[asked](result, places, [""] * len(places))  # raises if they can't be predicted
    t = trace(result, first_of(result, block))
    facts = [f"{fmt}: codes {fmt.qmin} to {fmt.qmax}", "symmetric" if result.scheme.symmetric else "asymmetric"]
    if asked != "scale" and (asked == "codes" or len(places) == 1):
        facts.append(f"scale {decimal(t.scale)}")
    if asked == "codes":
        facts.append(f"zero point {number(t.zero_point)}")
    elif asked == "zero_point" and len(places) > 1:
        facts.append("the scales are on the projector")
    many, what = "s" * (len(places) > 1), NAMES[asked]
    digits = DIGITS if asked == "scale" else 0
    right = [_right(result, asked, place) for place in places]
    question = Question(
        f"Which {what}{many}" + (f" do these {len(places)} values get?" if asked == "codes" and many else
                                 " does this value get?" if asked == "codes" else
                                 " do these blocks get?" if many else " does this tensor get?"),
        " · ".join(facts),
        tuple(_name(result, asked, place) for place in places),
        tuple(as_typed(value, digits) for value in right),
        digits,
    )  # fmt: skip
    explained = tuple(_explained(result, asked, place, digits) for place in places)
    return Question(**vars(question) | {"source": Source(asked, link, explained).to_text()})


def telling(result: qc.Quantized, block: Place) -> list[Place]:
    """Return the elements of a block whose codes tell the most mistakes apart, in reading order.

    At an element, a mistake is told apart if no other gives the same code. Elements are added while each tells another
    mistake apart; at least two are, if the block has them.
    """
    elements = _elements(result, block)
    apart = {place: _alone(result, place) for place in elements}
    chosen: list[Place] = []
    seen: set[str] = set()
    while len(chosen) < min(CELLS, len(elements)):
        best = max((place for place in elements if place not in chosen), key=lambda p: len(apart[p] - seen))
        if not apart[best] - seen and len(chosen) >= 2:
            break
        chosen.append(best)
        seen |= apart[best]
    return sorted(chosen)


def as_typed(value: float, digits: int) -> str:
    """A number as an answer is counted; see `Question.read`."""
    exact = Decimal(f"{value:.{digits}g}" if digits else f"{value:.0f}")
    return f"{exact.normalize() or Decimal():f}"


def _elements(result: qc.Quantized, block: Place) -> list[Place]:
    first = first_of(result, block)
    ends = [min(start + size, most) for start, size, most in zip(first, result.block, result.x.shape, strict=True)]
    every: Iterator[Place] = np.ndindex(*(end - start for start, end in zip(first, ends, strict=True)))
    found = (tuple(start + step for start, step in zip(first, place, strict=True)) for place in islice(every, SEARCHED))
    return [place for place in found if np.isfinite(float(result.x[place]))]


def _alone(result: qc.Quantized, place: Place) -> set[str]:
    """The mistakes that alone give their code at an element."""
    by_value: dict[float, set[str]] = {}
    for answer in answers(result, "codes", place):
        by_value.setdefault(answer.value, set()).add(answer.mistake.name)
    return {next(iter(names)) for names in by_value.values() if len(names) == 1}


def _right(result: qc.Quantized, asked: str, place: Place) -> float:
    if asked == "codes":
        return float(result.codes[place])
    t = trace(result, first_of(result, place))
    return t.scale if asked == "scale" else float(t.zero_point)


def _explained(result: qc.Quantized, asked: str, place: Place, digits: int) -> Explained:
    t = trace(result, place if asked == "codes" else first_of(result, place))
    how = {
        "codes": lambda: grade.correct_steps(t),
        "scale": lambda: f"It is {scale_formula(t)} = {number(t.scale)}.",
        "zero_point": lambda: f"It is {zero_point_formula(t)} = {number(t.zero_point)}.",
    }[asked]()
    wrong: dict[tuple[str, str], str] = {}
    for answer in answers(result, asked, place):
        if digits or answer.value == round(answer.value):
            wrong.setdefault((as_typed(answer.value, digits), answer.mistake.name), answer.sentence)
    return Explained(place, how, tuple((*key, sentence) for key, sentence in wrong.items()))


def _name(result: qc.Quantized, asked: str, place: Sequence[int]) -> str:
    if asked == "codes":
        return f"x = {decimal(float(result.x[tuple(place)]))}"
    return NAMES[asked] if result.scale.numel() == 1 else f"block {tuple(place)}"
