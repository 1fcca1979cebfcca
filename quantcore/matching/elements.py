"""The numbers that a scheme computes for single elements on the way to their codes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.conventions import KERNELS, Kernel
from quantcore.expressions import without, written
from quantcore.formats import IntFormat
from quantcore.matching.hypotheses.corruption import (
    Corruption,
    Kinds,
    arithmetic,
    mistaken_zero_point,
)
from quantcore.matching.hypotheses.reproduce import kernel_inputs
from quantcore.qparams import choose_qparams
from quantcore.scheme import Scheme


@dataclass(frozen=True)
class Element:
    """The numbers of one element, including the mistakes of the corruption.

    ``value``: what is rounded by ``rule``; ``unclamped``: the code before the clamp; ``added``: z if it is added after
    rounding; ``lowest_used``: whether any given code is the format's lowest; ``beyond``: whether codes outside
    the format are clamped, wrapped or kept.
    """

    x: float
    scale: float
    z: float
    value: float
    unclamped: float
    added: float
    expected: int
    got: int
    kernel: Kernel
    rule: str
    format: IntFormat
    lowest_used: bool = True
    beyond: str = "clamped"

    @property
    def named(self) -> str:
        """What is rounded, as a formula."""
        kernel = KERNELS["D"] if self.kernel.fused else self.kernel
        return written(without(kernel.unrounded, "½", *(() if self.z or kernel.subtracts else "z")))

    @property
    def own(self) -> float:
        """The rounded number that would give the code."""
        return self.got - self.added


def elements(
    x: Tensor, codes: Tensor, expected: Tensor, scheme: Scheme, corruption: Corruption, places: Tensor
) -> list[Element]:
    """Return the elements at flat indices of x."""
    inputs = kernel_inputs(x, scheme, choose_qparams(x, scheme), corruption).at(places)
    kernel, fmt, kinds = inputs.kernel, scheme.format, corruption.computed
    assert isinstance(fmt, IntFormat)
    convention = scheme.rules
    z = mistaken_zero_point(kinds, inputs.z)
    value = kernel.run(inputs.x, inputs.s, z, torch.empty_like(inputs.x), None)
    added = torch.zeros(()) if kernel.shift_first else z
    unclamped = arithmetic(kinds, convention, inputs.x, inputs.s, inputs.z)
    columns = [
        inputs.x,
        inputs.scale,
        z,
        value,
        unclamped,
        added,
        *(c.reshape(-1)[places] for c in (expected, codes)),
    ]
    rows = zip(*(c.expand(len(places)).tolist() for c in columns), strict=True)
    lowest_used, beyond = bool((codes == fmt.qmin).any()), _beyond(kinds, convention.coding.overflow)
    return [
        Element(xi, s, zi, v - kernel.half / 2, w, a, int(e), int(g), kernel, convention.coding.rounding, fmt,
                lowest_used, beyond)
        for xi, s, zi, v, w, a, e, g in rows
    ]  # fmt: skip


def _beyond(kinds: Kinds, overflow: str) -> str:
    if "unclamped" in kinds:
        return "kept"
    return "wrapped" if overflow == "wrap" or "wrapped" in kinds else "clamped"
