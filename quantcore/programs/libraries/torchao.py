"""torchao's tinygemm: the zero point is the value of the middle code."""

import torch

from quantcore.conventions import ZERO_POINTS
from quantcore.programs.record import ProgramLine


def zero_point(dtype: torch.dtype) -> ProgramLine:
    """Compute the value of the middle code."""
    why, source = "the value of the middle code", "torchao/quantization/quant_primitives.py:1333-1335"
    return ProgramLine("z", ZERO_POINTS["middle"], dtype, why, source)
