"""Mistakes from x to its code: in the quotient, in rounding, and in what is done with codes out of range."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from quantcore.expressions import CLAMP, Name
from quantcore.expressions import rounded as rounded_by
from quantcore.formats import INT4
from quantcore.mistakes import tensors
from quantcore.mistakes.cell import Cell
from quantcore.mistakes.record import InAnswers, InCodes, InSource, Mistake, Parts, Values, WorkedCase
from quantcore.numerics import before_rounding, rounding
from quantcore.tracing import number

# In C++, casting a float that does not fit to int8 is undefined; through int32 the cast keeps the lowest 8
# bits on every machine, which is what x86 does directly and what the published tables show.

# ruff: noqa: D103 (the cases say what the code that they show does)


def eight_bits_then_four(x: Tensor) -> Parts:
    scale = x.abs().max() / 7
    scale8 = x.abs().max() / 127
    x8 = torch.round(x / scale8) * scale8
    codes = torch.round(x8 / scale).to(torch.int8)
    return codes, scale, codes * scale


def four_bits_at_once(x: Tensor) -> Parts:
    scale = x.abs().max() / 7
    codes = torch.round(x / scale).to(torch.int8)
    return codes, scale, codes * scale


def truncated(x: Tensor) -> Parts:
    scale = x.abs().max() / 7
    codes = (x / scale).to(torch.int8)
    return codes, scale, codes * scale


def rounded(x: Tensor) -> Parts:
    scale = x.abs().max() / 7
    codes = torch.round(x / scale).to(torch.int8)
    return codes, scale, codes * scale


def clamp_to_bytes_cast_to_int8(x: Tensor) -> Parts:
    scale, zero_point = torch.tensor(0.1), 128
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(0, 255)
    codes = codes.int().to(torch.int8)
    x_hat = (codes.float() - zero_point) * scale
    return codes, scale, x_hat


def clamp_to_bytes_cast_to_uint8(x: Tensor) -> Parts:
    scale, zero_point = torch.tensor(0.1), 128
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(0, 255)
    codes = codes.int().to(torch.uint8)
    x_hat = (codes.float() - zero_point) * scale
    return codes, scale, x_hat


def cast_without_clamp(x: Tensor) -> Parts:
    scale = torch.tensor(1.5 / 127)
    codes = torch.round(x / scale)
    codes = codes.int().to(torch.int8)
    return codes, scale, codes * scale


def clamp_before_cast(x: Tensor) -> Parts:
    scale = torch.tensor(1.5 / 127)
    codes = torch.round(x / scale)
    codes = codes.clamp(-128, 127).to(torch.int8)
    return codes, scale, codes * scale


def clamp_in_place(x: Tensor) -> Parts:
    scale = torch.tensor(1.5 / 127)
    x = x.clamp_(-1.5, 1.5)
    codes = torch.round(x / scale).to(torch.int8)
    return codes, scale, codes * scale


def clamp_a_copy(x: Tensor) -> Parts:
    scale = torch.tensor(1.5 / 127)
    x = x.clamp(-1.5, 1.5)
    codes = torch.round(x / scale).to(torch.int8)
    return codes, scale, codes * scale


_NEAREST, _S8 = rounded_by("half_even"), Name("s8")


def _rounded(rule: str, verb: str = "") -> Callable[[Cell], Values]:
    """Return the code with another rule for rounding; ``verb``: empty for rules that differ in ties only."""

    def values(c: Cell) -> Values:
        v, offset = (c.t.quotient, c.t.zero_point) if c.t.summed is None else (c.t.summed, 0.0)
        tie = math.isfinite(v) and v - math.floor(v) == 0.5
        if not math.isfinite(v) or not (tie or verb):
            return
        integer = int(rounding(rule)(torch.tensor([v], dtype=torch.float32)))
        nearest = f"the scheme rounds it to {number(c.t.rounded + 0.0)}"  # 0 for -0
        said = f"is a tie: {_how_ties(c)}, not {integer}" if tie else f"{verb} {integer}; {nearest}"
        yield c.fit(integer + offset), f"{number(v)} {said}."
        if integer + offset not in (c.fit(integer + offset), c.t.shifted):
            code = number(integer + offset)
            yield integer + offset, f"{number(v)} {said}. And {code} is outside {c.fmt.qmin}..{c.fmt.qmax}."

    return values


def _how_ties(c: Cell) -> str:
    """Say where the scheme rounds a tie."""
    rule = c.t.scheme.convention.coding.rounding
    if rule.startswith("half_even"):
        return f"it is rounded to the even integer, {number(c.t.rounded + 0.0)}"
    return f"the scheme rounds it to {number(c.t.rounded + 0.0)}"


def _low_rounded(rule: Callable[[float], int]) -> Callable[[Cell], Values]:
    """Return the zero point with low / s rounded in one direction."""
    return lambda c: [(
        c.fmt.qmin - rule(c.steps),
        f"{before_rounding(c.steps)} was rounded to {rule(c.steps)}. {c.how_zero_point}",
    )] if c.of_low else ()  # fmt: skip


ROUNDING = (
    Mistake(
        "toward_zero", "rounding", ("mistakes", "truncated"),
        InAnswers("rounding", 50, _rounded("toward_zero", "was truncated to")),
        InCodes(
            8, "rounded toward zero", "Values are rounded toward zero", choices={"rounding": "toward_zero"}
        ),
        InSource(
            "Truncated instead of rounded", "{how}, so the error is up to one step instead of half a step.",
            "Round to nearest first: torch.round(…) or np.rint(…).", "round",
            kind="truncated",
        ),
        (WorkedCase(
            "truncated", 15, "Truncated instead of rounded",
            "Compare |x| with |x̂|.",
            "A cast to an integer drops the fraction: x̂ is never farther from 0 than x, and errors come "
            "close to a full step instead of half a step.",
            "Call torch.round before the cast.",
            truncated, rounded, tensors.NEAR_TIES, INT4,
        ),),
    ),
    Mistake(
        "packed_signs", "overflow", ("mistakes", "clamp-of-another-type"),
        in_source=InSource(
            "Negative codes packed with their sign",
            "Codes as low as {low} are combined by | without a mask: the sign of a negative code is 1 in all "
            "higher bits, so it overwrites the code above it ({lost} of the bytes on the tensors tried).",
            "Keep the lower {bits} bits first: codes & {mask}.",
        ),
    ),
    Mistake(
        "decimals", "rounding", ("mistakes", "truncated"),
        in_source=InSource(
            "Codes rounded to decimals",
            "{name} keeps decimals here: it gives codes such as {code}, which no integer type holds.",
            "Round to integers: leave the number of decimals out.", "round",
        ),
    ),
    Mistake(
        "signs_lost", "rounding", ("mistakes", "negatives-lost"),
        in_source=InSource(
            "Signs lost",
            "Absolute values are quantized, and nothing gives the signs back: {lost} of the values on the "
            "tensors tried come back positive instead of negative.",
            "Multiply the dequantized values by the sign of x, or quantize x itself with signed codes.",
        ),
    ),
    Mistake(
        "not_nearest", "rounding", ("mistakes", "truncated"),
        in_source=InSource(
            "Not the nearest value of the table",
            "{how}: {lost} of the codes on the tensors tried stand for a value that is not the nearest one.",
            "Let the boundaries be the midpoints, (table[1:] + table[:-1]) / 2, or take the argmin of "
            "|x / scale - table|.",
        ),
    ),
    Mistake(
        "floor", "rounding", ("scale", "code"),
        InAnswers(
            "rounding", 60, _rounded("floor", "was rounded down to"), zero_point=_low_rounded(math.floor)
        ),
        InCodes(9, "rounded down", "Values are rounded down", choices={"rounding": "floor"}),
    ),
    Mistake(
        "ceil", "rounding", ("scale", "code"),
        InAnswers("rounding", 70, _rounded("ceil", "was rounded up to"), zero_point=_low_rounded(math.ceil)),
    ),
    Mistake(
        "half_away", "rounding", ("scale", "code"),
        InAnswers("rounding", 80, _rounded("half_away")),
        InCodes(
            6, "ties rounded away from zero", "Ties are rounded away from zero",
            choices={"rounding": "half_away"},
        ),
    ),
    Mistake(
        "half_up", "rounding", ("scale", "code"),
        InAnswers("rounding", 90, _rounded("half_up")),
        InCodes(7, "ties rounded up", "Ties are rounded up", choices={"rounding": "half_up"}),
    ),
)  # fmt: skip

QUOTIENTS = (
    Mistake(
        "sign_of_x", "x", ("scale", "code"),
        InAnswers("sign of x", 180, lambda c: [
            (c.code(-c.t.quotient), f"The sign is wrong: x is {number(c.t.x)}.")
        ]),
    ),
    Mistake(
        "multiplied", "x", ("scale", "code"),
        InAnswers("multiplied", 190, lambda c: [(
            c.code(c.t.x * c.t.scale),
            f"x was multiplied by s; it must be divided: {number(c.t.x)} / {number(c.t.scale)}.",
        )]),
        in_source=InSource(
            "Multiplied instead of divided",
            "{how}; codes count steps of the scale, so x is divided by it and the codes are multiplied by "
            "it.",
            "Quantize with torch.round(x / scale), dequantize with codes * scale.", "scale",
        ),
    ),
    Mistake(
        "not_scaled", "x", ("scale", "code"),
        InAnswers("not scaled", 200, lambda c: [
            (c.code(c.t.x), f"x was not divided by the scale {number(c.t.scale)}.")
        ]),
    ),
    Mistake(
        "quantized_twice", "x", ("mistakes", "quantized-twice"),
        in_codes=InCodes(
            15, "quantized twice, to 8 bits first", "The values were quantized twice, to 8 bits first",
            "late", step=("x", lambda fmt: CLAMP(_NEAREST(Name("x") / _S8), -128, 127) * _S8),
        ),
        in_source=InSource(
            "Quantized twice",
            "This tensor was already quantized and dequantized (line {before}): rounding twice can move a "
            "value by more than half a step.",
            "Quantize the original tensor once.",
        ),
        cases=(WorkedCase(
            "quantized-twice", 14, "Quantized twice",
            "Which errors are larger than half a step?",
            "The 4-bit codes are computed from 8-bit codes: the first rounding can move a value across the "
            "midpoint between two codes, and the second then picks the farther one. That error exceeds half "
            "a step; a single rounding's never does.",
            "Quantize the original values, once.",
            eight_bits_then_four, four_bits_at_once, tensors.NEAR_TIES, INT4,
        ),),
    ),
    Mistake(
        "clamp_in_place", "x", ("mistakes", "clamp-in-place"),
        in_source=InSource(
            "Input modified in place",
            "{what} modifies the caller's tensor: an error computed afterwards is measured against the "
            "changed tensor.",
            "Use the operation that returns a new tensor, such as clamp without an underscore.",
        ),
        cases=(WorkedCase(
            "clamp-in-place", 13, "A clamp that changes its input",
            "x̂ is the same with and without the mistake. Is the error?",
            "clamp_ with an underscore writes into the caller's tensor. The error computed afterwards is "
            "measured against the clipped tensor, so the clipping error is missing.",
            "clamp without an underscore returns a new tensor.",
            clamp_in_place, clamp_a_copy, tensors.TWELVE_UNPUBLISHED,
        ),),
    ),
)  # fmt: skip

OVERFLOW = (
    Mistake(
        "wrapped", "overflow", ("mistakes", "cast-without-clamp"),
        InAnswers("wrapped", 140, lambda c: [
            (
                c.wrapped(c.t.shifted),
                f"{c.outside}. This scheme clamps it to {number(c.clamped(c.t.shifted))}; it does not wrap.",
            ),
            (
                c.t.code + c.count * (c.t.code < 0),
                f"That is its bits read without a sign; less 2^{c.fmt.bits} = {c.count}, it is {c.t.code}.",
            ),
        ] if c.finite else ()),
        InCodes(
            1, "cast without a clamp: codes out of range wrapped around",
            "The cast has no clamp: codes out of range wrap around", choices={"overflow": "wrap"},
        ),
        InSource(
            "Cast without a clamp",
            "Nothing clamps the codes before the cast to {dtype}, which holds {limits}: {why}.",
            "Clamp to {limits} before the cast.", "cast",
            kind="cast-without-clamp",
        ),
        (WorkedCase(
            "cast-without-clamp", 8, "A cast without a clamp",
            "The range is -1.5..1.5. What happens to values outside it?",
            "A value outside the range needs a code outside int8, and the cast keeps only its lowest 8 "
            "bits: instead of being clipped to the range, the value lands anywhere in it, often with the "
            "opposite sign.",
            "Clamp to -128..127 before the cast: the value is clipped to the end of the range.",
            cast_without_clamp, clamp_before_cast, tensors.TWELVE_UNPUBLISHED,
        ),),
    ),
    Mistake(
        "unclamped", "overflow", ("mistakes", "cast-without-clamp"),
        InAnswers(
            "not clamped", 130,
            code=lambda c: [
                (c.t.shifted, f"{c.outside}, so the code must be {c.t.code}.")
            ] if c.finite else (),
            zero_point=lambda c: [
                (c.fmt.qmin - round(c.steps), f"It is clamped to {c.fmt.qmin}..{c.fmt.qmax}.")
            ] if c.of_low else (),
        ),
        InCodes(
            11, "not clamped: codes outside the format kept",
            "Codes are not clamped: some lie outside the format", "late", step=("q", lambda fmt: Name("v")),
        ),
    ),
    Mistake(
        "saturated", "overflow", ("scale", "range"),
        InAnswers("clamped", 150, lambda c: [(
            c.clamped(c.t.shifted), f"{c.outside}. This scheme wraps it to {number(c.wrapped(c.t.shifted))}."
        )] if c.finite else ()),
    ),
    Mistake(
        "narrow", "overflow", ("scale", "range"),
        InAnswers("narrow range", 290, lambda c: [(
            max(c.clamped(c.t.shifted), c.fmt.qmin + 1),
            f"The narrow range leaves out the lowest code, {c.fmt.qmin}; {c.fmt} has it.",
        )] if c.finite and c.fmt.signed and c.symmetric else ()),
        InCodes(
            2, "clamped to the narrow range", "Codes are clamped to the narrow range",
            step=("q", lambda fmt: CLAMP(Name("v"), fmt.qmin + 1, fmt.qmax)),
        ),
    ),
    Mistake(
        "other_format", "overflow", ("mistakes", "clamp-of-another-type"),
        InAnswers(
            "codes of another format", 170,
            code=lambda c: [(
                min(max(c.t.shifted, c.other.qmin), c.other.qmax),
                f"That is clamped to {c.other.qmin}..{c.other.qmax}, the codes of {c.other}; "
                f"the codes of {c.fmt} are {c.fmt.qmin}..{c.fmt.qmax}.",
            )] if c.finite else (),
            scale=lambda c: [
                (s, f"{c.fmt} has the codes {c.fmt.qmin}..{c.fmt.qmax}.")
                for s in c.scale_with(c.elements, format=c.other)
            ],
            zero_point=lambda c: [(
                c.t.zero_point + c.other.qmin - c.fmt.qmin,
                f"That is the zero point of {c.other}. {c.how_zero_point}",
            )] if c.has_steps else (),
        ),
        in_source=InSource(
            "Clamp bounds of another type",
            "The clamp{clamp} keeps {kept}, but {dtype} holds {limits}: codes outside that range wrap "
            "around in the cast{cast}.",
            "{fix} to {limits}.",
            kind="clamp-bounds",
        ),
        cases=(WorkedCase(
            "clamp-of-another-type", 4, "Clamped to 0..255, stored as int8",
            "Compare x with x̂: which values changed sign?",
            "The clamp is for uint8, the cast is to int8: every code above 127 wraps to code - 256.",
            "Clamp and cast must agree on the type; here it is uint8.",
            clamp_to_bytes_cast_to_int8, clamp_to_bytes_cast_to_uint8, tensors.GIVEN_PARAMETERS,
        ),),
    ),
    Mistake(
        "cast_before_clamp", "overflow", ("mistakes", "cast-without-clamp"),
        in_source=InSource(
            "Cast before the clamp",
            "The cast to {dtype} comes before the clamp{clamp}: codes outside {limits} wrap around in the "
            "cast, and the clamp no longer sees them{why}.",
            "Clamp first, then cast.",
            kind="cast-without-clamp",
        ),
    ),
    Mistake(
        "zero_point_after_clamp", "overflow", ("mistakes", "cast-without-clamp"),
        in_source=InSource(
            "Zero point added after the clamp",
            "The zero point is added after the clamp{clamp}, which therefore clips x / scale instead of the "
            "codes, and nothing keeps the sum in {limits} before its cast to {dtype}.",
            "Add the zero point first, then clamp, then cast.", "late",
        ),
    ),
)  # fmt: skip
