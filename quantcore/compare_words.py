"""The reasons why two libraries' codes differ, in words, with the numbers of one element."""

import dataclasses

import torch

from quantcore.conventions.record import CHOICES
from quantcore.errors import QuantError
from quantcore.qparams import choose_qparams
from quantcore.quantize import Quantized
from quantcore.trace import Trace, kernel_of, trace
from quantcore.trace_text import number, scale_formula, zero_point_formula

# choice -> what is at stake, as a sentence begins
_AT_STAKE = {
    "zero_in_range": "range must include 0, or need not",
    "range_overflow": "a range wider than float32",
    "finite_range": "infinite ends made finite, or not",
    "widen_range": "a range too narrow is widened, or not",
    "smallest_range": "the smallest range",
    "scale_precision": "parameters in float64, or in float32",
    "smallest_scale": "the smallest scale",
    "replacement": "what a scale too small becomes",
    "zero_point_order": "zero point rounded after the subtraction, or before it",
    "zero_point_precision": "zero point in float64, or in float32",
    "zero_point_scale": "zero point of the scale before it was cast or replaced, or after",
    "unsigned_symmetric_zero_point": "zero point of symmetric unsigned codes",
    "zero_point": "a whole zero point, or a float one",
    "asymmetric_scale": "1/s found first, or s",
}


def choices_behind(a: Quantized, b: Quantized, ingredient: str) -> tuple[str, ...]:
    """Return the choices of the records that make a parameter differ: one if it alone does, else all that may.

    ``ingredient``: "scale" or "zero_point". Each choice of b is put into a's record, and the parameters are
    found anew.
    """
    ours, theirs = (r.scheme.convention.at(r.scheme.granularity) for r in (a, b))
    differ = [name for name in CHOICES if getattr(ours, name) != getattr(theirs, name)]
    touching = []
    for name in differ:
        try:
            changed = ours.changed(**{name: getattr(theirs, name)})
            params = choose_qparams(a.x, dataclasses.replace(a.scheme, convention=changed))
        except QuantError:
            continue
        found, own, wanted = (getattr(p, ingredient) for p in (params, a.params, b.params))
        if torch.equal(found, wanted):
            return (name,)
        if not torch.equal(found, own):
            touching.append(name)
    return tuple(touching)


def parameter_words(
    a: Quantized, b: Quantized, index: tuple[int, ...], ingredient: str, choices: tuple[str, ...]
) -> str:
    """``scale: max|x|/127.5 against max|x|/127``, with the numbers of the element's block."""
    of_a, of_b = trace(a, index), trace(b, index)
    formula = scale_formula if ingredient == "scale" else zero_point_formula
    stake = next((_AT_STAKE[c] for c in choices if c in _AT_STAKE), "")
    sides = [f"{name(r)} {formula(t)} = {number(getattr(t, ingredient))}" for r, t in ((a, of_a), (b, of_b))]
    what = "scale" if ingredient == "scale" else "zero point"
    return f"{what}{f' ({stake})' if stake else ''}: " + " against ".join(sides)


def kernel_words(a: Quantized, b: Quantized, index: tuple[int, ...]) -> str:
    """``tie: x/s = 7.5 exactly; A rounds x/s, B rounds x · (1/s) = 7.5000005``."""
    sides = [(r, trace(r, index)) for r in (a, b)]
    if any(t.overflow == "cast" for _, t in sides):
        parts = [f"{name(r)} makes {number(t.code)} of {number(t.shifted)}" for r, t in sides]
        return "no integer holds it: " + ", ".join(parts)
    befores = [_before(t) for _, t in sides]
    tie = any(before % 1 == 0.5 for before in befores)
    parts = [
        f"{name(r)} rounds {kernel_of(r.scheme).rounded} = {number(before)} to {number(t.rounded)}"
        + (f", + {number(t.zero_point)}" if t.zero_point and not kernel_of(r.scheme).shift_first else "")
        for (r, t), before in zip(sides, befores, strict=True)
    ]
    return ("tie: " if tie else "beside a tie: ") + ", ".join(parts)


def _before(t: Trace) -> float:
    """The value that is rounded."""
    return t.quotient if t.summed is None else t.summed


def name(result: Quantized) -> str:
    """The convention's name."""
    return result.scheme.convention.name
