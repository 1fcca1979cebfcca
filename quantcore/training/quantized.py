"""Post-training quantization: weights are replaced by codes; and fake quantization, which has a gradient.

Rounding is a staircase: its slope is 0 wherever it is defined. The straight-through estimator (Bengio et al.
2013, arXiv 1308.3432) uses the slope of the line that the staircase follows: 1 inside the range, 0 beyond the
last codes. With u = round(x/s) + z before the clamp:

==================  ============  ======================
where               ∂x̂/∂x         ∂x̂/∂s
==================  ============  ======================
qmin ≤ u ≤ qmax     1             round(x/s) - x/s
u < qmin            0             qmin - z
u > qmax            0             qmax - z
==================  ============  ======================

The last column is that of LSQ (Esser et al. 2020, arXiv 1902.08153, equation 3), in the form of torch's
learnable fake quantization: the paper compares x/s itself with the bounds, so it treats another half step at
each end as clipped.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from quantcore.errors import QuantError
from quantcore.granularity import PerTensor, Shape, block_shape, cells_of, split_axes
from quantcore.qparams import QParams, choose_qparams
from quantcore.quantization import Quantized, apply, dequantize, quantize, unclamped
from quantcore.scheme import Scheme
from quantcore.training.network import Network, forward, load_digits

Chooser = Callable[[Tensor, Scheme], QParams]


def fake_quantize(x: Tensor, scheme: Scheme, params: QParams | None = None) -> Tensor:
    """Return x̂, equal to ``apply(x, scheme).dequantized``, through which gradients pass.

    Args:
        params: scale and zero point in block form, instead of those that the scheme computes from x. A
            gradient reaches ``params.scale`` if it requires one.

    >>> x = torch.tensor([0.4, 1.2, 9.0], requires_grad=True)
    >>> fake_quantize(x, Scheme.parse("int4 given(1)")).sum().backward()
    >>> x.grad
    tensor([1., 1., 0.])

    Raises:
        QuantError: the scheme or the parameters do not fit x, or x contains NaN or infinity.
    """
    if params is None:
        result = apply(x, scheme)
        codes, params = result.codes, result.params
    else:
        codes = quantize(x, params.scale.detach(), params.zero_point, scheme)
    x_hat: Tensor = _FakeQuantize.apply(x, params.scale, codes, params, scheme)  # type: ignore[no-untyped-call]
    return x_hat


def block_sums(values: Tensor, block: Shape) -> Tensor:
    """Return the sum of every block in block form, computed in float64 and rounded to float32."""
    short = [pad for n, b in zip(values.shape, block, strict=True) for pad in (-n % b, 0)]
    padded = functional.pad(values.double(), short[::-1])
    return split_axes(padded, block).sum(tuple(range(1, 2 * values.dim(), 2))).float()


def _inside(x: Tensor, params: QParams, scheme: Scheme) -> Tensor:
    """Return whether each element has a code without clamping; bool, x's shape."""
    result = torch.empty(x.shape, dtype=torch.bool)
    for region, before in unclamped(x, params, scheme):
        fits = (before >= scheme.format.qmin) & (before <= scheme.format.qmax)
        split_axes(result[region.elements], region.block).copy_(fits)
    return result


class _FakeQuantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, codes: Tensor, params: QParams, scheme: Scheme) -> Tensor:
        ctx.save_for_backward(x, scale, params.zero_point, codes, _inside(x, params, scheme))
        ctx.block = block_shape(scheme.granularity, tuple(x.shape))
        return dequantize(codes, scale, params.zero_point, scheme)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        x, scale, zero_point, codes, inside = ctx.saved_tensors
        (gradient,) = gradients
        to_scale = None
        if ctx.needs_input_grad[1]:
            s, z = (cells_of(p, tuple(x.shape), ctx.block) for p in (scale, zero_point))
            slope = (codes - z).float() - torch.where(inside, x / s, 0.0)
            to_scale = block_sums(gradient * slope, ctx.block)
        return gradient * inside, to_scale, None, None, None


@dataclass(frozen=True, eq=False)
class QuantizedNetwork:
    """A network with quantized weights and, optionally, quantized activations.

    ``weights``: for each layer the float weights (``.x``), their codes, scales and zero points. ``biases``
    stay float32. ``inputs``: scales and zero points of each layer's input under the scheme ``activations``;
    empty if ``activations`` is None and the inputs stay float32.
    """

    weights: tuple[Quantized, ...]
    biases: tuple[Tensor, ...]
    activations: Scheme | None = None
    inputs: tuple[QParams, ...] = ()

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
            float32. Their ranges are calibrated on the training images, layer by layer, with the layers
            before quantized.

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
            f"activations={activations} is not per-tensor, but activations arrive one image at a time and "
            "share one scale; choose per_tensor."
        )
    found: list[QParams] = []

    def measure(_: int, x: Tensor) -> Tensor:
        found.append(choose(x, activations))
        return fake_quantize(x, activations, found[-1])

    with torch.no_grad():
        forward(load_digits().train_images, network.weights, network.biases, measure)
    return tuple(found)
