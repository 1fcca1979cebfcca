"""hqq: 1/s comes first, from the range, and is bounded; the zero point is a float."""

from collections.abc import Iterator

import torch

from quantcore.conventions import (
    HIGH,
    INVERSE,
    INVERSE_OF_RANGE,
    LARGEST_INVERSE,
    LOW,
    NARROW,
    ZERO_POINTS,
)
from quantcore.expressions import AT_MOST, LESS, MAGNITUDE, NEGATIVE, Number, Where
from quantcore.programs.record import ProgramLine


def scales(dtype: torch.dtype) -> Iterator[ProgramLine]:
    """Compute 1/s, then s."""
    narrow = AT_MOST(MAGNITUDE(HIGH - LOW), NARROW)
    found = Where(narrow, 1, Number(1.0), INVERSE_OF_RANGE, f"since high - low is at most {NARROW:g}")
    yield ProgramLine(
        "1/s", found, dtype, "1/s is computed from the range, before s", "hqq/core/quantize.py:127-130"
    )
    most = Where(
        LESS(Number(LARGEST_INVERSE), INVERSE), 1, Number(LARGEST_INVERSE), INVERSE, "the maximum of 1/s"
    )
    yield ProgramLine("1/s", most, dtype, "1/s stays within float16", "hqq/core/quantize.py:127-130")
    yield ProgramLine("raw", Number(1.0) / INVERSE, dtype, "s is the inverse of 1/s")


def zero_point(form: str, dtype: torch.dtype) -> Iterator[ProgramLine]:
    """Compute the zero point, not rounded, or rounded and not clamped."""
    yield ProgramLine("-low", NEGATIVE(LOW), dtype)
    yield ProgramLine(
        "z", ZERO_POINTS[form], dtype, "the zero point is a float", "hqq/core/quantize.py:131-135"
    )
