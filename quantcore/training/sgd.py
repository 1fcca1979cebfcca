"""Training as a generator: it yields one `Epoch` after another, and stops if the next is not requested.

Gradient descent trains the float network, or the network quantized at every step (QAT, LSQ).
"""

import dataclasses
import math
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.granularity import block_shape
from quantcore.qparams import QParams, choose_qparams
from quantcore.quantization import apply
from quantcore.range_setting import Given
from quantcore.scheme import Scheme
from quantcore.training.network import Digits, Network, accuracy, cross_entropy, forward, initial, load_digits
from quantcore.training.quantized import QuantizedNetwork, block_sums, calibrate, fake_quantize, ptq

Trained = TypeVar("Trained", Network, QuantizedNetwork)
_SMALLEST_SCALE = torch.finfo(torch.float32).tiny  # no step may make a scale 0 or negative
HIDDEN = (64,)
_LARGEST = 2.0**20  # far above any trained parameter; up to it no sum of a layer overflows float32


@dataclass(eq=False)
class Trainable:
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

    parameters: list[Trainable]

    def logits(self, images: Tensor, latest: Trained) -> Tensor:
        """Return one logit per class, with gradients; ``latest``: `network` at the start of the epoch."""
        ...

    def network(self) -> Trained:
        """Return the network learned so far."""
        ...


class Float:
    """The network itself: weights and biases in float32."""

    def __init__(self, network: Network) -> None:
        self.weights = [Trainable(w) for w in network.weights]
        self.biases = [Trainable(b) for b in network.biases]
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
        self.input_scales: list[Trainable] = []
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
            f"Zero points in {scheme.convention.name} are not integers, which learned scales require; choose "
            "another library, or take the scales from the scheme."
        )
    sums = block_sums(x.abs(), block_shape(scheme.granularity, tuple(x.shape)))
    scale = 2 * (sums / _block_sizes(x, scheme)) / _steps(chosen, scheme).sqrt()
    return QParams(torch.where(scale < _SMALLEST_SCALE, chosen.scale, scale), chosen.zero_point)


def _scale(params: QParams, scheme: Scheme, count: Tensor | int) -> Trainable:
    return Trainable(params.scale, 1 / (_steps(params, scheme) * count).sqrt(), _SMALLEST_SCALE)


def _steps(params: QParams, scheme: Scheme) -> Tensor:
    """Return Q of the paper: the number of codes above the zero point, in block form; 1 if there is none."""
    return (scheme.format.qmax - params.zero_point).clamp(min=1).float()


def _block_sizes(x: Tensor, scheme: Scheme) -> Tensor:
    return block_sums(torch.ones_like(x), block_shape(scheme.granularity, tuple(x.shape)))


@dataclass(frozen=True)
class Training:
    """Stochastic gradient descent with momentum; the learning rate decreases linearly to 0.

    Raises:
        QuantError: a value is out of range.
    """

    epochs: int = 20
    learning_rate: float = 0.2
    momentum: float = 0.9
    batch: int = 32

    def __post_init__(self) -> None:
        for name, low, high in (("epochs", 0, 1000), ("batch", 1, 10_000)):
            value = notation.integer(getattr(self, name), name)
            if not low <= value <= high:
                raise QuantError(f"{name}={value} is outside {low}..{high:,}; choose a number in that range.")
            object.__setattr__(self, name, value)
        rate = notation.finite(self.learning_rate, "learning_rate")
        if not 0 < rate <= 10:
            raise QuantError(f"learning_rate={rate:g} must be greater than 0 and at most 10; try 0.1.")
        momentum = notation.finite(self.momentum, "momentum")
        if not 0 <= momentum < 1:
            raise QuantError(f"momentum={momentum:g} must be at least 0 and less than 1; 0.9 is common.")


TRAINING = Training()
TUNING = Training(
    epochs=10, learning_rate=0.02
)  # starts from a trained network: with larger steps the ranges never converge


@dataclass(frozen=True, eq=False)
class Epoch(Generic[Trained]):
    """The state of training after an epoch; epoch 0 is before the first step.

    ``loss``: mean cross-entropy over the training images. ``accuracy``: fraction of the held-out images
    classified correctly, 0 to 1. Both belong to ``network``, which does not change as training continues.
    """

    epoch: int
    epochs: int
    loss: float
    accuracy: float
    network: Trained


def train(
    training: Training = TRAINING, seed: int = 0, hidden: tuple[int, ...] = HIDDEN
) -> Generator[Epoch[Network], None, None]:
    """Train a float network, from 64 pixels to 10 digits, from random weights.

    >>> *_, last = train(Training(epochs=2))
    >>> last.accuracy > 0.8
    True

    Raises:
        QuantError: at once, for a seed or widths out of range; while it runs, if training diverges.
    """
    generator = _generator(seed)
    return _descend(Float(initial(hidden, generator)), training, generator)


def qat(
    network: Network,
    weights: Scheme,
    activations: Scheme | None = None,
    training: Training = TUNING,
    seed: int = 0,
    learned_scales: bool = False,
) -> Generator[Epoch[QuantizedNetwork], None, None]:
    """Continue training a network for the accuracy it has once quantized (quantization-aware training).

    The forward pass uses the quantized values, the backward pass the straight-through estimator. The schemes
    are those of `ptq`; without ``learned_scales`` epoch 0 equals `ptq`. With ``learned_scales`` (LSQ) the
    range setting only determines the zero points.

    Raises:
        QuantError: at once, for an unsupported scheme or a seed out of range; later, if training diverges.
    """
    generator = _generator(seed)
    learner: Learner[QuantizedNetwork]
    learner = (LearnedScales if learned_scales else StraightThrough)(network, weights, activations)
    learner.network()  # rejects unsupported schemes before the first epoch is requested
    return _descend(learner, training, generator)


def _generator(seed: int) -> torch.Generator:
    number = notation.integer(seed, "seed")
    if not 0 <= number < 1 << 63:
        raise QuantError(f"seed={number} is outside 0..2^63-1; choose a number in that range.")
    return torch.Generator().manual_seed(number)


def _descend(
    learner: Learner[Trained], training: Training, generator: torch.Generator
) -> Generator[Epoch[Trained], None, None]:
    digits = load_digits()
    latest = _progress(0, learner, training, digits)
    yield latest
    for epoch in range(1, training.epochs + 1):
        # grad mode is per thread, and code that runs between two epochs must find its own setting
        with torch.enable_grad():
            _epoch(learner, latest, training, digits, generator)
        latest = _progress(epoch, learner, training, digits)
        yield latest


def _epoch(
    learner: Learner[Trained],
    latest: Epoch[Trained],
    training: Training,
    digits: Digits,
    generator: torch.Generator,
) -> None:
    order = torch.randperm(len(digits.train_labels), generator=generator)
    batches = torch.split(order, training.batch)
    for i, batch in enumerate(batches):
        logits = learner.logits(digits.train_images[batch], latest.network)
        loss = cross_entropy(logits, digits.train_labels[batch])
        gradients = torch.autograd.grad(loss, [p.value for p in learner.parameters])
        rate = training.learning_rate * (1 - (latest.epoch + i / len(batches)) / training.epochs)
        for parameter, gradient in zip(learner.parameters, gradients, strict=True):
            _step(parameter, gradient, rate, training.momentum)
            if not parameter.value.abs().max() <= _LARGEST:
                raise QuantError(
                    f"Training diverged in epoch {latest.epoch + 1}: its parameters grew without bound. "
                    f"Choose a learning rate below {training.learning_rate:g}."
                )


@torch.no_grad()
def _step(parameter: Trainable, gradient: torch.Tensor, rate: float, momentum: float) -> None:
    """Multiply and add separately: fused, they would round once, which not every machine does."""
    parameter.velocity.mul_(momentum).add_(gradient * parameter.factor)
    parameter.value.sub_(parameter.velocity * rate).clamp_(min=parameter.lowest)


@torch.no_grad()
def _progress(epoch: int, learner: Learner[Trained], training: Training, digits: Digits) -> Epoch[Trained]:
    network = learner.network()
    loss = float(cross_entropy(network.logits(digits.train_images), digits.train_labels).float())
    held_out = accuracy(network.logits(digits.test_images), digits.test_labels)
    return Epoch(epoch, training.epochs, loss, held_out, network)
