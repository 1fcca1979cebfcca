"""The usual mistakes, one record each: Match looks for them in codes, Predict in answers, the lessons explain them.

They stand in the order in which answers are explained by them.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import block_bounds
from quantcore.mistakes.cell import Cell
from quantcore.numerics import before_rounding, rounding
from quantcore.qparams import wrap
from quantcore.quantization import Quantized
from quantcore.range_setting import MIN_MAX
from quantcore.tracing import Trace, number, scale_formula, signed, trace

Stage = Literal["range", "scale", "x", "rounding", "overflow", "zero point", "block"]
# Of several mistakes, that of the first of these stages explains codes best
STAGES: tuple[Stage, ...] = get_args(Stage)
# Values of one cell, each with the sentence that explains it
Values = Iterable[tuple[float, str]]
Place = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Mistake:
    """A usual mistake.

    ``name``: its key in `MISTAKES`; ``kind``: what a wrong answer is called ("rounding"); ``stage``: of the arithmetic.
    ``title``: what it is called where codes show it; ``sentence``: the same as a sentence without its full stop; both
    empty if codes alone don't show it. ``lesson``: the lesson and the step that explain it; the steps of "mistakes" are
    `CASES`.

    What it does to the stages, on tensors: ``choices``: of the convention, changed; ``scale``, ``zero_point``: what is
    used instead of the right one; ``fit``: what is done instead of the clamp. What it gives for one cell:
    ``code_of``, ``zero_point_of``, and ``scale_of``, whose sentences are followed by how the scale is computed.
    """

    name: str
    kind: str
    stage: Stage
    title: str = ""
    sentence: str = ""
    lesson: tuple[str, str] | None = None
    choices: Mapping[str, str] = field(default_factory=dict)
    scale: Callable[[Tensor], Tensor] | None = None
    zero_point: Callable[[Tensor], Tensor] | None = None
    fit: Callable[[Tensor, IntFormat], Tensor] | None = None
    code_of: Callable[[Cell], Values] = lambda cell: ()
    scale_of: Callable[[Cell], Values] = lambda cell: ()
    zero_point_of: Callable[[Cell], Values] = lambda cell: ()


def _rounded(rule: str, verb: str = "") -> Callable[[Cell], Values]:
    """Return the code with another rule for rounding; ``verb``: empty for rules that differ in ties only."""

    def values(c: Cell) -> Values:
        v, offset = (c.t.quotient, c.t.zero_point) if c.t.summed is None else (c.t.summed, 0.0)
        tie = math.isfinite(v) and v - math.floor(v) == 0.5
        if not math.isfinite(v) or not (tie or verb):
            return
        integer = int(rounding(rule)(torch.tensor([v], dtype=torch.float32)))
        nearest = f"the scheme rounds it to {number(c.t.rounded)}"
        said = f"is a tie: {nearest}, not {integer}" if tie else f"{verb} {integer}; {nearest}"
        yield c.fit(integer + offset), f"{number(v)} {said}."

    return values


def _low_rounded(rule: Callable[[float], int]) -> Callable[[Cell], Values]:
    """Return the zero point with low / s rounded in one direction."""
    return lambda c: [(
        c.fmt.qmin - rule(c.steps), f"{before_rounding(c.steps)} was rounded to {rule(c.steps)}. {c.how_zero_point}"
    )] if c.of_low else ()  # fmt: skip


def _shifted_by(
    factor: float, said: str, holds: Callable[[Cell], bool] = lambda c: True
) -> Callable[[Cell], Values]:
    """Return the code with a multiple of the zero point; whoever errs so may leave out the clamp too."""
    return lambda c: [
        (fit(c.nearest + factor * c.t.zero_point),
         f"The zero point {signed(c.t.zero_point)} {said}: {number(c.nearest)} + {signed(c.t.zero_point)}.")
        for fit in (c.fit, float)
    ] if c.t.zero_point and holds(c) else ()  # fmt: skip


_ALL = (
    Mistake(
        "symmetry", "symmetry", "range", lesson=("zero_point", "choose"),
        scale_of=lambda c: [
            (s, f"This scheme is {'symmetric' if c.symmetric else 'asymmetric'}.")
            for s in c.scale_with(c.elements, symmetric=not c.symmetric)
        ],
        zero_point_of=lambda c: [(
            0 if c.t.zero_point else c.count // 2,
            ("Symmetric codes are centered on 0" if c.fmt.signed else f"Symmetric unsigned codes are centered on {c.fmt.middle}")
            + f": the zero point is {number(c.t.zero_point)}.",
        )] if c.symmetric else (),
    ),
    Mistake(
        "min_max", "range", "range", lesson=("error", "clipping"),
        scale_of=lambda c: [
            (s, "That uses the range from min to max.") for s in c.scale_with(c.elements, range_setting=MIN_MAX)
        ],
    ),
    Mistake(
        "whole_tensor", "another block", "block", lesson=("granularity", "rows"),
        scale_of=lambda c: [
            (s, "That is the scale of the whole tensor, not of this block.") for s in c.scale_with(c.result.x)
        ],
    ),
    Mistake(
        "sign_of_low", "sign of low", "range", lesson=("zero_point", "asymmetric"),
        scale_of=lambda c: [
            ((c.high + c.low) / (c.count - 1), "low must be subtracted from high, not added.")
        ] if not c.symmetric else (),
        zero_point_of=lambda c: [
            (fit(c.fmt.qmin + round(c.steps)), f"low / s must be subtracted. {c.how_zero_point}")
            for fit in (c.clamped, float)
        ] if c.of_low else (),
    ),
    Mistake(
        "toward_zero", "rounding", "rounding", "rounded toward zero", "Values are rounded toward zero",
        ("mistakes", "truncated"), {"rounding": "toward_zero"}, code_of=_rounded("toward_zero", "was truncated to"),
    ),
    Mistake(
        "floor", "rounding", "rounding", "rounded down", "Values are rounded down", ("mistakes", "truncated"),
        {"rounding": "floor"}, code_of=_rounded("floor", "was rounded down to"), zero_point_of=_low_rounded(math.floor),
    ),
    Mistake(
        "ceil", "rounding", "rounding", lesson=("scale", "code"),
        code_of=_rounded("ceil", "was rounded up to"), zero_point_of=_low_rounded(math.ceil),
    ),
    Mistake(
        "half_away", "rounding", "rounding", "ties rounded away from zero", "Ties are rounded away from zero",
        ("scale", "code"), {"rounding": "half_away"}, code_of=_rounded("half_away"),
    ),
    Mistake(
        "half_up", "rounding", "rounding", "ties rounded up", "Ties are rounded up", ("scale", "code"),
        {"rounding": "half_up"}, code_of=_rounded("half_up"),
    ),
    Mistake(
        "zero_point_negated", "sign of zero point", "zero point", "zero_point with the opposite sign",
        "The zero point has the opposite sign", ("zero_point", ""),
        zero_point=torch.neg,
        code_of=_shifted_by(-1.0, "was subtracted; it must be added"),
        zero_point_of=lambda c: [
            (-c.t.zero_point, f"The sign is wrong. {c.how_zero_point}")
        ] if c.has_steps else (),
    ),
    Mistake(
        "zero_point_left_out", "zero point forgotten", "zero point", "asymmetric scale, zero_point omitted",
        "The scale is asymmetric, but the zero point is omitted", ("mistakes", "zero-point-left-at-zero"),
        zero_point=torch.zeros_like, code_of=_shifted_by(0.0, "is missing", lambda c: not c.symmetric),
    ),
    Mistake(
        "middle_left_out", "zero point forgotten", "zero point",
        "unsigned codes for a symmetric range, zero_point omitted",
        "The codes are unsigned, but the zero point that shifts a symmetric range is omitted",
        ("mistakes", "negatives-lost"),
        zero_point=torch.zeros_like, code_of=_shifted_by(0.0, "is missing", lambda c: c.symmetric),
    ),
    Mistake(
        "unclamped", "not clamped", "overflow", "not clamped: codes outside the format kept",
        "Codes are not clamped: some lie outside the format", ("mistakes", "cast-without-clamp"),
        fit=lambda values, fmt: values,
        code_of=lambda c: [
            (c.t.shifted, f"{c.outside}, so the code must be {c.t.code}.")
        ] if c.finite else (),
        zero_point_of=lambda c: [
            (c.fmt.qmin - round(c.steps), f"It is clamped to {c.fmt.qmin}..{c.fmt.qmax}.")
        ] if c.of_low else (),
    ),
    Mistake(
        "wrapped", "wrapped", "overflow", "cast without a clamp: codes out of range wrapped around",
        "The cast has no clamp: codes out of range wrap around", ("mistakes", "cast-without-clamp"),
        {"overflow": "wrap"}, fit=lambda values, fmt: wrap(values, fmt).to(values.dtype),
        code_of=lambda c: [(
            c.wrapped(c.t.shifted),
            f"{c.outside}. This scheme clamps it to {number(c.clamped(c.t.shifted))}; it does not wrap.",
        )] if c.finite else (),
    ),
    Mistake(
        "saturated", "clamped", "overflow", lesson=("scale", "range"),
        code_of=lambda c: [
            (c.clamped(c.t.shifted), f"{c.outside}. This scheme wraps it to {number(c.wrapped(c.t.shifted))}.")
        ] if c.finite else (),
    ),
    Mistake(
        "lowest_code_forgotten", "lowest code forgotten", "zero point", lesson=("zero_point", "asymmetric"),
        zero_point_of=lambda c: [
            (sign * round(c.steps), f"low must get the lowest code, {c.fmt.qmin}. {c.how_zero_point}") for sign in (-1, 1)
        ] if c.has_steps else (),
    ),
    Mistake(
        "other_format", "codes of another format", "overflow", lesson=("mistakes", "clamp-of-another-type"),
        code_of=lambda c: [(
            min(max(c.t.shifted, c.other.qmin), c.other.qmax),
            f"That is clamped to {c.other.qmin}..{c.other.qmax}, the codes of {c.other}; "
            f"the codes of {c.fmt} are {c.fmt.qmin}..{c.fmt.qmax}.",
        )] if c.finite else (),
        scale_of=lambda c: [
            (s, f"{c.fmt} has the codes {c.fmt.qmin}..{c.fmt.qmax}.") for s in c.scale_with(c.elements, format=c.other)
        ],
        zero_point_of=lambda c: [
            (c.t.zero_point + c.other.qmin - c.fmt.qmin, f"That is the zero point of {c.other}. {c.how_zero_point}")
        ] if c.has_steps else (),
    ),
    Mistake(
        "sign_of_x", "sign of x", "x", lesson=("scale", "code"),
        code_of=lambda c: [(c.code(-c.t.quotient), f"The sign is wrong: x is {number(c.t.x)}.")],
    ),
    Mistake(
        "multiplied", "multiplied", "x", lesson=("scale", "code"),
        code_of=lambda c: [(
            c.code(c.t.x * c.t.scale),
            f"x was multiplied by s; it must be divided: {number(c.t.x)} / {number(c.t.scale)}.",
        )],
    ),
    Mistake(
        "not_scaled", "not scaled", "x", lesson=("scale", "code"),
        code_of=lambda c: [(c.code(c.t.x), f"x was not divided by the scale {number(c.t.scale)}.")],
    ),
    Mistake(
        "other_block", "another block", "block", lesson=("granularity", "rows"),
        code_of=lambda c: [(
            c.code(c.t.x / scale if scale else math.inf, zero_point),
            f"That uses the scale {number(scale)} of block {place}; "
            f"this is block {c.t.block}, whose scale is {number(c.t.scale)}.",
        ) for place, scale, zero_point in c.blocks()],
        scale_of=lambda c: [(scale, "That is the scale of another block.") for _, scale, _ in c.blocks()],
    ),
    Mistake(
        "divisor", "divisor", "scale", lesson=("scale", "bits"),
        scale_of=lambda c: [
            (c.size / (c.count // 2),
             f"Divided by {c.count // 2}; the highest code is the zero point + {number(c.fmt.qmax - c.t.zero_point)}."),
            (c.size / (c.count - 1), "max|x| covers half of the codes, not all of them."),
        ] if c.symmetric else [(c.span / c.count, f"{c.count} codes have {c.count - 1} steps between them.")],
    ),
    Mistake(
        "absolute_value", "absolute value", "range", lesson=("zero_point", "symmetric"),
        scale_of=lambda c: [
            (c.high / (c.count // 2 - 1), f"max x was used, but |{number(c.low)}| is larger.")
        ] if c.symmetric and -c.low > c.high else (),
    ),
    Mistake(
        "low_forgotten", "low forgotten", "range", lesson=("zero_point", "asymmetric"),
        scale_of=lambda c: [
            (c.high / (c.count - 1), "The range starts at low, not at 0.")
        ] if not c.symmetric else (),
    ),
    Mistake(
        "zero_left_out", "zero left out", "range", lesson=("zero_point", "zero"),
        scale_of=lambda c: [
            (c.span / (c.count - 1), "The range is widened to include 0.")
        ] if not c.symmetric and not c.low <= 0 <= c.high else (),
    ),
    Mistake(
        "inverse", "inverse", "scale", lesson=("scale", "marks"),
        scale_of=lambda c: [
            (1 / c.t.scale, "That is 1 / s, the number of steps per unit of x.")
        ] if c.t.scale else (),
    ),
    Mistake(
        "not_divided", "not divided", "scale", lesson=("scale", "marks"),
        scale_of=lambda c: [(value, "The range must be divided into steps.") for value in (c.size, c.span)],
    ),
    Mistake(
        "decimal_point", "decimal point", "scale",
        scale_of=lambda c: [(c.t.scale * factor, "The decimal point is off by one place.") for factor in (10, 0.1)],
    ),
    Mistake(
        "other_axis", "another block", "block", "per-channel scales applied along the wrong axis",
        "The scales of one axis are applied along another", ("granularity", ""),
    ),
    Mistake(
        "narrow", "narrow range", "overflow", "clamped to the narrow range", "Codes are clamped to the narrow range",
        ("scale", "range"),
        fit=lambda values, fmt: values.clamp(fmt.qmin + 1, fmt.qmax),
        code_of=lambda c: [(
            max(c.clamped(c.t.shifted), c.fmt.qmin + 1),
            f"The narrow range leaves out the lowest code, {c.fmt.qmin}; {c.fmt} has it.",
        )] if c.finite and c.fmt.signed and c.symmetric else (),
    ),
    Mistake(
        "scale_float16", "float16", "scale", "scale rounded to float16", "The scale is rounded to float16",
        ("mistakes", "scale-in-float16"), scale=lambda s: s.to(torch.float16).to(torch.float32),
    ),
    Mistake(
        "range_from_zero", "range", "range", "range 0 to max |x| instead of min to max",
        "The range goes from 0 to max |x| instead of min to max", ("mistakes", "range-without-minimum"),
    ),
    Mistake(
        "signed_percentile", "range", "range", "percentile of x instead of |x|",
        "The percentile is that of x instead of |x|", ("mistakes", "percentile-of-signed-values"),
    ),
    Mistake(
        "quantized_twice", "quantized twice", "x", "quantized twice, to 8 bits first",
        "The values were quantized twice, to 8 bits first", ("mistakes", "quantized-twice"),
    ),
)  # fmt: skip
MISTAKES = {mistake.name: mistake for mistake in _ALL}


class Answer(NamedTuple):
    """A wrong answer: the mistake of `MISTAKES` that gives it, its value, and the sentence that explains it."""

    mistake: Mistake
    value: float
    sentence: str


def answers(result: Quantized, asked: str, place: Place) -> Iterator[Answer]:
    """Yield the wrong answers that one mistake gives; a mistake that gives the right answer anyway is left out.

    Args:
        asked: "codes" for the code of the element at ``place``; "scale" or "zero_point" of the block at ``place``, a
            position in block form.

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
    for mistake in MISTAKES.values():
        values = {"codes": mistake.code_of, "scale": mistake.scale_of, "zero_point": mistake.zero_point_of}[asked]
        for value, sentence in values(cell):
            if math.isfinite(value) and value != right(t, asked):
                yield Answer(mistake, value, sentence + how)


def traced(result: Quantized, asked: str, place: Place) -> Trace:
    """Return the trace of the element at ``place`` or, if codes are not asked for, of a block's first element.

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
