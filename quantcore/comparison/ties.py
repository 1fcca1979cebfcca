"""The values that two kernels round, and whether they are ties."""

import torch
from torch import Tensor

from quantcore.comparison.causes import blocks_of
from quantcore.numerics import KERNELS, unrounded
from quantcore.qparams import factor
from quantcore.quantization import Quantized

NO_TIE, TIE, PARITY = 0, 1, 2


def kernel_kinds(a: Quantized, b: Quantized, flat: Tensor) -> Tensor:
    """Return for each element whether both round a tie (`PARITY`), one does (`TIE`), or neither (`NO_TIE`).

    Both round a tie if an odd z, added before or after rounding, changes which neighbor is even.
    """
    ties = [_is_tie(r, before_rounding(r, flat)) for r in (a, b)]
    return torch.where(ties[0] & ties[1], PARITY, torch.where(ties[0] | ties[1], TIE, NO_TIE))


def before_rounding(result: Quantized, flat: Tensor) -> Tensor:
    """Return the values that the kernel rounds, float32; ``flat``: indices into the flattened x."""
    convention = result.scheme.rules
    kernel, params = KERNELS[convention.coding.kernel], result.params
    x, block = result.x.reshape(-1)[flat], blocks_of(result, flat)
    scale, shift = (p.reshape(-1)[block].to(torch.float32) for p in (params.scale, params.zero_point))
    inverse = None if params.inverse is None else params.inverse.reshape(-1)[block]
    s = factor(scale, inverse, convention, stored=params.raw is not None)
    if kernel.fused and len(s):  # one scale for the tensor
        s, shift = s[:1], shift[:1]
    return kernel.run(x, s, shift if kernel.shift_first else None, torch.empty_like(x), unrounded)


def _is_tie(result: Quantized, values: Tensor) -> Tensor:
    jump = 0.5 if result.scheme.convention.coding.rounding.startswith("half") else 0.0
    return values.remainder(1.0) == jump
