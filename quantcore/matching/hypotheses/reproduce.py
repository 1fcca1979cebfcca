"""Codes of a scheme on the whole tensor, with or without mistakes."""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantcore.conventions import KERNELS, Kernel
from quantcore.formats import INT8, IntFormat
from quantcore.granularity import block_shape, cells_of
from quantcore.matching.hypotheses.corruption import (
    CHOICES,
    NONE,
    RANGES,
    Corruption,
    arithmetic,
    into_format,
    mistaken_scale,
    requantized,
)
from quantcore.numerics import as_float32
from quantcore.qparams import QParams, choose_qparams
from quantcore.quantization import apply
from quantcore.scheme import Scheme


@dataclass(frozen=True, eq=False)
class KernelInputs:
    """The inputs of a scheme's kernel: x, the scale (or its inverse, in ``s``) and zero_point, one per element.

    A fused kernel takes one scale and one zero_point.
    """

    kernel: Kernel
    x: Tensor
    s: Tensor
    z: Tensor
    scale: Tensor

    def at(self, places: Tensor) -> "KernelInputs":
        """Return the elements at flat places."""
        own = (self.s, self.z, self.scale)
        s, z, scale = (p if self.kernel.fused else p.reshape(-1)[places] for p in own)
        return KernelInputs(self.kernel, self.x.reshape(-1)[places], s, z, scale)


def reproduce(x: Any, scheme: Scheme, corruption: Corruption = NONE) -> Tensor:
    """Return the codes of a scheme with the corruption's mistakes in the arithmetic, on the original's axes.

    Raises:
        QuantError: the scheme does not fit x.
    """
    x = as_float32(x)
    if not set(corruption.computed) - {*CHOICES} - RANGES:  # the scheme has these mistakes itself
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return apply(x, scheme).codes
    convention = scheme.rules
    inputs = kernel_inputs(x, scheme, choose_qparams(x, scheme), corruption)
    values = arithmetic(corruption.computed, convention, inputs.x, inputs.s, inputs.z)
    assert isinstance(scheme.format, IntFormat)
    dtype = torch.int32 if "unclamped" in corruption.computed else scheme.format.dtype
    return into_format(corruption.computed, values, scheme.format).nan_to_num(0).to(dtype)


def kernel_inputs(x: Tensor, scheme: Scheme, params: QParams, corruption: Corruption = NONE) -> KernelInputs:
    """Spread parameters over the elements; along the wrong axis, if that is the corruption."""
    kernel = KERNELS[scheme.rules.coding.kernel]
    scale = mistaken_scale(corruption.computed, params.scale)
    s, z = kernel.factor(scale, params.inverse), params.zero_point.to(torch.float32)
    if kernel.fused:
        return KernelInputs(kernel, x, s, z, scale)
    shape = tuple(x.shape)
    block = block_shape(scheme.granularity, shape)
    if "quantized_twice" in corruption.computed:
        first = choose_qparams(x, Scheme(INT8, True, scheme.granularity)).scale
        x = requantized(x, cells_of(first, shape, block))
    if "other_axis" in corruption.computed:
        s, z, scale, block = s.T, z.T, scale.T, block[::-1]
    return KernelInputs(kernel, x, *(cells_of(p, shape, block) for p in (s, z, scale)))
