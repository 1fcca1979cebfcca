"""Quantized keys and values of one attention head, and the error after softmax(q·kᵀ)·v."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from quantcore.analysis import sqnr_of
from quantcore.errors import QuantError
from quantcore.granularity import PerChannel
from quantcore.outputs.matrices import MethodStep, linear, matrix, quantized
from quantcore.quantization import Quantized
from quantcore.scheme import Scheme, as_scheme

PER_TOKEN, PER_CHANNEL = "per token", "per channel"
_GRANULARITIES = {PER_TOKEN: PerChannel(0), PER_CHANNEL: PerChannel(1)}


@dataclass(frozen=True, eq=False)
class AttentionOutput:
    """What quantizing a head's cache does to its output.

    ``y``: softmax(q·kᵀ/√d)·v, ``y_hat`` with quantized keys and values, ``of_keys`` and ``of_values`` with
    only one of them quantized, float32 [queries, d_v]; ``probabilities`` and ``probabilities_hat``
    [queries, tokens]. ``keys``, ``values``: the results, None where not quantized.
    """

    keys: Quantized | None
    values: Quantized | None
    y: Tensor
    y_hat: Tensor
    of_keys: Tensor
    of_values: Tensor
    probabilities: Tensor
    probabilities_hat: Tensor
    steps: tuple[MethodStep, ...]

    @property
    def sqnr_db(self) -> float:
        """SQNR of the output in dB, both quantized."""
        return _sqnr(self.y, self.y_hat)

    @property
    def keys_sqnr_db(self) -> float:
        """SQNR of the output in dB, keys quantized."""
        return _sqnr(self.y, self.of_keys)

    @property
    def values_sqnr_db(self) -> float:
        """SQNR of the output in dB, values quantized."""
        return _sqnr(self.y, self.of_values)


def kv_cache(
    q: Any,
    k: Any,
    v: Any,
    key_scheme: Scheme | str | None,
    value_scheme: Scheme | str | None,
    causal: bool = False,
) -> AttentionOutput:
    """Return a head's output with quantized keys and values.

    Args:
        q: queries [queries, d].
        k: keys [tokens, d]: ``per_channel(0)`` is a scale per token, ``per_channel(1)`` one per channel.
        v: values [tokens, d_v].
        causal: each query sees only the tokens up to its own; the last query's is the last token.

    >>> found = kv_cache([[4.0, 0.0]], [[4.0, 0.0], [0.0, 4.0]], [[1.0], [3.0]], "int8", "int8")
    >>> f"{found.probabilities[0, 0].item():.5f} {found.y.item():.5f}"
    '0.99999 1.00002'

    Raises:
        QuantError: q, k and v do not fit, or a scheme does not fit them.
    """
    queries, keys, values = matrix(q, "q"), matrix(k, "k"), matrix(v, "v")
    if queries.shape[1] != keys.shape[1] or len(keys) != len(values):
        raise QuantError(
            f"q has shape {tuple(queries.shape)}, k {tuple(keys.shape)} and v {tuple(values.shape)}; give q "
            "[queries, d], k [tokens, d] and v [tokens, d_v]."
        )
    if causal and len(queries) > len(keys):
        raise QuantError(
            f"There are {len(queries):,} queries, but {len(keys):,} tokens; give a token for each."
        )
    of_k = None if key_scheme is None else quantized(k, key_scheme, keys, "k")
    of_v = None if value_scheme is None else quantized(v, value_scheme, values, "v")
    k_hat = keys if of_k is None else of_k.dequantized.float()
    v_hat = values if of_v is None else of_v.dequantized.float()
    logits, logits_hat = (_logits(queries, each, causal) for each in (keys, k_hat))
    p, p_hat = logits.softmax(-1), logits_hat.softmax(-1)
    y, y_hat, of_keys, of_values = p @ values, p_hat @ v_hat, p_hat @ values, p @ v_hat
    steps = (
        MethodStep("logits", "q·kᵀ / √d", logits),
        MethodStep("logits of quantized keys", "q·k̂ᵀ / √d", logits_hat),
        MethodStep("probabilities", "softmax of a query's logits", p),
        MethodStep("probabilities of quantized keys", "softmax of a query's logits", p_hat),
        MethodStep("output", "probabilities·v", y),
        MethodStep("output of the quantized cache", "probabilities of quantized keys·v̂", y_hat),
    )
    return AttentionOutput(of_k, of_v, y, y_hat, of_keys, of_values, p, p_hat, steps)


def kv_granularities(
    q: Any, k: Any, v: Any, scheme: Scheme | str, causal: bool = False
) -> dict[str, tuple[float, float]]:
    """Return the output's SQNR in dB for (keys, values) quantized per token and per channel.

    A channel of keys that is large for all tokens, as in real models, sets every token's scale, but only its
    own if each channel has one; values have no such channels. Liu et al. 2024, "KIVI", arXiv 2402.02750,
    section 3.2.

    Args:
        scheme: of keys and values, whose granularity is replaced.

    Raises:
        QuantError: as in `kv_cache`.
    """
    scheme, found = as_scheme(scheme), {}
    for name, granularity in _GRANULARITIES.items():
        own = replace(scheme, granularity=granularity)
        output = kv_cache(q, k, v, own, own, causal)
        found[name] = (output.keys_sqnr_db, output.values_sqnr_db)
    return found


def _logits(q: Tensor, k: Tensor, causal: bool) -> Tensor:
    logits = linear(q, k) / math.sqrt(q.shape[1])
    if causal:
        later = torch.ones_like(logits, dtype=torch.bool).triu(len(k) - len(q) + 1)
        logits = logits.masked_fill(later, -torch.inf)
    return logits


def _sqnr(y: Tensor, y_hat: Tensor) -> float:
    power, error = y.double().square().sum(), (y_hat.double() - y.double()).square().sum()
    return sqnr_of(float(power), float(error))
