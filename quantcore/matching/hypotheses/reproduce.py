"""Schemes, with mistakes or without, on the whole tensor."""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantcore.formats import INT8, IntFormat
from quantcore.granularity import block_shape, cells_of
from quantcore.matching.hypotheses.corruption import (
    CHOICES,
    NONE,
    RANGES,
    Damage,
    arithmetic,
    brought,
    mistaken_scale,
    requantized,
)
from quantcore.numerics import KERNELS, Kernel, as_float32
from quantcore.qparams import QParams, choose_qparams
from quantcore.quantization import apply
from quantcore.scheme import Scheme


@dataclass(frozen=True, eq=False)
class Laid:
    """What a scheme's kernel takes: x, the scale (or its inverse, in ``s``) and zero_point, one an element.

    A fused kernel takes one scale and one zero_point.
    """

    kernel: Kernel
    x: Tensor
    s: Tensor
    z: Tensor
    scale: Tensor

    def at(self, places: Tensor) -> "Laid":
        """Return the elements at flat places."""
        own = (self.s, self.z, self.scale)
        s, z, scale = (p if self.kernel.fused else p.reshape(-1)[places] for p in own)
        return Laid(self.kernel, self.x.reshape(-1)[places], s, z, scale)


def produced(x: Any, scheme: Scheme, damage: Damage = NONE) -> Tensor:
    """Return the codes that a scheme gives under a damage's mistakes in the arithmetic, on the original's axes.

    Raises:
        QuantError: the scheme does not fit x.
    """
    x = as_float32(x)
    if not set(damage.computed) - CHOICES.keys() - RANGES:  # which the scheme has
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return apply(x, scheme).codes
    convention = scheme.rules
    laid = lay(x, scheme, choose_qparams(x, scheme), damage)
    values = arithmetic(damage.computed, convention, laid.x, laid.s, laid.z)
    assert isinstance(scheme.format, IntFormat)
    dtype = torch.int32 if "unclamped" in damage.computed else scheme.format.dtype
    return brought(damage.computed, values, scheme.format).nan_to_num(0).to(dtype)


def lay(x: Tensor, scheme: Scheme, params: QParams, damage: Damage = NONE) -> Laid:
    """Spread parameters over the elements; of channels along the other axis, where that is the damage."""
    kernel = KERNELS[scheme.rules.coding.kernel]
    scale = s = mistaken_scale(damage.computed, params.scale)
    z = params.zero_point.to(torch.float32)
    if kernel.inverse:
        s = torch.reciprocal(s) if params.inverse is None else params.inverse
    if kernel.fused:
        return Laid(kernel, x, s, z, scale)
    shape = tuple(x.shape)
    block = block_shape(scheme.granularity, shape)
    if "quantized_twice" in damage.computed:
        first = choose_qparams(x, Scheme(INT8, True, scheme.granularity)).scale
        x = requantized(x, cells_of(first, shape, block))
    if "other_axis" in damage.computed:
        s, z, scale, block = s.T, z.T, scale.T, block[::-1]
    return Laid(kernel, x, *(cells_of(p, shape, block) for p in (s, z, scale)))
