"""How scales are stored, and what codes are found with once they are."""

from dataclasses import dataclass
from typing import Literal

from quantcore.conventions.case import Case, exactly
from quantcore.conventions.choice import Stage, choice

_KIND = "stored scale"


def _quantize_with(case: Case) -> str:
    what = "scale and min before they are" if case.rules.zero_point.is_min else "the scale before it is"
    return f"codes are found with {what} stored"


@dataclass(frozen=True)
class StorageStage(Stage):
    """How scales are stored.

    ==============  ================================================================================================
    quantize_with   "stored" codes are found with the parameters as they are stored · "raw" with what they were before
    zero_scale      where a stored scale is 0: "zero_codes" every code is that of 0 · "kept" x is divided by it
    e8m0_min_as     what a stored scale of 2^-127 counts as when x is divided by it; 0: itself
    min_divisor     what smaller scales count as when x is divided by them
    ==============  ================================================================================================
    """

    ALTERS = "codes"

    quantize_with: Literal["stored", "raw"] = choice(
        "stored",
        "with the scale before or after it is stored",
        _quantize_with,
        lambda case: case.stored is not None and not case.stored_exactly,
        _KIND,
    )
    zero_scale: Literal["zero_codes", "kept"] = choice(
        "zero_codes",
        "where the stored scale is 0",
        {"kept": "a scale of 0 divides like any other: 0 / 0 is NaN"},
        lambda case: case.stored is not None and case.rules.scale.inverse == "of_scale",
        "scale of 0",
    )
    e8m0_min_as: float = choice(
        0.0,
        "what a scale of 2^-127 counts as",
        lambda case: f"where the scale is 2^-127, x is divided by {exactly(case.rules.storage.e8m0_min_as)}",
        lambda case: case.may_be_least,
        _KIND,
    )
    min_divisor: float = choice(
        0.0,
        "the least that x is divided by",
        lambda case: f"x is divided by {exactly(case.rules.storage.min_divisor)} where the scale is smaller",
        lambda case: case.ranged or case.smallest_given < case.rules.storage.min_divisor,
        _KIND,
    )
