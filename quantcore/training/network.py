"""A small network of linear layers with ReLU between, for one thread and any machine alike.

Every layer multiplies and adds in float64 and rounds once to float32, forward and backward. The order in
which a machine sums shows near the 16th digit and is rounded away, unless a sum lies that close to the middle
of two float32 numbers; so one seed gives one network, to the last bit, whatever the instruction set and the
number of threads. In plain float32 the order alone makes another network.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from quantcore.errors import QuantError
from quantcore.training.digits import CLASSES, PIXELS

# (layer, its input) -> the input as the layer shall see it
Hook = Callable[[int, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Network:
    """Parameters, float32: of each layer ``weights`` (outputs, inputs) and ``biases`` (outputs,)."""

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]

    def logits(self, images: Tensor) -> Tensor:
        """Return one number a class, (n, 10) float32."""
        return forward(images, self.weights, self.biases)


def forward(
    images: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], hook: Hook | None = None
) -> Tensor:
    """Run the layers; ``hook`` may change what each of them sees."""
    x = images
    for layer, (w, b) in enumerate(zip(weights, biases, strict=True)):
        x = hook(layer, x) if hook else x
        x = (x.double() @ w.double().T + b.double()).float()
        x = x if layer == len(weights) - 1 else x.relu()
    return x


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over the images, float64."""
    return functional.cross_entropy(logits.double(), labels)


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Return the fraction of images whose largest logit is that of their label, 0 to 1."""
    return float((logits.argmax(-1) == labels).double().mean())


def initial(hidden: tuple[int, ...], generator: torch.Generator) -> Network:
    """Draw weights and biases evenly from ±1/√inputs, as torch.nn.Linear does.

    Raises:
        QuantError: a width that is not a whole number from 1 to 1,024, or more than 3 of them.
    """
    if not isinstance(hidden, tuple) or len(hidden) > 3 or not all(map(_is_width, hidden)):
        raise QuantError(
            f"hidden={str(hidden)[:40]} must be the widths of up to 3 hidden layers, whole numbers from 1 to 1,024, "
            "such as (32,)."
        )
    widths = (PIXELS, *hidden, CLASSES)
    weights: list[Tensor] = []
    biases: list[Tensor] = []
    for inputs, outputs in itertools.pairwise(widths):
        bound = inputs**-0.5
        for made, shape in ((weights, (outputs, inputs)), (biases, (outputs,))):
            made.append((torch.rand(shape, generator=generator) * 2 - 1) * bound)
    return Network(tuple(weights), tuple(biases))


def _is_width(value: object) -> bool:
    return type(value) is int and 1 <= value <= 1024
