"""What quantizing a layer's weights and activations does to its output, and which of them does it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from quantcore.analysis import Errors, decibels, errors, sqnr_of
from quantcore.outputs.matrices import (
    TINY,
    UNIT,
    bias_of,
    gamma,
    layer_matrices,
    linear,
    quantized,
    ratio_db,
    reach,
)
from quantcore.quantization import Quantized
from quantcore.scheme import Scheme

OF_WEIGHTS, OF_ACTIVATIONS, OF_BOTH = "x·ΔW", "Δx·W", "Δx·ΔW"


@dataclass(frozen=True, eq=False)
class LayerOutput:
    """A layer's output before and after quantizing.

    ``y``: x·wᵀ + bias; ``y_hat``: the same of the dequantized x̂ and ŵ, both float32 [tokens, out]. ``parts``:
    by name, x·ΔW, Δx·W and Δx·ΔW with ΔW = ŵ − w and Δx = x̂ − x, [tokens, out]; only those that can differ
    from 0. Their sum is ŷ − y, up to `bound`. ``weight``, ``activation``: the results, None where not
    quantized.
    """

    x: Tensor
    w: Tensor
    bias: Tensor | None
    weight: Quantized | None
    activation: Quantized | None
    y: Tensor
    y_hat: Tensor
    parts: Mapping[str, Tensor]

    @property
    def sqnr_db(self) -> float:
        """10·log10(Σy² / Σ(ŷ − y)²) in dB."""
        return sqnr_of(float(self._power.sum()), float(self._sse.sum()))

    @property
    def channel_sqnr_db(self) -> Tensor:
        """SQNR of every output channel in dB, float64 [out]."""
        return ratio_db(self._power.sum(0), self._sse.sum(0))

    @property
    def token_sqnr_db(self) -> Tensor:
        """SQNR of every token in dB, float64 [tokens]."""
        return ratio_db(self._power.sum(1), self._sse.sum(1))

    @property
    def error(self) -> Tensor:
        """ŷ − y, float32 [tokens, out]."""
        return self.y_hat - self.y

    @cached_property
    def errors(self) -> Errors:
        """All metrics of the output's error."""
        return errors(self.y, self.y_hat)

    @cached_property
    def energies(self) -> Mapping[str, float]:
        """Σ of the squares of each part."""
        return {name: float(part.double().square().sum()) for name, part in self.parts.items()}

    @cached_property
    def cross_terms(self) -> Mapping[tuple[str, str], float]:
        """2·Σ of the products of two parts: with `energies`, they add up to Σ(ŷ − y)²."""
        pairs = combinations(self.parts.items(), 2)
        return {(a, b): 2 * float((p.double() * q.double()).sum()) for (a, p), (b, q) in pairs}

    @property
    def bound(self) -> Tensor:
        """What float32 rounding can make |ŷ − y − Σ parts| at most, float64 [tokens, out].

        Each of the five products is off by γ_K of its terms, its difference ΔW or Δx by u, and the final
        subtraction and sums by u each: γ_(K+4) of all terms in all.
        """
        x_hat, w_hat = _values(self.activation, self.x), _values(self.weight, self.w)
        dx, dw = x_hat - self.x, w_hat - self.w
        pairs = ((self.x, self.w), (x_hat, w_hat), (self.x, dw), (dx, self.w), (dx, dw))
        terms = self.w.shape[1]
        found = gamma(terms + 4) * torch.stack([reach(a, b) for a, b in pairs]).sum(0) + 5 * terms * TINY
        return found if self.bias is None else found + 4 * UNIT * self.bias.double().abs()

    @cached_property
    def _power(self) -> Tensor:
        return self.y.double().square()

    @cached_property
    def _sse(self) -> Tensor:
        return (self.y_hat.double() - self.y.double()).square()

    def __str__(self) -> str:
        lines = [f"output SQNR {decibels(self.sqnr_db)}"]
        total = float(self._sse.sum())
        named = [*self.energies.items(), *((" with ".join(pair), e) for pair, e in self.cross_terms.items())]
        lines += [f"{name}: {energy / total:+.1%} of the squared error" for name, energy in named if total]
        return "\n".join(lines)


def _values(result: Quantized | None, original: Tensor) -> Tensor:
    return original if result is None else result.dequantized.to(torch.float32)


def layer(
    x: Any,
    w: Any,
    weight_scheme: Scheme | str | Quantized | None,
    activation_scheme: Scheme | str | Quantized | None = None,
    bias: Any = None,
) -> LayerOutput:
    """Return the output x·wᵀ + bias of a layer, and what quantizing w, x or both changes in it.

    Args:
        x: activations [tokens, in].
        w: weights [out, in].
        weight_scheme: of w, or the result of a method on this w; None leaves w as it is.
        activation_scheme: of x, or None. Scales are those of this x (dynamic): ``per_tensor``,
            ``per_channel(0)`` per token, ``per_group(32)``. Static ones are those of `calibrate`.
        bias: one number per output, which is not quantized.

    >>> found = layer([[1.0, 2.0]], [[0.5, 0.25], [1.75, -1.0]], "int4")
    >>> found.y.tolist(), found.y_hat.tolist(), found.weight.codes.tolist()
    ([[1.0, -0.25]], [[1.0, -0.25]], [[2, 1], [7, -4]])
    >>> print(layer([[1.0, 2.0]], [[0.6, 0.25], [1.75, -1.0]], "int4"))
    output SQNR 21.0 dB
    x·ΔW: +100.0% of the squared error

    Raises:
        QuantError: x and w do not fit, contain NaN or infinity, or a scheme does not fit them, or an output
            exceeds float32.
    """
    numbers_x, numbers_w = layer_matrices(x, w)
    of_bias = bias_of(bias, len(numbers_w))
    weight = None if weight_scheme is None else quantized(w, weight_scheme, numbers_w, "w")
    activation = None if activation_scheme is None else quantized(x, activation_scheme, numbers_x, "x")
    w_hat, x_hat = _values(weight, numbers_w), _values(activation, numbers_x)
    dw = None if weight is None else w_hat - numbers_w
    dx = None if activation is None else x_hat - numbers_x
    parts = {}
    if dw is not None:
        parts[OF_WEIGHTS] = linear(numbers_x, dw)
    if dx is not None:
        parts[OF_ACTIVATIONS] = linear(dx, numbers_w)
    if dx is not None and dw is not None:
        parts[OF_BOTH] = linear(dx, dw)
    y, y_hat = linear(numbers_x, numbers_w, of_bias), linear(x_hat, w_hat, of_bias)
    return LayerOutput(numbers_x, numbers_w, of_bias, weight, activation, y, y_hat, parts)
