"""Tensors made from a distribution, a shape and a seed: small enough for a link."""

import math
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from quantcore.errors import QuantError
from quantcore.tensors.distributions import DISTRIBUTIONS, Distribution, Float32Array
from quantcore.tensors.shapes import check_shape
from quantcore.wording import short

# Elements drawn at a time. If a distribution draws twice per element, the tensor of a seed depends on this value:
# changing it would change the tensors of existing links.
BLOCK = 2**20


@dataclass(frozen=True)
class Generated:
    """A recipe for a tensor: ``Generated("normal", (8, 8), seed=3, parameters=(("std", 2.0),))``.

    Flat and hashable, so that it fits into a link and can be the key of a cache. Parameters that are not
    given take their defaults from `DISTRIBUTIONS`.

    Raises:
        QuantError: there is no such distribution or parameter, or a value is out of range.
    """

    distribution: str = "outlier_channel"
    shape: tuple[int, ...] = (8, 8)
    seed: int = 0
    parameters: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        kind = _kind(self.distribution)
        check_shape(self.shape)
        if isinstance(self.seed, bool) or not isinstance(self.seed, Integral) or not 0 <= self.seed < 2**63:
            raise QuantError(f"The seed is {short(str(self.seed))}; give an integer from 0 to 2^63 - 1.")
        known = {p.name: p for p in kind.parameters}
        for name, value in self.parameters:
            if name not in known:
                names = ", ".join(known) or "none"
                raise QuantError(
                    f"{self.distribution} has no parameter {short(str(name))}; its parameters: {names}."
                )
            low, high = known[name].low, known[name].high
            is_number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
            if not is_number or not low <= value <= high:
                raise QuantError(
                    f"{name} of {self.distribution} is {short(str(value))}; "
                    f"give a number from {low:g} to {high:g}."
                )

    def values(self) -> dict[str, float]:
        """Return the value of every parameter, given or default."""
        defaults = {p.name: p.default for p in _kind(self.distribution).parameters}
        return {**defaults, **{name: float(value) for name, value in self.parameters}}


def generate(spec: Generated) -> Float32Array:
    """Return the tensor of ``spec``: float32, C order, the same on every machine.

    Memory: the tensor and a few blocks of 4 MB, never a float64 copy.

    Raises:
        QuantError: the parameters contradict each other (uniform with low ≥ high).
    """
    kind, values = _kind(spec.distribution), spec.values()
    rng = np.random.Generator(np.random.PCG64(int(spec.seed)))
    x = np.empty(spec.shape, dtype=np.float32)
    flat = x.reshape(-1)
    for start in range(0, flat.size, BLOCK):
        stop = min(start + BLOCK, flat.size)
        flat[start:stop] = kind.draw(rng, stop - start, values)
    if kind.finish:
        kind.finish(rng, x, values)
    return x


def _kind(name: str) -> Distribution:
    if not isinstance(name, str) or name not in DISTRIBUTIONS:
        raise QuantError(
            f"There is no distribution {short(str(name))}; choose one of {', '.join(DISTRIBUTIONS)}."
        )
    return DISTRIBUTIONS[name]
