"""Handwritten digits, and a small network of linear layers with ReLU, the same on every machine.

Every layer computes in float64 and rounds once to float32, forward and backward. The order of summation,
which depends on the machine, changes about the 16th digit and is rounded away, unless a sum lies that close
to the midpoint of two float32 numbers. So one seed gives one network, bit for bit, whatever the instruction
set and the number of threads. In plain float32 the order alone would change the network.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from quantcore.errors import QuantError

CLASSES, PIXELS = 10, 64
_BRIGHTEST = 16
# Every third image is held out. The file repeats the digits 0..9 in order, so that with a step of 2, 4 or 5
# some digits would be missing from one of the sets.
_EVERY = 3
# (layer, its input) -> the input that the layer is given
Hook = Callable[[int, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Digits:
    """Handwritten digits of 8×8 pixels; 1,198 images for training, always the same 599 held out for testing.

    Source and license: data/digits.txt.

    Images are float32 of shape (n, 64), pixels from 0 to 1 in steps of 1/16, row by row; labels int64, (n,).
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def load_digits() -> Digits:
    """Load the images and labels; every call returns new tensors."""
    path = files("quantcore.training") / "data" / "digits.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        images = torch.from_numpy(stored["images"].reshape(-1, PIXELS)).float() / _BRIGHTEST
        labels = torch.from_numpy(stored["labels"]).long()
    held_out = torch.arange(len(labels)) % _EVERY == _EVERY - 1
    return Digits(images[~held_out], labels[~held_out], images[held_out], labels[held_out])


@dataclass(frozen=True, eq=False)
class Network:
    """Parameters, float32: for each layer ``weights`` (outputs, inputs) and ``biases`` (outputs,)."""

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]

    def logits(self, images: Tensor) -> Tensor:
        """Return one logit per class, (n, 10) float32."""
        return forward(images, self.weights, self.biases)


def forward(
    images: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], hook: Hook | None = None
) -> Tensor:
    """Run the layers; ``hook`` may change the input of each."""
    x = images
    for layer, (w, b) in enumerate(zip(weights, biases, strict=True)):
        x = hook(layer, x) if hook else x
        x = (x.double() @ w.double().T + b.double()).float()
        x = x if layer == len(weights) - 1 else x.relu()
    return x


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy over the images, float64."""
    return functional.cross_entropy(logits.double(), labels)


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Return the fraction of images whose label has the largest logit, 0 to 1.

    >>> logits = torch.tensor([[0.1, 0.9], [0.8, 0.2]])
    >>> accuracy(logits, torch.tensor([1, 1]))
    0.5
    """
    return float((logits.argmax(-1) == labels).double().mean())


def initial(hidden: tuple[int, ...], generator: torch.Generator) -> Network:
    """Draw weights and biases uniformly from ±1/√inputs, as torch.nn.Linear does.

    Raises:
        QuantError: a width is not an integer from 1 to 1,024, or there are more than 3.
    """
    sound = isinstance(hidden, tuple) and all(type(width) is int and 1 <= width <= 1024 for width in hidden)
    if not sound or len(hidden) > 3:
        raise QuantError(
            f"hidden={str(hidden)[:40]} must be the widths of up to 3 hidden layers, integers from 1 to "
            "1,024, such as (32,)."
        )
    widths = (PIXELS, *hidden, CLASSES)
    weights: list[Tensor] = []
    biases: list[Tensor] = []
    for inputs, outputs in itertools.pairwise(widths):
        bound = inputs**-0.5
        for made, shape in ((weights, (outputs, inputs)), (biases, (outputs,))):
            made.append((torch.rand(shape, generator=generator) * 2 - 1) * bound)
    return Network(tuple(weights), tuple(biases))
