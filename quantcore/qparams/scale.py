"""Quantization parameters: the scale and zero_point of a block from its range, as a `Convention` says.

All tensors are in block form: one number per block.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.conventions import Convention
from quantcore.formats import Format
from quantcore.programs import Program, parameters_program

_ALL = ("s", "z", "low", "high", "1/s", "replaced")


@dataclass(frozen=True)
class QParams:
    """Quantization parameters in block form: axis i has one entry per block along axis i of the tensor.

    ``low``, ``high``: the range they were computed from (extended to 0 or made symmetric as the scheme says);
    None for `Given`. ``inverse``: 1/scale if the library stores it (hqq), else None. ``replaced``: whether
    the convention replaced the scale that the range gave. ``raw``: the scales before they were quantized
    themselves, None if they were not. ``center``: the mean that was subtracted, one number, None if none was.
    ``coded``: the scale that codes are computed with, if it is neither the stored one nor `raw`;
    ``coded_zero``: the zero point, if it is not the stored one. After a search, until the codes are written:
    ``searched``, its codes in the shape of x, and ``weights``, the sum of the weights in each block.
    """

    scale: Tensor
    zero_point: Tensor
    low: Tensor | None = None
    high: Tensor | None = None
    inverse: Tensor | None = None
    replaced: Tensor | None = None
    raw: Tensor | None = None
    center: Tensor | None = None
    coded: Tensor | None = None
    coded_zero: Tensor | None = None
    searched: Tensor | None = None
    weights: Tensor | None = None

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """low and high, for parameters computed from a range."""
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high


def parameters(low: Tensor, high: Tensor, symmetric: bool, fmt: Format, c: Convention) -> QParams:
    """Return scale and zero_point of every block, with the range they are computed from."""
    return parameters_by(parameters_program(symmetric, fmt, c), low, high)


def parameters_by(lines: Program, low: Tensor, high: Tensor) -> QParams:
    """`parameters` by a program of ranges."""
    scale, zero_point, low, high, inverse, replaced = lines.run(_ALL, {"low": low, "high": high})
    if not isinstance(zero_point, Tensor):
        zero_point = torch.full(scale.shape, int(zero_point), dtype=torch.int32, device=scale.device)
    elif "z" in lines.integers:
        zero_point = zero_point.to(torch.int32)
    kept = scale.dtype if scale.dtype == torch.float64 else torch.float32
    return QParams(scale, zero_point, low.to(kept), high.to(kept), inverse, replaced)


def is_bad(scale: Tensor, c: Convention) -> bool:
    """Whether the library refuses these scales."""
    if c.scale.bad_scale == "kept" or (math.isfinite(scale.amin()) and math.isfinite(scale.amax())):
        return False
    return c.scale.bad_scale == "nonfinite" or bool(scale.isnan().any())
