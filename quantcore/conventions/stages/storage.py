"""How scales are stored, and which scale the codes are computed with."""

from dataclasses import dataclass
from typing import Literal

from quantcore.conventions.choice import Case, Stage, choice, exactly

_KIND = "stored scale"


def _quantize_with(case: Case) -> str:
    if case.rules.storage.quantize_with == "searched":
        return "codes are chosen by the search, not computed with the stored scale"
    if case.rules.storage.quantize_with == "levels":
        return "codes are computed with the scale's code times the scale of the scales before it is stored"
    what = "scale and min before they are" if case.rules.zero_point.is_min else "the scale before it is"
    return f"codes are computed with {what} stored"


@dataclass(frozen=True)
class StorageStage(Stage):
    """How scales are stored.

    ==============  ================================================================================================
    quantize_with   codes are computed with the parameters "stored" · "raw" before they are stored · "levels" the
                    scale's code times the scale of the scales before it is stored · "searched" not computed, but
                    chosen by the range setting's search
    zero_scale      for a stored scale of 0: "zero_codes" every code is that of 0 · "kept" x is divided by 0 ·
                    "searched" the codes that the search chose, or the lowest if the scale of the scales is 0
    e8m0_min_as     the divisor of x for a stored scale of 2^-127; 0: the scale itself
    min_divisor     the smallest divisor of x
    ==============  ================================================================================================
    """

    ALTERS = "codes"

    quantize_with: Literal["stored", "raw", "levels", "searched"] = choice(
        "stored",
        "whether codes use the scale before or after it is stored",
        _quantize_with,
        lambda case: (
            case.rules.storage.quantize_with == "searched"
            or (case.stored is not None and not case.stored_exactly)
        ),
        _KIND,
    )
    zero_scale: Literal["zero_codes", "kept", "searched"] = choice(
        "zero_codes",
        "how a stored scale of 0 is handled",
        {
            "kept": "x is divided by a scale of 0 like by any other: 0 / 0 is NaN",
            "searched": "where the scale is stored as 0, the search's codes are used",
        },
        lambda case: case.stored is not None and case.rules.scale.inverse == "of_scale",
        "scale of 0",
    )
    e8m0_min_as: float = choice(
        0.0,
        "what x is divided by for a scale of 2^-127",
        lambda case: f"where the scale is 2^-127, x is divided by {exactly(case.rules.storage.e8m0_min_as)}",
        lambda case: case.may_be_least,
        _KIND,
    )
    min_divisor: float = choice(
        0.0,
        "the smallest divisor of x",
        lambda case: f"x is divided by {exactly(case.rules.storage.min_divisor)} where the scale is smaller",
        lambda case: case.ranged or case.smallest_given < case.rules.storage.min_divisor,
        _KIND,
    )
