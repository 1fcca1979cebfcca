"""Mistakes in the scale, and scales of other blocks."""

import math

import torch
from torch import Tensor

from quantcore.expressions import Name, to
from quantcore.mistakes import tensors
from quantcore.mistakes.record import InAnswers, InCodes, InSource, Mistake, Parts, WorkedCase
from quantcore.tracing import number

# ruff: noqa: D103 (the cases say what the code that they show does)


def scale_in_float16(x: Tensor) -> Parts:
    scale = x.abs().max() / 127
    scale = scale.to(torch.float16).float()
    codes = torch.round(x / scale)
    codes = codes.clamp(-128, 127).to(torch.int8)
    return codes, scale, codes * scale


def scale_in_float32(x: Tensor) -> Parts:
    scale = x.abs().max() / 127
    scale = scale.float()
    codes = torch.round(x / scale)
    codes = codes.clamp(-128, 127).to(torch.int8)
    return codes, scale, codes * scale


SCALES = (
    Mistake(
        "other_convention", "scale", ("scale", "bits"),
        InAnswers("another convention", 5, scale=lambda c: [
            (c.size / steps, f"Some libraries divide max|x| by {number(steps)}; "
                             f"this one divides it by {number(c.divisor)}.")
            for steps in (c.count // 2 - 1, (c.count - 1) / 2) if steps
        ] if c.divisor else ()),
    ),
    Mistake(
        "divisor", "scale", ("scale", "bits"),
        InAnswers(
            "divisor", 220,
            scale=lambda c: [
                (c.size / (c.count // 2), f"Divided by {c.count // 2}; the highest code is the zero point + "
                                          f"{number(c.fmt.qmax - c.t.zero_point)}."),
                (c.size / (c.count - 1), "max|x| covers half of the codes, not all of them."),
                (c.size / c.count, f"Divided by 2^{c.fmt.bits} = {c.count}, the number of codes; "
                                   "max|x| covers half of them."),
            ] if c.symmetric else [
                (c.span / c.count, f"{c.count} codes have {c.count - 1} steps between them.")
            ],
        ),
        in_source=InSource(
            "Divisor too large for the codes", "{scale} gives {reach}, but the codes are {codes}: {lost}.",
            "Divide by {most}.", "scale",
        ),
    ),
    Mistake(
        "unused_codes", "scale", ("scale", ""),
        in_source=InSource(
            "Codes left unused", "{scale} gives {reach}, though the clamp allows {codes}.",
            "Divide by {most} if all codes are meant to be used.", certain=False,
        ),
    ),
    Mistake(
        "zero_scale", "scale", ("scale", ""),
        in_source=InSource(
            "Scale can be 0", "{scale} is 0 where the range is empty, and x / 0 gives NaN or infinity.",
            "Keep the scale above 0: scale.clamp(min=1e-12) or np.maximum(scale, 1e-12).", certain=False,
        ),
    ),
    Mistake(
        "inverse", "scale", ("scale", "marks"),
        InAnswers("inverse", 260, scale=lambda c: [
            (1 / c.t.scale, "That is 1 / s, the number of steps per unit of x.")
        ] if c.t.scale else ()),
    ),
    Mistake(
        "not_divided", "scale", ("scale", "marks"),
        InAnswers("not divided", 270, scale=lambda c: [
            (value, "The range must be divided into steps.") for value in (c.size, c.span)
        ]),
    ),
    Mistake(
        "decimal_point", "scale", None,
        InAnswers("decimal point", 280, scale=lambda c: [
            (c.t.scale * factor, "The decimal point is off by one place.") for factor in (10, 0.1)
        ]),
    ),
    Mistake(
        "scale_float16", "scale", ("mistakes", "scale-in-float16"),
        in_codes=InCodes(
            12, "scale rounded to float16", "The scale is rounded to float16", "own",
            step=("s", lambda fmt: to(torch.float16)(Name("s"))),
        ),
        in_source=InSource(
            "Scale in float16",
            "The scale is cast to float16, whose smallest number above 0 is 6e-8: a scale below half of that "
            "underflows to 0.",
            "Keep scales in float32, or make sure they are large enough.", certain=False,
            kind="scale-in-float16",
        ),
        cases=(WorkedCase(
            "scale-in-float16", 16, "A scale too small for float16",
            "How many distinct codes are there?",
            "The smallest positive float16 is 6e-8. A scale below half of that becomes 0: x / 0 is "
            "infinite, the clamp turns it into 127 or -128, and x̂ = 127 · 0 is 0.",
            "Store scales in float32, or rescale the tensor first.",
            scale_in_float16, scale_in_float32, tensors.TINY,
        ),),
    ),
    Mistake(
        "whole_tensor", "block", ("granularity", "rows"),
        InAnswers("another block", 30, scale=lambda c: [
            (s, "That is the scale of the whole tensor, not of this block.") for s in c.scale_with(c.result.x)
        ]),
    ),
    Mistake(
        "other_block", "block", ("granularity", "rows"),
        InAnswers(
            "another block", 210,
            code=lambda c: [(
                c.code(c.t.x / scale if scale else math.inf, zero_point),
                f"That uses the scale {number(scale)} of block {place}; "
                f"this is block {c.t.block}, whose scale is {number(c.t.scale)}.",
            ) for place, scale, zero_point in c.blocks()],
            scale=lambda c: [(scale, "That is the scale of another block.") for _, scale, _ in c.blocks()],
        ),
    ),
    Mistake(
        "other_axis", "block", ("granularity", ""),
        in_codes=InCodes(
            10, "per-channel scales applied along the wrong axis",
            "The scales of one axis are applied along another", "own",
        ),
        in_source=InSource(
            "Scales along the wrong axis",
            "The scales of this reduction are aligned with another axis than the one they belong to: x / "
            "scale applies them along the wrong axis, or fails where the lengths differ.",
            "Keep the reduced axis: amax(dim=…, keepdim=True).", "scale",
            kind="wrong-axis",
        ),
    ),
)  # fmt: skip
