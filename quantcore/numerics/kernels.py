"""From x, scale and zero_point to the code before clamping: one formula, eight orders of operations.

In exact arithmetic they are equal. float32 rounds each operation, so they differ at ties and next to them.
Which library uses which order was measured on 300,000 values near ties and is recorded in
`quantcore.conventions`. Libraries round half to even.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.numerics.rounding import Rounding, half_even


class Arithmetic(Protocol):
    """A kernel: ``s`` is the scale, or its inverse if `Kernel.inverse` is set.

    ``z`` is None where all zero points are 0; ``out`` receives the result; ``round_`` rounds in place.
    """

    def __call__(self, x: Tensor, s: Tensor, z: Tensor | None, out: Tensor, round_: Rounding = ...) -> Tensor:
        """Return ``out``."""


@dataclass(frozen=True)
class Kernel:
    """One order of operations. ``rounded``: the part of the formula that is rounded.

    ``inverse``: multiplies by float32(1/s) instead of dividing by s. ``shift_first``: adds z before rounding.
    ``fused``: rounds product and sum together, once. ``subtracts``: subtracts z from x first.
    ``half``: adds ½ last, for a rounding that truncates.
    """

    run: Arithmetic
    formula: str
    rounded: str
    inverse: bool
    shift_first: bool
    fused: bool = False
    subtracts: bool = False
    half: bool = False


def divide_round_shift(
    x: Tensor, s: Tensor, z: Tensor | None, out: Tensor, round_: Rounding = half_even
) -> Tensor:
    """round(x / s) + z."""
    round_(torch.div(x, s, out=out))
    return out if z is None else out.add_(z)


def multiply_round_shift(
    x: Tensor, s: Tensor, z: Tensor | None, out: Tensor, round_: Rounding = half_even
) -> Tensor:
    """round(x * (1/s)) + z."""
    round_(torch.mul(x, s, out=out))
    return out if z is None else out.add_(z)


def divide_shift_round(
    x: Tensor, s: Tensor, z: Tensor | None, out: Tensor, round_: Rounding = half_even
) -> Tensor:
    """round(x / s + z)."""
    torch.div(x, s, out=out)
    return round_(out if z is None else out.add_(z))


def multiply_shift_round(
    x: Tensor, s: Tensor, z: Tensor | None, out: Tensor, round_: Rounding = half_even
) -> Tensor:
    """round(x * (1/s) + z): product and sum are each rounded to float32."""
    torch.mul(x, s, out=out)
    return round_(out if z is None else out.add_(z))


def fused_shift_round(
    x: Tensor, s: Tensor, z: Tensor | None, out: Tensor, round_: Rounding = half_even
) -> Tensor:
    """round(fma(x, 1/s, z)): one rounding, as FBGEMM does on x86.

    Raises:
        QuantError: there is more than one scale; no library uses a fused kernel per channel.
    """
    if s.numel() != 1:
        raise QuantError("The fused kernel supports only one scale; choose per_tensor or another convention.")
    shift = out.new_zeros(()) if z is None else z.reshape(())
    # add with alpha is torch's fused multiply-add; a test compares it with exact arithmetic
    return round_(torch.add(shift, x, alpha=s.item(), out=out))


def multiply_shift_half_round(
    x: Tensor, s: Tensor, z: Tensor | None, out: Tensor, round_: Rounding = half_even
) -> Tensor:
    """round(x * (1/s) + (z + ½)), where round truncates, so that the result is rounded to nearest."""
    torch.mul(x, s, out=out)
    return round_(out.add_(0.5 if z is None else z + 0.5))


def subtract_multiply_half_round(
    x: Tensor, s: Tensor, z: Tensor | None, out: Tensor, round_: Rounding = half_even
) -> Tensor:
    """round((x - z) * (1/s) + ½), where z is the value of code 0."""
    torch.mul(x if z is None else torch.sub(x, z, out=out), s, out=out)
    return round_(out.add_(0.5))


def subtract_divide_round(
    x: Tensor, s: Tensor, z: Tensor | None, out: Tensor, round_: Rounding = half_even
) -> Tensor:
    """round((x - z) / s), where z is the value of code 0."""
    return round_(torch.div(x if z is None else torch.sub(x, z, out=out), s, out=out))


KERNELS: dict[str, Kernel] = {
    "A": Kernel(divide_round_shift, "round(x / s) + z", "x / s", inverse=False, shift_first=False),
    "B": Kernel(multiply_round_shift, "round(x · (1/s)) + z", "x · (1/s)", inverse=True, shift_first=False),
    "C": Kernel(divide_shift_round, "round(x / s + z)", "x / s + z", inverse=False, shift_first=True),
    "D": Kernel(
        multiply_shift_round, "round(x · (1/s) + z)", "x · (1/s) + z", inverse=True, shift_first=True
    ),
    "E": Kernel(
        fused_shift_round,
        "round(fma(x, 1/s, z))",
        "fma(x, 1/s, z)",
        inverse=True,
        shift_first=True,
        fused=True,
    ),
    "F": Kernel(
        multiply_shift_half_round,
        "round(x · (1/s) + (z + ½))",
        "x · (1/s) + (z + ½)",
        inverse=True,
        shift_first=True,
        half=True,
    ),
    "G": Kernel(
        subtract_multiply_half_round,
        "round((x - z) · (1/s) + ½)",
        "(x - z) · (1/s) + ½",
        inverse=True,
        shift_first=True,
        subtracts=True,
        half=True,
    ),
    "H": Kernel(
        subtract_divide_round,
        "round((x - z) / s)",
        "(x - z) / s",
        inverse=False,
        shift_first=True,
        subtracts=True,
    ),
}
