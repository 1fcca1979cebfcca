"""What gradient descent trains: the float network, or the network quantized at every step (QAT, LSQ)."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.granularity import block_shape
from quantcore.qparams import QParams, choose_qparams
from quantcore.quantization import apply
from quantcore.range_setting import Given
from quantcore.scheme import Scheme
from quantcore.training.network import Network, forward
from quantcore.training.quantized import QuantizedNetwork, calibrate, ptq
from quantcore.training.straight_through import block_sums, fake_quantize

Trained = TypeVar("Trained", Network, QuantizedNetwork)
_SMALLEST_SCALE = torch.finfo(torch.float32).tiny  # no step may make a scale 0 or negative


@dataclass(eq=False)
class Parameter:
    """A tensor that gradient descent changes in place; its gradient is multiplied by ``factor`` first."""

    value: Tensor
    factor: Tensor | float = 1.0
    lowest: float = -math.inf
    velocity: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.velocity = torch.zeros_like(self.value)
        self.value = self.value.detach().clone().requires_grad_()

    def copy(self) -> Tensor:
        """Return the current value."""
        return self.value.detach().clone()


class Learner(Protocol[Trained]):
    """Something that gradient descent can train."""

    parameters: list[Parameter]

    def logits(self, images: Tensor, latest: Trained) -> Tensor:
        """Return one logit per class, with gradients; ``latest``: `network` at the start of the epoch."""
        ...

    def network(self) -> Trained:
        """Return the network learned so far."""
        ...


class Float:
    """The network itself: weights and biases in float32."""

    def __init__(self, network: Network) -> None:
        self.weights = [Parameter(w) for w in network.weights]
        self.biases = [Parameter(b) for b in network.biases]
        self.parameters = [*self.weights, *self.biases]

    def logits(self, images: Tensor, latest: Network) -> Tensor:
        """Return one logit per class, with gradients."""
        return forward(images, [p.value for p in self.weights], [p.value for p in self.biases])

    def network(self) -> Network:
        """Return the network learned so far."""
        return Network(tuple(p.copy() for p in self.weights), tuple(p.copy() for p in self.biases))


class StraightThrough:
    """Weights are quantized by their scheme at every step; the ranges of inputs are found once per epoch."""

    def __init__(self, network: Network, weights: Scheme, activations: Scheme | None) -> None:
        self.float = Float(network)
        self.schemes = weights, activations
        self.parameters = self.float.parameters

    def logits(self, images: Tensor, latest: QuantizedNetwork) -> Tensor:
        """Return one logit per class, with gradients to the float weights."""
        weights = [fake_quantize(p.value, self.schemes[0]) for p in self.float.weights]
        return forward(images, weights, [p.value for p in self.float.biases], latest.quantize_input)

    def network(self) -> QuantizedNetwork:
        """Return the network learned so far."""
        return ptq(self.float.network(), *self.schemes)


class LearnedScales:
    """LSQ: scales are trained with the weights (Esser et al. 2020, arXiv 1902.08153, 2.1 and 2.2).

    They start at 2·mean|x|/√Q, and their gradient is multiplied by 1/√(N·Q), where Q = qmax - z and N is the
    number of a block's weights, or of a layer's inputs. Zero points stay those of the scheme.
    """

    def __init__(self, network: Network, weights: Scheme, activations: Scheme | None) -> None:
        self.float = Float(network)
        self.schemes = weights, activations
        params = [lsq_params(w, weights) for w in network.weights]
        counts = [_block_sizes(w, weights) for w in network.weights]
        self.weight_zeros = [p.zero_point for p in params]
        self.weight_scales = [_scale(p, weights, n) for p, n in zip(params, counts, strict=True)]
        self.input_zeros: list[Tensor] = []
        self.input_scales: list[Parameter] = []
        if activations is not None:
            dequantized = [fake_quantize(w, weights, p) for w, p in zip(network.weights, params, strict=True)]
            inputs = calibrate(Network(tuple(dequantized), network.biases), activations, lsq_params)
            sizes = [w.shape[1] for w in network.weights]
            self.input_zeros = [p.zero_point for p in inputs]
            self.input_scales = [_scale(p, activations, n) for p, n in zip(inputs, sizes, strict=True)]
        self.parameters = [*self.float.parameters, *self.weight_scales, *self.input_scales]

    def logits(self, images: Tensor, latest: QuantizedNetwork) -> Tensor:
        """Return one logit per class, with gradients to the float weights and the scales."""
        scheme, activations = self.schemes
        weights = [
            fake_quantize(p.value, scheme, QParams(scale.value, z))
            for p, scale, z in zip(self.float.weights, self.weight_scales, self.weight_zeros, strict=True)
        ]

        def quantize_input(layer: int, x: Tensor) -> Tensor:
            if activations is None:
                return x
            params = QParams(self.input_scales[layer].value, self.input_zeros[layer])
            return fake_quantize(x, activations, params)

        return forward(images, weights, [p.value for p in self.float.biases], quantize_input)

    def network(self) -> QuantizedNetwork:
        """Return the network learned so far; the scheme of the weights contains the scales, as `Given`."""
        scheme, activations = self.schemes
        made = self.float.network()
        weights = tuple(
            apply(w, dataclasses.replace(scheme, range_setting=Given(scale.copy(), z)))
            for w, scale, z in zip(made.weights, self.weight_scales, self.weight_zeros, strict=True)
        )
        inputs = tuple(QParams(s.copy(), z) for s, z in zip(self.input_scales, self.input_zeros, strict=True))
        return QuantizedNetwork(weights, made.biases, activations, inputs)


def lsq_params(x: Tensor, scheme: Scheme) -> QParams:
    """Return the scheme's zero points and LSQ's initial scales; an all-zero block keeps the scheme's scale.

    Raises:
        QuantError: the scheme does not fit x, or its zero points are not integers.
    """
    chosen = choose_qparams(x, scheme)
    if chosen.zero_point.is_floating_point():
        raise QuantError(
            f"Zero points in {scheme.convention.name} are not integers, which learned scales require; choose another "
            "library, or take the scales from the scheme."
        )
    sums = block_sums(x.abs(), block_shape(scheme.granularity, tuple(x.shape)))
    scale = 2 * (sums / _block_sizes(x, scheme)) / _steps(chosen, scheme).sqrt()
    return QParams(torch.where(scale < _SMALLEST_SCALE, chosen.scale, scale), chosen.zero_point)


def _scale(params: QParams, scheme: Scheme, count: Tensor | int) -> Parameter:
    return Parameter(params.scale, 1 / (_steps(params, scheme) * count).sqrt(), _SMALLEST_SCALE)


def _steps(params: QParams, scheme: Scheme) -> Tensor:
    """Q in the paper: the number of codes above the zero point, in block form; 1 if there is none."""
    return (scheme.format.qmax - params.zero_point).clamp(min=1).float()


def _block_sizes(x: Tensor, scheme: Scheme) -> Tensor:
    return block_sums(torch.ones_like(x), block_shape(scheme.granularity, tuple(x.shape)))
