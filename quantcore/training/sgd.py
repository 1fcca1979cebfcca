"""Training as a generator: it yields one `Progress` per epoch, and stops if the next is not requested."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Generic

import torch

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.scheme import Scheme
from quantcore.training.network import Digits, Network, accuracy, cross_entropy, initial, load_digits
from quantcore.training.quantized import QuantizedNetwork
from quantcore.training.trainable import Float, LearnedScales, Learner, Parameter, StraightThrough, Trained

HIDDEN = (64,)
_LARGEST = 2.0**20  # far above any trained parameter; up to it no sum of a layer overflows float32


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
class Progress(Generic[Trained]):
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
) -> Generator[Progress[Network], None, None]:
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
) -> Generator[Progress[QuantizedNetwork], None, None]:
    """Quantization-aware training: continue training a network for the accuracy it has once quantized.

    The forward pass uses the quantized values, the backward pass the straight-through estimator. The schemes are
    those of `ptq`; without ``learned_scales`` epoch 0 equals `ptq`. With ``learned_scales`` (LSQ) the range
    setting only determines the zero points.

    Raises:
        QuantError: at once, for an unsupported scheme or a seed out of range; while it runs, if training diverges.
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
) -> Generator[Progress[Trained], None, None]:
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
    latest: Progress[Trained],
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
def _step(parameter: Parameter, gradient: torch.Tensor, rate: float, momentum: float) -> None:
    """Multiply and add separately: fused, they would round once, which not every machine does."""
    parameter.velocity.mul_(momentum).add_(gradient * parameter.factor)
    parameter.value.sub_(parameter.velocity * rate).clamp_(min=parameter.lowest)


@torch.no_grad()
def _progress(epoch: int, learner: Learner[Trained], training: Training, digits: Digits) -> Progress[Trained]:
    network = learner.network()
    loss = float(cross_entropy(network.logits(digits.train_images), digits.train_labels).float())
    held_out = accuracy(network.logits(digits.test_images), digits.test_labels)
    return Progress(epoch, training.epochs, loss, held_out, network)
