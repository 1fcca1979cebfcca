"""The matrices of a layer: checked inputs, float32 products with their rounding bound, and SQNR by rows.

A product of K terms, summed in any order, is off by at most γ_K·Σ|a||b|, where γ_n = n·u/(1 − n·u) and
u = 2^-24 in float32. Higham 2002, "Accuracy and Stability of Numerical Algorithms", section 3.1.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.numerics import as_float32, refuse_nonfinite
from quantcore.quantization import Quantized, apply_quietly
from quantcore.scheme import Scheme
from quantcore.wording import shape_text

UNIT = 2.0**-24  # the largest relative error of one float32 rounding
TINY = 2.0**-126  # the largest absolute error of a product that underflows
_AXES = {"x": "[tokens, in]", "w": "[out, in]", "q": "[queries, d]", "k": "[tokens, d]", "v": "[tokens, d_v]"}


@dataclass(frozen=True, eq=False)
class MethodStep:
    """One step of a method: what it computes, its formula, and the result."""

    name: str
    formula: str
    value: Tensor


def matrix(value: Any, what: str) -> Tensor:
    """Return a matrix as finite float32 [rows, columns].

    Raises:
        QuantError: it is no matrix of finite numbers, or has no elements.
    """
    try:
        found = as_float32(value)
    except QuantError as error:
        text = str(error)
        raise QuantError(what + text[1:] if text.startswith("x ") else text) from None
    if found.dim() != 2:
        raise QuantError(f"{what} has shape {shape_text(tuple(found.shape))}; give a matrix, {_AXES[what]}.")
    refuse_nonfinite(found, "a layer", what)
    return found


def layer_matrices(x: Any, w: Any) -> tuple[Tensor, Tensor]:
    """Return x [tokens, in] and w [out, in] of a layer as float32.

    Raises:
        QuantError: one is no matrix of finite numbers, or their inputs differ.
    """
    x, w = matrix(x, "x"), matrix(w, "w")
    if x.shape[1] != w.shape[1]:
        raise QuantError(
            f"x has {x.shape[1]:,} columns, but w has {w.shape[1]:,}; both need the layer's inputs as "
            "columns: x [tokens, in], w [out, in]."
        )
    return x, w.to(x.device)


def bias_of(bias: Any, outputs: int) -> Tensor | None:
    """Return a bias as float32 [out], or None.

    Raises:
        QuantError: it is not one finite number per output.
    """
    if bias is None:
        return None
    found = as_float32(bias)
    if tuple(found.shape) != (outputs,):
        raise QuantError(
            f"bias has shape {tuple(found.shape)}, but w has {outputs:,} rows; give one per row."
        )
    refuse_nonfinite(found, "a layer", "bias")
    return found


def linear(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x·wᵀ + bias in float32, [tokens, out].

    Raises:
        QuantError: an output exceeds float32.
    """
    y = torch.nn.functional.linear(x, w, bias)
    if not bool(torch.isfinite(y).all()):
        raise QuantError(
            "An output of the layer exceeds float32, whose largest is 3.4e38; scale x or w down."
        )
    return y


def gamma(terms: int) -> float:
    """Return γ_n, the relative error of a sum of n rounded terms."""
    return terms * UNIT / (1 - terms * UNIT)


def reach(x: Tensor, w: Tensor) -> Tensor:
    """Return ‖x_t‖·‖w_o‖ ≥ Σ|x||w| (Cauchy and Schwarz), float64 [tokens, out]."""
    return torch.outer(_norms(x), _norms(w))


def _norms(rows: Tensor) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    return found


def ratio_db(power: Tensor, sse: Tensor) -> Tensor:
    """Return 10·log10(power / sse) in dB, elementwise; inf where sse is 0, nan where both are."""
    return torch.log10(torch.div(power, sse)).mul(10)


def quantized(value: Any, scheme: "Scheme | str | Quantized", numbers: Tensor, what: str) -> Quantized:
    """Return a matrix quantized by a scheme, in its own dtype, or a result that was quantized before.

    Raises:
        QuantError: the scheme does not fit, or the result is of another shape.
    """
    found = scheme if isinstance(scheme, Quantized) else apply_quietly(value, scheme)
    if found.codes.shape != numbers.shape:
        raise QuantError(
            f"The quantized {what} has shape {tuple(found.codes.shape)}, but {what} has "
            f"{tuple(numbers.shape)}; give the result for this {what}."
        )
    return found
