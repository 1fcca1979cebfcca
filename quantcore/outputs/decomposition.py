"""LLM.int8: columns of x with outliers are multiplied in float, all others in int8."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantcore import notation
from quantcore.analysis import sqnr_of
from quantcore.errors import QuantError
from quantcore.outputs.integer_path import integer_product
from quantcore.outputs.matrices import MethodStep, layer_matrices, linear
from quantcore.quantization import Quantized, apply_quietly

_SCHEME = "bitsandbytes.int8_vectorwise"


@dataclass(frozen=True, eq=False)
class Decomposed:
    """A layer of which the outlier columns of x stay in float.

    ``outliers``: the columns with an |x| of the threshold or more, int64. ``x_codes``: of the others, int8,
    0 in outlier columns, [tokens, in]; ``x_scale``: one per token, float32 [tokens, 1]. ``weight``: all
    columns in int8; those of outliers are multiplied as dequantized. ``y_int8`` + ``y_outliers`` = ``y_hat``,
    float32 [tokens, out]; ``y``: x·wᵀ.
    """

    outliers: Tensor
    x_codes: Tensor
    x_scale: Tensor
    weight: Quantized
    y: Tensor
    y_hat: Tensor
    y_int8: Tensor
    y_outliers: Tensor
    steps: tuple[MethodStep, ...]

    @property
    def sqnr_db(self) -> float:
        """10·log10(Σy² / Σ(ŷ − y)²) in dB."""
        error = self.y_hat.double() - self.y.double()
        return sqnr_of(float(self.y.double().square().sum()), float(error.square().sum()))


def llm_int8(x: Any, w: Any, threshold: float = 6.0) -> Decomposed:
    """Return the layer as bitsandbytes computes it: int8 by rows, without the outlier columns of x.

    Codes and scales are those of bitsandbytes 0.50.2, int8_vectorwise_quant; |x| ≥ threshold are left out of
    a token's scale, and all codes of their columns are 0. Sums are exact here, and y is float32, not the
    dtype of x. Dettmers et al. 2022, "LLM.int8()", arXiv 2208.07339, section 3.2.

    Args:
        x: activations [tokens, in].
        w: weights [out, in].
        threshold: of an outlier.

    >>> found = llm_int8([[1.0, 20.0], [-0.5, 0.1]], [[1.0, 0.5]])
    >>> found.outliers.tolist(), found.x_codes.tolist()
    ([1], [[127, 0], [-127, 0]])

    Raises:
        QuantError: x and w do not fit, or the threshold is not positive.
    """
    x, w = layer_matrices(x, w)
    threshold = notation.finite(threshold, "threshold")
    if not threshold > 0:
        raise QuantError(f"threshold must be positive, not {threshold:g}; the usual value is 6.")
    beyond = x.abs() >= threshold
    outliers = beyond.any(0).nonzero()[:, 0]
    rest = apply_quietly(x.masked_fill(beyond, 0.0), _SCHEME)
    codes = rest.codes.clone()
    codes[:, outliers] = 0
    weight = apply_quietly(w, _SCHEME)
    sums = integer_product(codes, weight.codes).accumulator
    y_int8 = sums.to(torch.float32) * (rest.scale * weight.scale.T)
    y_outliers = linear(x[:, outliers], weight.dequantized[:, outliers])
    y_hat = y_int8 + y_outliers
    steps = (
        MethodStep("outlier columns", f"columns of x with an |x| ≥ {threshold:g}", outliers),
        MethodStep("codes of x", "127·x / max|x| of each token, without outliers", codes),
        MethodStep("int8 product", "Σ q_x·q_w·s_x·s_w", y_int8),
        MethodStep("float product", "x·ŵ of the outlier columns", y_outliers),
        MethodStep("output", "their sum", y_hat),
    )
    return Decomposed(outliers, codes, rest.scale, weight, linear(x, w), y_hat, y_int8, y_outliers, steps)
