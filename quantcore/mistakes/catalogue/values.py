"""Mistakes in dequantizing, which no code shows."""

from collections.abc import Callable

import torch
from torch import Tensor

from quantcore.formats import UINT8
from quantcore.mistakes import tensors
from quantcore.mistakes.cell import Cell
from quantcore.mistakes.record import InAnswers, InSource, Mistake, Parts, Values, WorkedCase
from quantcore.tracing import number, signed

# ruff: noqa: D103 (the cases say what the code that they show does)


def zero_point_forgotten(x: Tensor) -> Parts:
    scale = (x.max() - x.min()) / 255
    zero_point = torch.round(-x.min() / scale)
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(0, 255).to(torch.uint8)
    x_hat = codes.float() * scale
    return codes, scale, x_hat


def zero_point_added(x: Tensor) -> Parts:
    scale = (x.max() - x.min()) / 255
    zero_point = torch.round(-x.min() / scale)
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(0, 255).to(torch.uint8)
    x_hat = (codes.float() + zero_point) * scale
    return codes, scale, x_hat


def zero_point_after_scale(x: Tensor) -> Parts:
    scale = (x.max() - x.min()) / 255
    zero_point = torch.round(-x.min() / scale)
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(0, 255).to(torch.uint8)
    x_hat = codes.float() * scale - zero_point
    return codes, scale, x_hat


def zero_point_subtracted(x: Tensor) -> Parts:
    scale = (x.max() - x.min()) / 255
    zero_point = torch.round(-x.min() / scale)
    codes = torch.round(x / scale) + zero_point
    codes = codes.clamp(0, 255).to(torch.uint8)
    x_hat = (codes.float() - zero_point) * scale
    return codes, scale, x_hat


_LINEAR = "(q - z) · s undoes round(x / s) + z: subtract z first, then multiply by s."
_BACK = "x̂ is (q - z) · s."
_DEQUANTIZE = "Dequantize with (codes - zero_point) * scale."


def _dequantized(value: Callable[[Cell], float], said: str) -> Callable[[Cell], Values]:
    """Return a wrong value of a code whose zero point is not 0."""
    return lambda c: [
        (value(c), f"{said.format(z=signed(c.t.zero_point), q=c.t.code)} {_BACK}")
    ] if c.t.zero_point else ()  # fmt: skip


VALUES = (
    Mistake(
        "zero_point_forgotten", "value", ("mistakes", "zero-point-forgotten"),
        InAnswers("zero point forgotten", 310, value=_dequantized(
            lambda c: c.t.code * c.t.scale, "The zero point {z} was not subtracted from the code {q}."
        )),
        in_source=InSource(
            "Zero point not subtracted when dequantizing",
            "The codes include the zero point, but dequantizing does not subtract it: every value is too "
            "large by zero_point · scale.",
            _DEQUANTIZE,
        ),
        cases=(WorkedCase(
            "zero-point-forgotten", 10, "Zero point forgotten in dequantization",
            "Is the error the same everywhere?",
            "The codes are correct, but x̂ = q · s makes every value too large by zero_point · s.",
            _LINEAR, zero_point_forgotten, zero_point_subtracted, tensors.TWO_SIDED, UINT8,
        ),),
    ),
    Mistake(
        "zero_point_added", "value", ("mistakes", "zero-point-added"),
        InAnswers("sign of zero point", 320, value=_dequantized(
            lambda c: (c.t.code + c.t.zero_point) * c.t.scale,
            "The zero point {z} was added to the code {q}; it must be subtracted.",
        )),
        in_source=InSource(
            "Zero point added when dequantizing",
            "The codes already include the zero point, and dequantizing adds it again: every value is too "
            "large by 2 · zero_point · scale.",
            _DEQUANTIZE,
        ),
        cases=(WorkedCase(
            "zero-point-added", 11, "Dequantized with the wrong sign of the zero point",
            "Is the error the same everywhere?",
            "(q + z) · s shifts in the same direction a second time: every value is too large by 2 · "
            "zero_point · s. Libraries that store offset = -z do add it; do not use their offset as a zero "
            "point.",
            _LINEAR, zero_point_added, zero_point_subtracted, tensors.TWO_SIDED, UINT8,
        ),),
    ),
    Mistake(
        "zero_point_after_scale", "value", ("mistakes", "zero-point-after-scale"),
        InAnswers("zero point after scaling", 330, value=_dequantized(
            lambda c: c.t.code * c.t.scale - c.t.zero_point,
            "The zero point {z} counts codes: subtract it from {q} before multiplying by the scale.",
        )),
        in_source=InSource(
            "Zero point subtracted after scaling",
            "The zero point is in units of codes, but is subtracted after scaling, in units of x.",
            _DEQUANTIZE,
        ),
        cases=(WorkedCase(
            "zero-point-after-scale", 12, "Dequantized in the wrong order",
            "By how much are the values off, in units of x?",
            "q · s is in units of x, but z counts codes: every value is off by z · (1 - s). With zero point "
            "0 nobody notices.",
            _LINEAR, zero_point_after_scale, zero_point_subtracted, tensors.TWO_SIDED, UINT8,
        ),),
    ),
    Mistake(
        "zero_point_not_added", "value", ("mistakes", "zero-point-forgotten"),
        in_source=InSource(
            "Zero point subtracted but never added",
            "Dequantizing subtracts a zero point that was never added to the codes.",
            "Add the zero point after rounding: round(x / scale) + zero_point.",
        ),
    ),
    Mistake(
        "not_undone", "value", ("scale", "back"),
        in_source=InSource(
            "Dequantizing does not undo quantizing",
            "The dequantized values are off by up to {off} steps of the scale on the tensors tried: {how}.",
            "Dequantize with {way}.",
        ),
    ),
    Mistake(
        "other_values", "value", ("scale", "back"),
        in_source=InSource(
            "Codes looked up in another table",
            "The codes do not come back as the values that they were chosen for: {how}.",
            "Look each code up in the table that it was chosen from: table[codes] * scale.",
        ),
    ),
    Mistake(
        "table_differs", "value", ("scale", "back"),
        in_source=InSource(
            "A table that is almost a known one",
            "The table has {same} of the {size} values of {name}; at place {place}, it has {got} instead of "
            "{want}.",
            "Check the table against its source, if it is meant to be {name}.", certain=False,
        ),
    ),
    Mistake(
        "code_for_value", "value", ("scale", "back"),
        InAnswers("code instead of value", 300, value=lambda c: [
            (c.t.code, f"That is the code: {_BACK}"),
            (c.t.code - c.t.zero_point, f"That is q - z, in steps: {_BACK}"),
        ]),
    ),
    Mistake(
        "value_not_rounded", "value", ("scale", "back"),
        InAnswers("not rounded", 340, value=lambda c: [
            (c.t.x, f"That is x; its code stands for {number(c.t.dequantized)}.")
        ]),
    ),
    Mistake(
        "error_negated", "value", ("error", ""),
        InAnswers("sign of the error", 350, error=lambda c: [
            (-c.t.error, "That is x̂ - x; the error is x - x̂.")
        ]),
    ),
    Mistake(
        "error_in_steps", "value", ("error", ""),
        InAnswers("in steps", 360, error=lambda c: [
            (c.t.error / c.t.scale, "That is the error in steps of the scale; multiply it by s.")
        ] if c.t.scale else ()),
    ),
    Mistake(
        "parameters_not_counted", "value", ("granularity", "cost"),
        InAnswers("parameters not counted", 370, bits=lambda c: [
            (c.fmt.bits, "That counts the codes alone; the scales and zero points take room too."),
            (c.bits_without_zero_points, "That leaves out the zero points."),
            (c.bits_with_half_scales, "That takes half as many bits per scale as are given."),
        ]),
    ),
    Mistake(
        "dequantize_overflow", "value", ("zero_point", ""),
        in_source=InSource(
            "q - z overflows the codes' type",
            "codes - zero_point is computed in {dtype}, which has {bits} bits: differences that it does not "
            "hold wrap around.",
            "Convert first: (codes.float() - zero_point) * scale.",
        ),
    ),
)  # fmt: skip
