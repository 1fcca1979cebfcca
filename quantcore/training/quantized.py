"""Post-training quantization: a network whose weights are replaced by codes."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.granularity import PerTensor
from quantcore.qparams import QParams, choose_qparams
from quantcore.quantization import Quantized, apply
from quantcore.scheme import Scheme
from quantcore.training.network import Network, forward, load_digits
from quantcore.training.straight_through import fake_quantize

Chooser = Callable[[Tensor, Scheme], QParams]


@dataclass(frozen=True, eq=False)
class QuantizedNetwork:
    """A network with quantized weights and, optionally, quantized activations.

    ``weights``: for each layer the float weights (``.x``), their codes, scales and zero points. ``biases`` stay
    float32. ``inputs``: scales and zero points of each layer's input under the scheme ``activations``; empty if
    ``activations`` is None and the inputs stay float32.
    """

    weights: tuple[Quantized, ...]
    biases: tuple[Tensor, ...]
    activations: Scheme | None = None
    inputs: tuple[QParams, ...] = ()

    @property
    def original(self) -> Network:
        """The network with the float weights that were quantized."""
        return Network(tuple(w.x for w in self.weights), self.biases)

    def logits(self, images: Tensor) -> Tensor:
        """Return one logit per class, (n, 10) float32, for images (n, 64)."""
        dequantized = tuple(w.dequantized for w in self.weights)
        return forward(images, dequantized, self.biases, self.quantize_input)

    def quantize_input(self, layer: int, x: Tensor) -> Tensor:
        """Return a layer's input x fake-quantized; gradients pass straight through."""
        return x if self.activations is None else fake_quantize(x, self.activations, self.inputs[layer])


def ptq(network: Network, weights: Scheme, activations: Scheme | None = None) -> QuantizedNetwork:
    """Quantize a trained network without training it further.

    Args:
        weights: the scheme of every layer's weights, of any granularity.
        activations: the per-tensor scheme of every layer's input, pixels included; None leaves the inputs in
            float32. Their ranges are calibrated on the training images, layer by layer in the quantized network.

    Raises:
        QuantError: a scheme is not supported, or the scheme of the activations is not per-tensor.
    """
    quantized = tuple(apply(w, weights) for w in network.weights)
    if activations is None:
        return QuantizedNetwork(quantized, network.biases)
    dequantized = Network(tuple(w.dequantized for w in quantized), network.biases)
    return QuantizedNetwork(quantized, network.biases, activations, calibrate(dequantized, activations))


def calibrate(network: Network, activations: Scheme, choose: Chooser = choose_qparams) -> tuple[QParams, ...]:
    """Calibrate scale and zero point of every layer's input on the training images.

    Raises:
        QuantError: the scheme is not per-tensor.
    """
    if not isinstance(activations.granularity, PerTensor):
        raise QuantError(
            f"activations={activations} is not per-tensor, but activations arrive one image at a time and share one "
            "scale; choose per_tensor."
        )
    found: list[QParams] = []

    def measure(_: int, x: Tensor) -> Tensor:
        found.append(choose(x, activations))
        return fake_quantize(x, activations, found[-1])

    with torch.no_grad():
        forward(load_digits().train_images, network.weights, network.biases, measure)
    return tuple(found)
