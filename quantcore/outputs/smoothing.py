"""SmoothQuant: outlier channels of activations are divided by a scale, and the weights multiplied by it."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.outputs.matrices import MethodStep, layer_matrices

_EPS = torch.finfo(torch.float32).eps  # what torchao adds, so that a channel of zeros does not divide by 0


@dataclass(frozen=True, eq=False)
class Smoothed:
    """A layer with the same output whose activations are easier to quantize.

    ``scale``: s, one per input channel, float32 [in]; ``x``: x / s; ``w``: w·s.
    """

    scale: Tensor
    x: Tensor
    w: Tensor
    steps: tuple[MethodStep, ...]


def smoothquant(x: Any, w: Any, alpha: float = 0.5) -> Smoothed:
    """Return the layer with x / s and w·s, where s = max|x|^α / max|w|^(1−α) of every input channel.

    The arithmetic is that of torchao 0.18.0, SmoothQuantObserver in prototype/smoothquant/core.py, which adds
    2^-23 to both maxima. Xiao et al. 2023, "SmoothQuant", arXiv 2211.10438, equation 4. x / s and w·s round
    once each, so an output changes by at most 2·2^-24·Σ|x||w|, besides the rounding of its product.

    Args:
        x: activations [tokens, in].
        w: weights [out, in].
        alpha: how much of the difficulty moves to the weights, from 0 to 1.

    >>> x = [[1, -16, 2, 6], [-2, 8, -1, -9]]  # Figure 5 of the paper, whose w is [in, out]
    >>> w = [[2, 1, 2, -1], [1, -1, -1, -1], [-2, -1, -2, 1]]
    >>> found = smoothquant(x, w)
    >>> found.scale.tolist(), found.x.tolist()
    ([1.0, 4.0, 1.0, 3.0], [[1.0, -4.0, 2.0, 2.0], [-2.0, 2.0, -1.0, -3.0]])

    Raises:
        QuantError: x and w do not fit, alpha is not from 0 to 1, or x / s or w·s exceeds float32.
    """
    x, w = layer_matrices(x, w)
    alpha = notation.finite(alpha, "alpha")
    if not 0 <= alpha <= 1:
        raise QuantError(f"alpha must be from 0 to 1, not {alpha:g}; the usual value is 0.5.")
    of_x, of_w = x.abs().amax(0), w.abs().amax(0)
    scale = torch.pow(of_x + _EPS, alpha) / torch.pow(of_w + _EPS, 1 - alpha)
    smooth_x, smooth_w = x / scale, w * scale
    if not bool(torch.isfinite(smooth_x).all() & torch.isfinite(smooth_w).all()):
        raise QuantError("x / s or w·s exceeds float32, whose largest is 3.4e38; scale x or w down.")
    steps = (
        MethodStep("outliers of x", "max|x| of every input channel", of_x),
        MethodStep("outliers of w", "max|w| of every input channel", of_w),
        MethodStep("scale", f"s = max|x|^{alpha:g} / max|w|^{1 - alpha:g}", scale),
        MethodStep("smoothed x", "x / s", smooth_x),
        MethodStep("smoothed w", "w·s", smooth_w),
    )
    return Smoothed(scale, smooth_x, smooth_w, steps)
