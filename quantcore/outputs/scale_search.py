"""AWQ: input channels with large activations get larger weights, by the scale that the output likes best."""

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.granularity import Blocks, PerFlatGroup
from quantcore.notation import write_call
from quantcore.outputs.finishing import finished
from quantcore.outputs.matrices import layer_matrices, linear
from quantcore.outputs.moments import second_moment, squared_errors
from quantcore.quantization import Quantized, apply_quietly
from quantcore.scheme import Scheme, as_scheme

RATIOS = 20
_LEAST_SCALE = 1e-4
_FRACTIONS, _LEAST_FRACTION = 20, 0.5  # of max|w| that are tried as clipping thresholds


@dataclass(frozen=True, eq=False)
class AwqStep:
    """One trial of AWQ.

    Of a ratio: ``scale`` [in], and ``loss``, the mean squared error of the output. Of a clipping threshold,
    as a ``fraction`` of max|w|: ``losses`` of each row and group, [out, groups]. ``done``: the trials so far,
    of ``count``.
    """

    done: int
    count: int
    ratio: float
    scale: Tensor
    loss: float
    fraction: float = 1.0
    losses: Tensor | None = None


@dataclass(frozen=True, eq=False)
class ActivationAware:
    """A weight quantized by AWQ.

    ``scale``: s of the best ``ratio``, float32 [in]; ``x``: x / s; ``w``: w·s; ``quantized``: of w·s, clipped
    if asked for, so that `layer` of x, w and it is the layer's error. ``loss``: the mean squared error of the
    output for the best ratio, before clipping; ``clip``: the largest |w·s| that is kept in each row and
    group, [out, groups], None without clipping.
    """

    scale: Tensor
    ratio: float
    x: Tensor
    w: Tensor
    quantized: Quantized
    loss: float
    clip: Tensor | None
    steps: tuple[AwqStep, ...]


def awq(w: Any, x: Any, scheme: Scheme | str, *, ratios: int = RATIOS, clip: bool = False) -> ActivationAware:
    """Return a weight quantized by AWQ, and every ratio that was tried.

    For each ratio r of 0, 1/n, …, (n−1)/n: s = mean|x|^r of every input channel, at least 0.0001, over
    √(max s·min s); the loss is that of x / s and the quantized w·s. The first least loss wins. The arithmetic
    and its order are those of torchao 0.18.0, AWQObserver in prototype/awq/core.py; losses that differ by
    less than float32 rounding can rank otherwise on another machine. Lin et al. 2023, "AWQ", arXiv
    2306.00978, section 3.2.

    Args:
        w: weights [out, in].
        x: activations [tokens, in].
        scheme: of the weight.
        ratios: n, how many are tried.
        clip: also searches the clipping threshold of every row and group, 100 %, 95 %, …, 55 % of max|w·s|,
            by the squared error of the group's contribution to the output, as AutoAWQ's search does; that
            takes the sums in float32 and at most about 512 tokens, here all in float64.

    >>> x = [[1.0, 40.0], [-2.0, 30.0]]
    >>> found = awq([[1.0, 0.2], [-0.9, 0.3]], x, "int3 per_channel(0)")
    >>> found.ratio, [f"{step.loss:.2f}" for step in found.steps[::5]]
    (0.65, ['11.11', '1.92', '0.04', '0.14'])

    Raises:
        QuantError: w and x do not fit, the scheme does not fit w, or has no groups of rows to clip.
    """
    return finished(awq_steps(w, x, scheme, ratios=ratios, clip=clip))


def awq_steps(
    w: Any, x: Any, scheme: Scheme | str, *, ratios: int = RATIOS, clip: bool = False
) -> Generator[AwqStep, None, ActivationAware]:
    """Yield the trials of `awq` as they are done, and return its result; closing it stops the work.

    Raises:
        QuantError: as in `awq`.
    """
    scheme, ratios = as_scheme(scheme), notation.integer(ratios, "ratios")
    if ratios < 1:
        raise QuantError(f"ratios must be 1 or more, not {ratios}; the usual value is {RATIOS}.")
    x, w = layer_matrices(x, w)
    width = _width(scheme, w) if clip else 0
    fractions = _fractions() if clip else []
    count, magnitude, y = ratios + len(fractions), x.abs().mean(0), linear(x, w)
    steps: list[AwqStep] = []
    for i in range(ratios):
        scale = _scale(magnitude, i / ratios)
        w_hat = apply_quietly(w * scale, scheme).dequantized.float()
        steps.append(AwqStep(i + 1, count, i / ratios, scale, _loss(y - linear(x / scale, w_hat))))
        yield steps[-1]
    best = min(steps, key=lambda step: step.loss)  # the first one on ties
    smooth_x, smooth_w, kept = x / best.scale, w * best.scale, None
    if clip:
        trials: list[AwqStep] = []
        for fraction, losses in _clipping(smooth_w, smooth_x, scheme, width, fractions):
            done = ratios + len(trials) + 1
            trials.append(AwqStep(done, count, best.ratio, best.scale, best.loss, fraction, losses))
            yield trials[-1]
        kept = _best_thresholds(smooth_w, width, trials)
        steps += trials
    to_quantize = smooth_w if kept is None else _clamped(smooth_w, kept, width)
    quantized = apply_quietly(to_quantize, scheme)
    return ActivationAware(
        best.scale, best.ratio, smooth_x, smooth_w, quantized, best.loss, kept, tuple(steps)
    )


def _scale(magnitude: Tensor, ratio: float) -> Tensor:
    """Return s of a ratio, in the order of operations of torchao."""
    scale = magnitude.pow(ratio).clamp(min=_LEAST_SCALE)
    return torch.div(scale, (scale.max() * scale.min()).sqrt())


def _loss(error: Tensor) -> float:
    """Return the mean square in float32 as torchao does, or in float64 where squares exceed float32."""
    found = float(error.pow(2).mean())
    return found if math.isfinite(found) else float(error.double().pow(2).mean())


def _fractions() -> list[float]:
    return [1 - i / _FRACTIONS for i in range(int(_LEAST_FRACTION * _FRACTIONS))]


def _width(scheme: Scheme, w: Tensor) -> int:
    """Return the columns of a group.

    Raises:
        QuantError: groups are not parts of rows.
    """
    if not isinstance(scheme.granularity, PerFlatGroup):
        rows, columns = Blocks.of(scheme.granularity, tuple(w.shape)).block
        if rows == 1:
            return columns
    raise QuantError(
        f"{write_call(scheme.granularity)} has groups that are not parts of rows, so no threshold can be "
        "searched for each; choose per_group or per_channel(0), or leave out clipping."
    )


def _groups(columns: int, width: int) -> list[slice]:
    return [slice(start, min(start + width, columns)) for start in range(0, columns, width)]


def _largest(w: Tensor, width: int) -> Tensor:
    """Return max|w| of each row and group, [out, groups]."""
    return torch.stack([w[:, group].abs().amax(1) for group in _groups(w.shape[1], width)], 1)


def _clamped(w: Tensor, most: Tensor, width: int) -> Tensor:
    every = most.repeat_interleave(width, 1)[:, : w.shape[1]]
    return torch.minimum(torch.maximum(w, -every), every)


def _clipping(
    w: Tensor, x: Tensor, scheme: Scheme, width: int, fractions: list[float]
) -> Generator[tuple[float, Tensor], None, None]:
    """Yield each fraction of max|w| with the squared error of each group's contribution to the output."""
    groups, largest, tokens = _groups(w.shape[1], width), _largest(w, width), len(x)
    moments = [second_moment(x[:, group]) for group in groups]
    for fraction in fractions:
        clamped = _clamped(w, largest * fraction, width)
        error = apply_quietly(clamped, scheme).dequantized.double() - w
        each = [squared_errors(error[:, g], h) / tokens for g, h in zip(groups, moments, strict=True)]
        yield fraction, torch.stack(each, 1)


def _best_thresholds(w: Tensor, width: int, trials: list[AwqStep]) -> Tensor:
    """Return the thresholds of least loss, the widest on ties, [out, groups]."""
    losses = np.stack([step.losses.cpu().numpy() for step in trials if step.losses is not None])
    fractions = torch.tensor([step.fraction for step in trials], dtype=torch.float32)
    return _largest(w, width) * fractions[torch.from_numpy(losses.argmin(0))]
