"""From a real number to a whole one: every rule works in place and exactly, also beside a tie.

=================  ====================================================  ====================
rounding           what it does                                          -2.5  -0.5  0.5  2.5
=================  ====================================================  ====================
``half_even``      nearest, ties to the even one (IEEE 754)              -2    0     0    2
``half_away``      nearest, ties away from zero (C's ``roundf``)         -3    -1    1    3
``half_up``        nearest, ties upward                                  -2    0     1    3
``floor``          down                                                  -3    -1    0    2
``ceil``           up                                                    -2    0     1    3
``toward_zero``    cut off                                               -2    0     0    2
``…_of_sum``       as the rules above, but a half is added in    as above
                   float32 first, which takes 0.49999997 to 1
``stochastic``     up with the probability of the part cut off,          at random; the mean
                   seed 0; ``stochastic_7`` has seed 7                   is the value
=================  ====================================================  ====================

NaN and the infinities stay as they are.
"""

import re
from collections.abc import Callable

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.numerics.scratch import like

Rounding = Callable[[Tensor], Tensor]  # rounds a float32 tensor in place and returns it

BELOW_HALF = 0.5 - 2.0**-25  # the number below ½
_SIGN, _HALF = torch.tensor(-(1 << 31), dtype=torch.int32), torch.tensor(0.5).view(torch.int32)
_HALVES_END = 2.0**22  # up to here float32 has every half
MAX_SEED = (1 << 32) - 1


def half_even(values: Tensor) -> Tensor:
    """Round to the nearest whole number, ties to the even one."""
    return values.round_()


def half_up(values: Tensor) -> Tensor:
    """Round to the nearest whole number, ties upward."""
    # not floor(x + 0.5): the sum rounds, and takes 0.49999997 to 1
    below = torch.floor(values)
    values.sub_(below).ge_(0.5)
    return values.add_(below)


def half_away(values: Tensor) -> Tensor:
    """Round to the nearest whole number, ties away from zero."""
    # with the number below ½ the sum reaches the next whole number from a tie, and from nothing less; what is
    # smaller is doubled, and stays below 1
    nearly = torch.clamp(values, -BELOW_HALF, BELOW_HALF, out=like(values, "signed"))
    return toward_zero(values.add_(nearly))


def _signed_half(values: Tensor) -> Tensor:
    """½ with the signs of ``values``, until the next call."""
    # on the bits, for torch.copysign takes twice as long
    signed = torch.bitwise_and(
        values.view(torch.int32), _SIGN.to(values.device), out=like(values, "signed", torch.int32)
    )
    return signed.bitwise_or_(_HALF.to(values.device)).view(torch.float32)


def half_away_of_sum(values: Tensor) -> Tensor:
    """Add a half to the magnitude, in float32, and round down, as microxcaling does."""
    return toward_zero(values.add_(_signed_half(values)))


def half_even_of_sum(values: Tensor) -> Tensor:
    """`half_away_of_sum`, but ties go to the even one."""
    magnitude = torch.abs(values, out=like(values, "magnitude"))
    if bool(magnitude.amax() < _HALVES_END) and not takes_sum(magnitude, BELOW_HALF):
        return values.round_()
    signed = _signed_half(values)
    # x - ½ is even where half of it is whole; the 1 that is taken off there has the sign of x
    tie = torch.sub(values, signed, out=like(values, "tie")).mul_(0.5)
    torch.eq(tie, torch.floor(tie, out=like(values, "integer")), out=tie)
    return toward_zero(values.add_(signed).sub_(tie.mul_(signed).mul_(2.0))).copysign_(signed)


def takes_sum(magnitude: Tensor, below_half: float) -> bool:
    """Whether some number is ``below_half``, which half_even_of_sum alone rounds up."""
    found = torch.eq(magnitude, below_half, out=like(magnitude, "below half"))
    return bool(found.amax())  # any() takes seven times as long


def floor(values: Tensor) -> Tensor:
    """Round down."""
    return values.floor_()


def ceil(values: Tensor) -> Tensor:
    """Round up."""
    return values.ceil_()


def toward_zero(values: Tensor) -> Tensor:
    """Cut off what follows the point."""
    return values.div_(1.0, rounding_mode="trunc")  # trunc_ takes 20 times as long


def unrounded(values: Tensor) -> Tensor:
    """Leave the values as they are, where rounding comes later."""
    return values


class Stochastic:
    """Round up with the probability of the part that is cut off, else down: the mean is the value.

    The probability is that part rounded up to a multiple of 2^-24, for float32 noise knows no finer one.
    One instance draws one sequence, so a tensor walked in pieces gets the noise that it gets whole.
    Gupta et al. 2015, "Deep Learning with Limited Numerical Precision", arXiv 1502.02551, section 3.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._generator: torch.Generator | None = None

    def __call__(self, values: Tensor) -> Tensor:
        """Round in place."""
        if self._generator is None:
            self._generator = torch.Generator(values.device).manual_seed(self._seed)
        noise = torch.empty_like(values).uniform_(generator=self._generator)
        below = torch.floor(values)
        values.sub_(below).gt_(noise)
        return values.add_(below)


ROUNDINGS: dict[str, Rounding] = {
    rule.__name__: rule for rule in (half_even, half_away, half_up, floor, ceil, toward_zero)
}
NAMES = (*ROUNDINGS, "stochastic")
_OF_SUMS: dict[str, Rounding] = {rule.__name__: rule for rule in (half_away_of_sum, half_even_of_sum)}


# the rules that come to a nearest whole number, on one side of a tie or its neighbour or the other
NEAREST = ("half_even", "half_away", "half_up", *_OF_SUMS)


def rounding(name: str) -> Rounding:
    """Return the rule of that name; for ``stochastic`` a fresh sequence of its seed.

    Raises:
        QuantError: no such rule, or a seed beyond 32 bits.
    """
    known = ROUNDINGS | _OF_SUMS
    if name in known:
        return known[name]
    match = re.fullmatch(r"stochastic(?:_([0-9]{1,10}))?", name) if isinstance(name, str) else None
    if not match:
        raise QuantError(
            f"{str(name)[:40]!r} is not a rounding; choose {', '.join(NAMES)} or stochastic_<seed>."
        )
    seed = int(match[1] or 0)
    if seed > MAX_SEED:
        raise QuantError(f"The seed {seed} is beyond {MAX_SEED}; choose a smaller one.")
    return Stochastic(seed)


def overflow_stays(rule: Rounding) -> tuple[bool, bool]:
    """Whether a finite number below the range, or above it, takes the format's extreme even unsaturated.

    A rule that never rounds outward there delivers the extreme, not infinity: IEEE 754-2019, 7.4.
    """
    return rule in (toward_zero, ceil), rule in (toward_zero, floor)
