"""AIMET: narrow ranges are widened, infinite ends become finite, symmetric ranges end on a grid."""

from collections.abc import Iterator

import torch

from quantcore.conventions import HIGH, LOW, OF_RANGE, Rule
from quantcore.expressions import LESS, MAXIMUM, MINIMUM, Name, Number, Where
from quantcore.programs.record import ProgramLine

_STEP = Name("step")
_LARGEST = float(torch.finfo(torch.float32).max)


def widened(symmetric: bool, steps: int, eps: float, dtype: torch.dtype) -> Iterator[ProgramLine]:
    """Widen the range by the smallest scale for each step, on both sides if symmetric, else above."""
    above, below = (steps // 2, -(-steps // 2)) if symmetric else (steps, 0)
    why = "the range is too narrow for the smallest scale"
    yield ProgramLine("step", Where(LESS(OF_RANGE, eps), 1, Number(eps), Number(0.0)), None, why)
    yield ProgramLine("low", LOW - Number(below) * _STEP, dtype, why)
    yield ProgramLine("high", HIGH + Number(above) * _STEP, dtype, why)


def finite(dtype: torch.dtype) -> Iterator[ProgramLine]:
    """Make the ends finite."""
    why = "an infinite end becomes the largest float32"
    yield ProgramLine("low", MAXIMUM(LOW, -_LARGEST), dtype, why)
    yield ProgramLine("high", MINIMUM(HIGH, _LARGEST), dtype, why)


def on_grid(rule: Rule, dtype: torch.dtype) -> Iterator[ProgramLine]:
    """Move the ends to multiples of the step d, of which one code is 0; the scale is of the new range."""
    low, why = Name("low on the grid"), rule.note
    yield ProgramLine(low.name, rule.low, dtype, why)  # each end is computed from both
    yield ProgramLine("high", rule.high, dtype, why)
    yield ProgramLine("low", low, dtype, why)
    yield ProgramLine("raw", OF_RANGE, dtype)
