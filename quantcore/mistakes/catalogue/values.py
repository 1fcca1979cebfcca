"""Mistakes in dequantizing, which no code shows."""

import torch
from torch import Tensor

from quantcore.formats import UINT8
from quantcore.mistakes import tensors
from quantcore.mistakes.record import InSource, Mistake, Parts, WorkedCase

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
_DEQUANTIZE = "Dequantize with (codes - zero_point) * scale."

VALUES = (
    Mistake(
        "zero_point_forgotten", "value", ("mistakes", "zero-point-forgotten"),
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
        "dequantize_overflow", "value", ("zero_point", ""),
        in_source=InSource(
            "q - z overflows the codes' type",
            "codes - zero_point is computed in {dtype}, which has {bits} bits: differences that it does not "
            "hold wrap around.",
            "Convert first: (codes.float() - zero_point) * scale.",
        ),
    ),
)  # fmt: skip
