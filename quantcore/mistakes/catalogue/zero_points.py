"""Mistakes in the zero point, up to the code."""

from collections.abc import Callable

import torch
from torch import Tensor

from quantcore.expressions import NEGATIVE, Name, Number
from quantcore.formats import UINT8
from quantcore.mistakes import tensors
from quantcore.mistakes.cell import Cell
from quantcore.mistakes.record import InAnswers, InCodes, InSource, Mistake, Parts, Values, WorkedCase
from quantcore.tracing import number, signed

# ruff: noqa: D103 (the cases say what the code that they show does)


def asymmetric_scale_then_cast(x: Tensor) -> Parts:
    scale = (x.max() - x.min()) / 255
    codes = torch.round(x / scale)
    codes = codes.int().to(torch.int8)
    return codes, scale, codes * scale


def symmetric_scale_then_cast(x: Tensor) -> Parts:
    scale = x.abs().max() / 127
    codes = torch.round(x / scale)
    codes = codes.int().to(torch.int8)
    return codes, scale, codes * scale


def asymmetric_scale_per_column(x: Tensor) -> Parts:
    scale = (x.amax(dim=0) - x.amin(dim=0)) / 255
    codes = torch.round(x / scale)
    codes = codes.int().to(torch.int8)
    return codes, scale, codes * scale


def symmetric_scale_per_column(x: Tensor) -> Parts:
    scale = x.abs().amax(dim=0) / 127
    codes = torch.round(x / scale)
    codes = codes.int().to(torch.int8)
    return codes, scale, codes * scale


def asymmetric_scale_per_half(x: Tensor) -> Parts:
    halves = x.chunk(2, dim=1)
    ranges = [h.max() - h.min() for h in halves]
    pairs = zip(ranges, halves, strict=True)
    wide = [r.expand_as(h) for r, h in pairs]
    scale = torch.cat(wide, dim=1) / 255
    codes = torch.round(x / scale)
    codes = codes.int().to(torch.int8)
    return codes, scale, codes * scale


def symmetric_scale_per_half(x: Tensor) -> Parts:
    halves = x.chunk(2, dim=1)
    ranges = [h.abs().max() for h in halves]
    pairs = zip(ranges, halves, strict=True)
    wide = [r.expand_as(h) for r, h in pairs]
    scale = torch.cat(wide, dim=1) / 127
    codes = torch.round(x / scale)
    codes = codes.int().to(torch.int8)
    return codes, scale, codes * scale


def zero_point_left_at_zero(x: Tensor) -> Parts:
    scale = (x.max() - x.min()) / 255
    zero_point = 0
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(-128, 127).to(torch.int8)
    x_hat = (codes.float() - zero_point) * scale
    return codes, scale, x_hat


def zero_point_from_the_range(x: Tensor) -> Parts:
    scale = (x.max() - x.min()) / 255
    zero_point = -128 - torch.round(x.min() / scale)
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(-128, 127).to(torch.int8)
    x_hat = (codes.float() - zero_point) * scale
    return codes, scale, x_hat


def unsigned_without_middle(x: Tensor) -> Parts:
    scale = x.abs().max() / 128
    zero_point = 0
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(0, 255).to(torch.uint8)
    x_hat = (codes.float() - zero_point) * scale
    return codes, scale, x_hat


def unsigned_around_middle(x: Tensor) -> Parts:
    scale = x.abs().max() / 128
    zero_point = 128
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(0, 255).to(torch.uint8)
    x_hat = (codes.float() - zero_point) * scale
    return codes, scale, x_hat


def _shifted_by(
    factor: float, said: str, holds: Callable[[Cell], bool] = lambda c: True
) -> Callable[[Cell], Values]:
    """Return the code with a multiple of the zero point; whoever errs so may leave out the clamp too."""

    def values(c: Cell) -> Values:
        if not c.t.zero_point or not holds(c):
            return
        z = signed(c.t.zero_point)
        without = c.nearest + factor * c.t.zero_point
        for code in (c.fit(without), without):
            yield code, f"The zero point {z} {said}: {number(c.nearest)} + {z}."
        if c.wrapped(without) not in (without, c.fit(without)):
            more = f"The zero point {z} {said}: {number(c.nearest)} + {z}. And {number(without)} was wrapped."
            yield c.wrapped(without), more

    return values


ZERO_POINTS = (
    Mistake(
        "zero_point_negated", "zero point", ("zero_point", ""),
        InAnswers(
            "sign of zero point", 100,
            code=_shifted_by(-1.0, "was subtracted; it must be added"),
            zero_point=lambda c: [
                (-c.t.zero_point, f"The sign is wrong. {c.how_zero_point}")
            ] if c.has_steps else (),
        ),
        InCodes(
            3, "zero_point with the opposite sign", "The zero point has the opposite sign",
            step=("z", lambda fmt: NEGATIVE(Name("z"))),
        ),
    ),
    Mistake(
        "zero_point_left_out", "zero point", ("mistakes", "zero-point-left-at-zero"),
        InAnswers("zero point forgotten", 110, _shifted_by(0.0, "is missing", lambda c: not c.symmetric)),
        InCodes(
            4, "asymmetric scale, zero_point omitted",
            "The scale is asymmetric, but the zero point is omitted",
            symmetric=False, step=("z", lambda fmt: Number(0.0)),
        ),
        InSource(
            "Asymmetric scale without a zero point",
            "{scale} is the step of an asymmetric range, but the zero point is {zero}: codes run from "
            "min/scale to max/scale instead of covering the codes of the type.",
            "Add the zero point {from_low}round(min / scale), or use max|x| with a symmetric scale.", "zero",
        ),
        (
            WorkedCase(
                "wraps-per-tensor", 1, "Asymmetric scale, zero point 0, no clamp",
                "Look at the largest values: which of them kept their sign?",
                "(max - min) / 255 covers the range only together with its zero point. With zero point 0 "
                "the largest value needs a code above 127, and the cast to int8 keeps only its lowest 8 "
                "bits: 129, for example, becomes -127.",
                "Symmetric codes need the scale max|x| / 127: then no code exceeds ±127.",
                asymmetric_scale_then_cast, symmetric_scale_then_cast, tensors.EXERCISE,
            ),
            WorkedCase(
                "wraps-per-column", 2, "The same with one scale per column",
                "Look at the columns whose values are mostly of one sign.",
                "A column that is not centered on 0 has a small max - min, so its largest values need codes "
                "far above 127. The error can even be larger than with one scale for the tensor.",
                "Use the scale max|column| / 127 for each column.",
                asymmetric_scale_per_column, symmetric_scale_per_column, tensors.EXERCISE,
            ),
            WorkedCase(
                "wraps-per-group", 3, "The same with one scale per half of the columns",
                "Compare the signs of x and x̂.",
                "Each half of the columns has its own (max - min) / 255, but zero point 0; values beyond 127 "
                "steps wrap.",
                "Use the scale max|half| / 127 for each half of the columns.",
                asymmetric_scale_per_half, symmetric_scale_per_half, tensors.EXERCISE,
            ),
            WorkedCase(
                "zero-point-left-at-zero", 9, "Asymmetric scale, zero point 0",
                "Which codes are never used, and which too often?",
                "(max - min) / 255 is the step of an asymmetric grid, but with zero point 0 the codes "
                "-128..127 are centered on 0. For values from 0 to 6, for example, the upper half is "
                "clipped, and half of the codes are never used.",
                "zero_point = -128 - round(min / scale) shifts the codes onto the range.",
                zero_point_left_at_zero, zero_point_from_the_range, tensors.ONE_SIDED,
            ),
        ),
    ),
    Mistake(
        "middle_left_out", "zero point", ("mistakes", "negatives-lost"),
        InAnswers("zero point forgotten", 120, _shifted_by(0.0, "is missing", lambda c: c.symmetric)),
        InCodes(
            5, "unsigned codes for a symmetric range, zero_point omitted",
            "The codes are unsigned, but the zero point that shifts a symmetric range is omitted",
            symmetric=True, step=("z", lambda fmt: Number(0.0)),
        ),
        InSource(
            "Unsigned codes without a zero point",
            "No code in {codes} lies below the zero point {zero}: every negative value becomes {zero}.",
            "Use zero point {middle} with {extreme} / {rest}, or signed codes.", "zero",
            kind="negatives-lost",
        ),
        (WorkedCase(
            "negatives-lost", 7, "Unsigned codes around 0",
            "Look at the values below 0.",
            "With codes 0..255 and zero point 0, no code is left for negative values: they all become 0, as "
            "after a ReLU.",
            "Zero point 128 puts 0 in the middle of the unsigned codes.",
            unsigned_without_middle, unsigned_around_middle, tensors.RANDN, UINT8,
        ),),
    ),
    Mistake(
        "counted_from_zero", "zero point", ("zero_point", "symmetric"),
        InAnswers("counted from 0", 175, code=lambda c: [(
            c.t.code - c.fmt.qmin,
            f"That is q - qmin; the codes of {c.fmt} begin at {c.fmt.qmin}, not at 0.",
        )]),
    ),
    Mistake(
        "lowest_code_forgotten", "zero point", ("zero_point", "asymmetric"),
        InAnswers("lowest code forgotten", 160, zero_point=lambda c: [
            (sign * round(c.steps), f"low must get the lowest code, {c.fmt.qmin}. {c.how_zero_point}")
            for sign in (-1, 1)
        ] if c.has_steps else ()),
    ),
    Mistake(
        "zero_point_range", "zero point", ("zero_point", ""),
        in_source=InSource(
            "Zero point for another code range",
            "With this zero point, min(x) gets the code {got}, but the codes begin at {low}: it is meant "
            "for a code range other than {codes}.",
            "Use zero_point = {from_low}round(min / scale).", "zero",
        ),
    ),
    Mistake(
        "zero_point_not_rounded", "zero point", ("zero_point", "zero"),
        in_source=InSource(
            "Zero point not rounded",
            "The zero point is not an integer, and its fraction is cut off {where}, which shifts the range "
            "by up to one step.",
            "Round the zero point: round(…).", "zero",
        ),
    ),
    Mistake(
        "zero_point_not_clamped", "zero point", ("zero_point", "zero"),
        in_source=InSource(
            "Zero point may overflow its type",
            "If all values of x have the same sign, the zero point can lie outside {dtype} and wrap around "
            "in the cast.",
            "Let the range include 0, or clamp the zero point.", certain=False,
        ),
    ),
    Mistake(
        "fractional_codes", "zero point", ("zero_point", "zero"),
        in_source=InSource(
            "Codes that are not integers",
            "A zero point that is not an integer is added after rounding: it gives codes such as {code}, "
            "which no integer type holds.",
            "Round the zero point: round(…).", "zero",
        ),
    ),
    Mistake(
        "zero_point_clamped", "zero point", ("zero_point", "zero"),
        in_source=InSource(
            "Zero point clamped, range without 0",
            "If min and max have the same sign, the zero point lies outside the codes {codes} and is "
            "clamped: for values from {given} it is {got} instead of {want}, and they come back as {back}.",
            "Let the range include 0: min(x.min(), 0) and max(x.max(), 0).",
        ),
    ),
    Mistake(
        "float_zero_point", "zero point", ("zero_point", "zero"),
        in_source=InSource(
            "Floating-point zero point",
            "The zero point stays a float, as in HQQ, so there may be no code for exactly 0.",
            "Round it if 0 must be exact.", certain=False,
        ),
    ),
)  # fmt: skip
