"""The values that two kernels round, and whether they are ties."""

import torch
from torch import Tensor

from quantcore.comparison.causes import blocks_of
from quantcore.conventions import KERNELS
from quantcore.qparams import factor
from quantcore.quantization import Quantized

NO_TIE, TIE, PARITY, NEAR = 0, 1, 2, 3
ROUNDING = 2.0**-21  # relative error of a value before it is rounded: a few operations in float32


def kernel_kinds(a: Quantized, b: Quantized, flat: Tensor) -> Tensor:
    """Return for each element whether both values lie next to a tie that both libraries would round to nearest.

    `TIE`: and one of them is a tie; `PARITY`: both are, and an odd z, added before rounding or after, changes which
    neighbor is even; `NEAR`: neither is; `NO_TIE`: they do not.
    """
    near = torch.ones(len(flat), dtype=torch.bool)
    ties, odd = [], near
    for result in (a, b):
        values = before_rounding(result, flat)
        shift = result.params.zero_point.reshape(-1)[blocks_of(result, flat)]
        away = _away(result, values)
        size = torch.maximum(values.abs(), shift.abs().to(torch.float32)).clamp(min=1.0)
        near = near & (away <= (2 * ROUNDING * size).clamp(max=0.25))  # the quotient is at most twice as large
        ties.append(away == 0)
        odd = odd & (shift % 2 == 1)
    kinds = torch.where(ties[0] | ties[1], TIE, NEAR)
    kinds = torch.where(ties[0] & ties[1] & odd, PARITY, kinds)
    return torch.where(near, kinds, NO_TIE)


def before_rounding(result: Quantized, flat: Tensor) -> Tensor:
    """Return the values that the kernel rounds, float32; ``flat``: indices into the flattened x."""
    convention = result.scheme.rules
    kernel, params = KERNELS[convention.coding.kernel], result.params
    x, block = result.x.reshape(-1)[flat], blocks_of(result, flat)
    x = x if params.center is None else x - params.center
    scale, shift = (p.reshape(-1)[block].to(torch.float32) for p in (params.scale, params.zero_point))
    inverse = None if params.inverse is None else params.inverse.reshape(-1)[block]
    s = factor(scale, inverse, convention, stored=params.raw is not None)
    if kernel.fused:  # one scale for the tensor
        s, shift = s[:1], shift[:1]
    return kernel.run(x, s, shift, torch.empty_like(x), None)


def _away(result: Quantized, values: Tensor) -> Tensor:
    """Return how far each value is from the nearest tie; infinite if values are not rounded to nearest."""
    coding = result.scheme.rules.coding
    half = KERNELS[coding.kernel].half
    values = values.double()
    if not (coding.rounding == "toward_zero" if half else coding.rounding.startswith("half")):
        return torch.full_like(values, torch.inf)
    tie = 0.0 if half else 0.5  # ½ has been added
    rest = (values - tie).remainder(1.0)
    return torch.minimum(rest, 1.0 - rest).nan_to_num(torch.inf)
