"""Activations as large language models have them: a few channels are much larger than all others."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.numerics import as_floats

CALIBRATION, HELD_OUT = 0, 1  # samples of the same source


def activations(
    tokens: int,
    inputs: int,
    *,
    outliers: int = 1,
    factor: float = 20.0,
    correlation: float = 0.5,
    seed: int = 0,
    sample: int = CALIBRATION,
) -> Tensor:
    """Return activations of a layer, float32 [tokens, inputs], equal on every machine.

    Each channel is a standard normal; ``outliers`` of them, drawn from the seed, are ``factor`` times larger
    for every token, as in real models. Dettmers et al. 2022, "LLM.int8()", arXiv 2208.07339, section 4. The
    first rows of a sample do not depend on how many tokens there are.

    Args:
        correlation: of neighboring channels, above -1 and below 1; that of two channels falls by this factor
            with each step between them.
        sample: `CALIBRATION` or `HELD_OUT`: other tokens with the same outlier channels.

    >>> x = activations(3, 4, factor=100, seed=1)
    >>> x.abs().amax(0) > 10
    tensor([False, False,  True, False])

    Raises:
        QuantError: a number is out of range.
    """
    tokens, inputs = notation.integer(tokens, "tokens"), notation.integer(inputs, "inputs")
    outliers, seed = notation.integer(outliers, "outliers"), notation.integer(seed, "seed")
    factor, correlation = notation.finite(factor, "factor"), notation.finite(correlation, "correlation")
    if tokens < 1 or inputs < 1:
        raise QuantError(f"Activations need 1 or more tokens and inputs, not {tokens:,} × {inputs:,}.")
    if not 0 <= outliers <= inputs:
        raise QuantError(
            f"There can't be {outliers:,} outlier channels, since the layer has {inputs:,} inputs; give an "
            f"integer from 0 to {inputs:,}."
        )
    if not 0 < factor <= 1e6:
        raise QuantError(f"factor must be above 0 and at most 1,000,000, not {factor:g}.")
    if not -1 < correlation < 1:
        raise QuantError(f"correlation must be above -1 and below 1, not {correlation:g}.")
    if seed < 0 or sample < 0:
        raise QuantError(f"seed must be 0 or more, not {min(seed, sample)}.")
    rng = np.random.Generator(np.random.PCG64([seed, sample]))
    x = rng.standard_normal((tokens, inputs), dtype=np.float32).astype(np.float64)
    fresh = (1 - correlation**2) ** 0.5
    for column in range(1, inputs if correlation else 0):
        x[:, column] = correlation * x[:, column - 1] + fresh * x[:, column]
    x[:, outlier_channels(inputs, outliers, seed)] *= factor
    return torch.from_numpy(x.astype(np.float32))


def of_mean_squares(squares: Any, tokens: int, *, seed: int = 0) -> Tensor:
    """Return activations with given mean squares, float32 [tokens, inputs], equal on every machine.

    Each channel is a normal whose mean square over these tokens is the given one, up to rounding. Of a real
    layer whose second moments are known (llama.cpp's imatrix), that is all there is: how channels go
    together, and how far their values reach, is not in it.

    Args:
        squares: mean of x² of every input, [inputs].

    >>> x = of_mean_squares([1.0, 0.0, 100.0], 5)
    >>> x.square().mean(0).tolist()
    [1.0, 0.0, 100.0]

    Raises:
        QuantError: they are no means of squares, or tokens is not 1 or more.
    """
    wanted, tokens = as_floats(squares).double(), notation.integer(tokens, "tokens")
    if wanted.dim() != 1 or not len(wanted) or tokens < 1:
        raise QuantError(
            f"Mean squares of shape {tuple(wanted.shape)} and {tokens:,} tokens make no activations; give "
            "one mean square per input, and 1 or more tokens."
        )
    if not bool((torch.isfinite(wanted) & (wanted >= 0)).all()):
        raise QuantError("A mean square is negative, infinite or NaN; compute them from activations.")
    x = activations(tokens, len(wanted), outliers=0, correlation=0.0, seed=seed).double()
    return (x * (wanted / x.square().mean(0)).sqrt()).float()


def attention_head(
    tokens: int,
    size: int,
    *,
    queries: int = 8,
    outliers: int = 1,
    factor: float = 20.0,
    correlation: float = 0.5,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of one attention head, float32 [queries or tokens, size].

    ``factor`` is added to the outlier channels of the keys: they are large for every token, and their
    differences, which alone change the probabilities, are as those of other channels. Liu et al. 2024,
    "KIVI", arXiv 2402.02750, section 3.2.

    >>> q, k, v = attention_head(5, 4, seed=2)
    >>> (k.abs().amin(0) > 10).tolist(), bool((v.abs() < 10).all())
    ([False, False, False, True], True)

    Raises:
        QuantError: a number is out of range.
    """
    activations(1, size, outliers=outliers, factor=factor)  # which checks them
    q, k, v = (
        activations(rows, size, outliers=0, correlation=correlation, seed=seed, sample=sample)
        for rows, sample in ((queries, 2), (tokens, 0), (tokens, 3))
    )
    k[:, outlier_channels(size, outliers, seed)] += factor
    return q, k, v


def outlier_channels(inputs: int, outliers: int, seed: int) -> list[int]:
    """Return the outlier channels of `activations`, in ascending order.

    >>> outlier_channels(8, 2, seed=0)
    [2, 3]
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    return sorted(np.argsort(rng.random(inputs), kind="stable")[:outliers].tolist())
