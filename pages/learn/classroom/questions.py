"""Questions to a class about a quantized tensor, whose usual mistakes give different answers.

What each known mistake gives is evaluated when the question is asked and kept with it, so that the answers
can be explained without the tensor.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import islice, product

import numpy as np
import torch

import quantcore as qc
from pages.serving.classroom import PROMPTS, Question, TensorPart
from quantcore import prediction
from quantcore.granularity import block_name
from quantcore.mistakes import OF_BLOCKS, answers, right, traced
from quantcore.prediction import ASKED, DIGITS, KnownWrong, NumberKey, as_typed, number_key, shown
from quantcore.tracing import Trace, trace

Place = tuple[int, ...]
CELLS = 6  # numbers asked for at once
SIDE, WIDE = 8, 48  # rows and columns that a projector shows, and characters in a row
SEARCHED = 64  # elements of a block among which they are chosen
CHOICES = 5  # numbers to choose from, at most
MANY = {"code": "codes", "dequantized": "dequantized_values"}


def ask_about(
    result: qc.Quantized, asked: str, link: str = "", at: Place | None = None, places: Sequence[Place] = ()
) -> Question:
    """Make a question about numbers of elements or blocks, or about the bits per element.

    Args:
        asked: "codes", "dequantized", "error" (of elements), "scale", "zero_point" (of blocks), or "bits".
        link: page and query that show the tensor.
        at: an element of the block whose elements are asked about; by default the first.
        places: the elements or blocks; by default those that tell mistakes apart, or the first blocks.

    Raises:
        QuantError: the numbers can't be predicted, as `prediction.check` says, or phones can't show them.
    """
    if not isinstance(result.scheme.format, qc.IntFormat):
        raise qc.QuantError(f"{result.scheme.format} is not an integer format; choose one, such as int8.")
    prediction.check(result, asked)
    places = list(places) or _places(result, asked, at)
    if not places:
        raise qc.QuantError("This block has no finite value; choose an element of another one.")
    if len(places) > CELLS:
        raise qc.QuantError(f"{len(places)} elements are chosen; ask about {CELLS} at most.")
    traces = [traced(result, asked, place) for place in places]
    if not np.isfinite([right(t, result, asked) for t in traces]).all():
        raise qc.QuantError(
            f"A {ASKED[asked]} asked for is not finite; remove NaN and infinities from the tensor."
        )
    is_of_elements = asked not in (*OF_BLOCKS, "bits")
    part = part_of(result, places if is_of_elements else []) if asked != "bits" else None
    given = [_given(result, asked, t, part is not None) for t in traces]
    one = len({t.block for t in traces}) == 1
    facts = [*scheme_facts(result, asked), *(given[0] if one else [])]
    facts += [f"{DIGITS[asked]} significant digits"] if DIGITS[asked] else []
    key = _prompt_key(asked, len(places), result.scale.numel() == 1)
    return Question(
        PROMPTS[key].en,
        " · ".join(facts),
        tuple(_name(result, asked, t, [] if one else more) for t, more in zip(traces, given, strict=True)),
        tuple(number_key(result, asked, place, for_class=True) for place in places),
        asked=key,
        link=link,
        part=part,
    )


def as_choice(question: Question) -> Question:
    """Make a question with one number one of multiple choice: the right number, and what mistakes give.

    Raises:
        QuantError: it asks for several numbers, or no known mistake gives another one.
    """
    if len(question.keys) != 1:
        raise qc.QuantError(f"This question asks for {len(question.keys)} numbers; choose one element.")
    (key,) = question.keys
    found: dict[str, list[KnownWrong]] = {key.right: []}
    digits = key.digits and max(key.digits, len(Decimal(key.right).as_tuple().digits))
    for known in key.wrong:
        text = as_typed(Fraction(known.value), digits)
        if text in found or (len(found) < CHOICES and not key.marks(text)[0].right):
            found.setdefault(text, []).append(known)
    if len(found) < 2:
        raise qc.QuantError("No known mistake gives another number here; choose another element.")
    texts = sorted(found, key=float)
    index = {text: str(i) for i, text in enumerate(texts)}
    wrong = tuple(known._replace(value=index[text]) for text in texts for known in found[text])
    chosen = NumberKey(index[key.right], how=key.how, wrong=wrong)
    return replace(question, keys=(chosen,), choices=tuple(texts))


def _places(result: qc.Quantized, asked: str, at: Place | None) -> list[Place]:
    first = (0,) * result.x.ndim
    if asked == "bits":
        return [first]
    if asked in OF_BLOCKS:
        return [tuple(map(int, place)) for place in np.ndindex(tuple(result.scale.shape))][:CELLS]
    return telling(result, trace(result, at or first).block)


def scheme_facts(result: qc.Quantized, asked: str) -> list[str]:
    """Return what is given of the scheme."""
    scheme, fmt = result.scheme, result.scheme.format
    facts = [f"{fmt}: codes {fmt.qmin} to {fmt.qmax}", "symmetric" if scheme.symmetric else "asymmetric"]
    if scheme.convention != qc.TEXTBOOK:
        facts.append(f"as {scheme.convention.library}")
    if asked == "bits":
        found, blocks = qc.storage(scheme, tuple(result.x.shape)), result.scale.numel()
        shape, zeros = " × ".join(map(str, result.x.shape)), found.zero_points // blocks
        facts += [f"{shape} elements", f"{blocks:,} blocks", f"{found.scales // blocks} bits per scale"]
        facts += [f"{zeros} bits per zero point"] if zeros else []
    return facts


def _prompt_key(asked: str, many: int, is_whole: bool) -> str:
    """Return the key in `PROMPTS`: "codes" of several elements, "scales" of blocks."""
    one = "code" if asked == "codes" else asked
    if asked == "bits" or (is_whole if asked in OF_BLOCKS else many == 1):
        return one
    return MANY.get(one, f"{one}s")


def _given(result: qc.Quantized, asked: str, t: Trace, is_shown: bool) -> list[str]:
    """Return what is given of a block: what the arithmetic of the number asked for begins with."""
    known: list[str] = []
    if asked == "bits":
        return known
    is_implied = is_shown and result.scheme.range_setting.ends_are_elements
    if asked in OF_BLOCKS and not is_implied and t.low is not None and t.high is not None:
        known.append(f"range {shown(t.low)} to {shown(t.high)}")
    if asked != "scale":
        known.append(f"scale {shown(t.scale)}")
    if asked != "scale" and asked != "zero_point":
        known.append(f"zero point {shown(t.zero_point)}")
    return known


def part_of(result: qc.Quantized, places: Sequence[Place] = ()) -> TensorPart | None:
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
    return tuple(tuple(map(shown, row)) for row in plane.tolist())


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


def _name(result: qc.Quantized, asked: str, t: Trace, given: Sequence[str]) -> str:
    if asked == "bits":
        return "bits per element"
    if asked not in OF_BLOCKS:
        return ", ".join([f"x = {shown(t.x)}", *given])
    name = ASKED[asked] if result.scale.numel() == 1 else block_name(t.bounds, result.x.shape)
    return ", ".join([name, *given])
