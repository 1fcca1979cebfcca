"""The numbers that a library reports for scale and zero_point, under its names."""

from collections.abc import Callable

import torch
from torch import Tensor

from quantcore.quantization.quantized import Quantized


def encoding(result: Quantized) -> dict[str, Tensor]:
    """Return what the convention's library reports beyond scale and zero_point, in block form, float32.

    AIMET: ``offset`` = -zero_point, and the ``min`` and ``max`` of the grid, scale · (offset + qmin) and
    scale · (offset + qmax), as returned by its get_offset(), get_min() and get_max()
    (aimet_torch 2.42.0, quantization/affine/quantizer.py:287-317). Empty for other conventions.
    """
    return {name: _NUMBERS[name](result) for name in result.scheme.convention.reported_encodings}


def _offset(result: Quantized) -> Tensor:
    offset = -result.params.zero_point.to(torch.float32)
    return offset + 0.0  # -0.0 becomes 0.0


def _bound(result: Quantized, code: int) -> Tensor:
    return result.scale * (_offset(result) + code)


_NUMBERS: dict[str, Callable[[Quantized], Tensor]] = {
    "offset": _offset,
    "min": lambda result: _bound(result, result.scheme.format.qmin),
    "max": lambda result: _bound(result, result.scheme.format.qmax),
}
