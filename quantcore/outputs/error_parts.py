"""What quantizing a layer's weights and activations does to its output, and which of them does it."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from quantcore.analysis import Errors, decibels, errors, sqnr_of
from quantcore.errors import QuantError
from quantcore.outputs.finishing import finished
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
from quantcore.outputs.terms import OutputTerms
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
    def alone_db(self) -> Mapping[str, float]:
        """The output's SQNR in dB if only the weights are quantized, and if only the activations are.

        By the names of their parts, x·ΔW and Δx·W, which are the errors of these outputs; only those that
        are quantized.
        """
        power = float(self._power.sum())
        return {name: sqnr_of(power, e) for name, e in self.energies.items() if name != OF_BOTH}

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

    def terms(self, token: int, channel: int) -> OutputTerms:
        """Return one output as a dot product, term by term.

        >>> found = layer([[1.0, 2.0]], [[0.6, 0.25], [1.75, -1.0]], "int4").terms(0, 0)
        >>> [round(error, 6) for error in found.errors.tolist()], found.leading
        ([-0.1, 0.0], 1)

        Raises:
            QuantError: there is no such output.
        """
        tokens, outputs = self.y.shape
        if not (0 <= token < tokens and 0 <= channel < outputs):
            raise QuantError(
                f"There is no output ({token}, {channel}): give a token from 0 to {tokens - 1:,} and a "
                f"channel from 0 to {outputs - 1:,}."
            )
        x_hat, w_hat = _values(self.activation, self.x), _values(self.weight, self.w)
        inputs, weights = (self.x, x_hat), (self.w, w_hat)
        (x, x_hat), (w, w_hat) = [m[token].double() for m in inputs], [m[channel].double() for m in weights]
        bias = 0.0 if self.bias is None else float(self.bias[channel])
        return OutputTerms(token, channel, x, w, x_hat, w_hat, bias)

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
    return finished(layer_steps(x, w, weight_scheme, activation_scheme, bias))


def output_measure(x: Any, w: Any) -> Callable[[Quantized], float]:
    """Return a function of the quantized w that gives the SQNR of the layer's output in dB.

    It is that of `layer` without an activation scheme, but y is computed once for all results.

    Args:
        x: activations [tokens, in].
        w: weights [out, in].

    >>> import quantcore as qc
    >>> w = [[0.6, 0.25], [1.75, -1.0]]
    >>> output = output_measure([[1.0, 2.0]], w)
    >>> qc.sweep(w, ["int4", "int8"], output=output)["output_sqnr_db"].round(1).tolist()
    [21.0, 39.4]

    Raises:
        QuantError: x and w do not fit, contain NaN or infinity, or an output exceeds float32.
    """
    numbers_x, numbers_w = layer_matrices(x, w)
    y = linear(numbers_x, numbers_w)
    power = float(y.double().square().sum())

    def sqnr_db(result: Quantized) -> float:
        y_hat = linear(numbers_x, _values(quantized(w, result, numbers_w, "w"), numbers_w))
        return sqnr_of(power, float((y_hat.double() - y.double()).square().sum()))

    return sqnr_db


@dataclass(frozen=True)
class LayerStep:
    """Progress of `layer_steps`: ``name`` is done, the ``done``-th of ``count`` steps."""

    done: int
    count: int
    name: str


def layer_steps(
    x: Any,
    w: Any,
    weight_scheme: Scheme | str | Quantized | None,
    activation_scheme: Scheme | str | Quantized | None = None,
    bias: Any = None,
) -> Generator[LayerStep, None, LayerOutput]:
    """Yield the steps of `layer` as they are done, and return its result; closing it stops the work.

    Raises:
        QuantError: as in `layer`.
    """
    numbers_x, numbers_w = layer_matrices(x, w)
    of_bias = bias_of(bias, len(numbers_w))
    has_w, has_x = weight_scheme is not None, activation_scheme is not None
    count, done = 2 + 2 * has_w + 2 * has_x + (has_w and has_x), 0

    def step(name: str) -> LayerStep:
        nonlocal done
        done += 1
        return LayerStep(done, count, name)

    weight = activation = None
    if weight_scheme is not None:
        weight = quantized(w, weight_scheme, numbers_w, "w")
        yield step("ŵ")
    if activation_scheme is not None:
        activation = quantized(x, activation_scheme, numbers_x, "x")
        yield step("x̂")
    w_hat, x_hat = _values(weight, numbers_w), _values(activation, numbers_x)
    dw = w_hat - numbers_w if has_w else numbers_w
    dx, parts = x_hat - numbers_x if has_x else numbers_x, {}
    pairs = ((OF_WEIGHTS, has_w, numbers_x, dw), (OF_ACTIVATIONS, has_x, dx, numbers_w))
    for name, exists, a, b in (*pairs, (OF_BOTH, has_w and has_x, dx, dw)):
        if exists:
            parts[name] = linear(a, b)
            yield step(name)
    y = linear(numbers_x, numbers_w, of_bias)
    yield step("y")
    y_hat = linear(x_hat, w_hat, of_bias)
    yield step("ŷ")
    return LayerOutput(numbers_x, numbers_w, of_bias, weight, activation, y, y_hat, parts)
