"""The tensors of the lesson's cases, and where they come from."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from quantcore.tensors import EXAMPLES


class TensorSource(NamedTuple):
    """``source``: where a tensor comes from, as a sentence; ``load``: returns it, float32."""

    source: str
    load: Callable[[], Tensor]


def example(name: str, what: str = "Tensor and wrong table") -> TensorSource:
    """Return an example tensor; ``what``: comes from its source."""
    found = EXAMPLES[name]
    return TensorSource(f"{what}: {found.source}.", lambda: torch.from_numpy(found.load()).clone())


def values(*rows: tuple[float, ...]) -> TensorSource:
    """Return a tensor of these rows."""
    return TensorSource("The tensor was made up for this lesson.", lambda: torch.tensor(rows))


EXERCISE, GIVEN_PARAMETERS = example("int8-exercise-4x4"), example("given-parameters-5")
RANDN = example("randn-seed-0-4x4")
TWELVE, TWELVE_UNPUBLISHED = example("percentile-3x4"), example("percentile-3x4", "Tensor")
# an activation after a ReLU: no value below 0
ONE_SIDED = values((0.0, 0.4, 1.2, 5.1), (2.6, 0.0, 3.3, 0.9), (4.2, 6.0, 0.1, 2.0))
TWO_SIDED = values((-0.4, 0.4, 1.2, 2.1), (1.6, 0.0, -0.3, 0.9), (-1.1, 3.0, 0.1, 2.0))
# close to halfway between two of the 15 codes, where a first rounding changes the second
NEAR_TIES = values((1.0, 0.215, -0.36, 0.6), (-0.0715, 0.5, 0.3572, -0.93), (0.07, -0.64, 0.8, 0.786))
TINY = values((2e-6, -1.1e-6, 3e-7, 8e-7), (-1.7e-6, 5e-8, -6e-7, 1.3e-6), (9e-7, -2e-7, 1e-6, -4e-7))
