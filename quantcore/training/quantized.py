"""Post-training quantization: a network as it is after its numbers have been replaced by codes."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.granularity import PerTensor
from quantcore.qparams import QParams, choose_qparams
from quantcore.quantization import Quantized, apply
from quantcore.scheme import Scheme
from quantcore.training.digits import load_digits
from quantcore.training.network import Network, forward
from quantcore.training.straight_through import fake_quantize

Chooser = Callable[[Tensor, Scheme], QParams]


@dataclass(frozen=True, eq=False)
class QuantizedNetwork:
    """What is stored of a network, and what it computes with.

    ``weights``: of each layer the float weights (``.x``), their codes and parameters. ``biases`` stay
    float32. ``inputs``: parameters, under the scheme ``activations``, for what each layer receives; empty
    where ``activations`` is None and the inputs stay float32.
    """

    weights: tuple[Quantized, ...]
    biases: tuple[Tensor, ...]
    activations: Scheme | None = None
    inputs: tuple[QParams, ...] = ()

    @property
    def original(self) -> Network:
        """The network with the float weights that the codes stand for."""
        return Network(tuple(w.x for w in self.weights), self.biases)

    def logits(self, images: Tensor) -> Tensor:
        """Return one number a class, (n, 10) float32, for images (n, 64)."""
        dequantized = tuple(w.dequantized for w in self.weights)
        return forward(images, dequantized, self.biases, self.quantize_input)

    def quantize_input(self, layer: int, x: Tensor) -> Tensor:
        """Return what a layer sees of its input x; gradients pass straight through."""
        return x if self.activations is None else fake_quantize(x, self.activations, self.inputs[layer])


def ptq(network: Network, weights: Scheme, activations: Scheme | None = None) -> QuantizedNetwork:
    """Quantize a trained network without training it further.

    Args:
        weights: of any granularity, for every layer.
        activations: per tensor, for the input of every layer, pixels included; None leaves them float32.
            Their ranges are found on the training images, layer after layer as the quantized network
            computes them.

    Raises:
        QuantError: a scheme does not fit, or the activations' is not per tensor.
    """
    quantized = tuple(apply(w, weights) for w in network.weights)
    if activations is None:
        return QuantizedNetwork(quantized, network.biases)
    computes = Network(tuple(w.dequantized for w in quantized), network.biases)
    return QuantizedNetwork(quantized, network.biases, activations, calibrate(computes, activations))


def calibrate(network: Network, activations: Scheme, choose: Chooser = choose_qparams) -> tuple[QParams, ...]:
    """Find the parameters for the input of every layer on the training images.

    Raises:
        QuantError: the scheme is not per tensor.
    """
    if not isinstance(activations.granularity, PerTensor):
        raise QuantError(
            f"The activations are to be {activations}, but their values come one image at a time and share "
            "one scale; choose per_tensor for them."
        )
    found: list[QParams] = []

    def measure(_: int, x: Tensor) -> Tensor:
        found.append(choose(x, activations))
        return fake_quantize(x, activations, found[-1])

    with torch.no_grad():
        forward(load_digits().train_images, network.weights, network.biases, measure)
    return tuple(found)
