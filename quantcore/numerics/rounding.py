"""Rounding to integers: every rule works in place and is exact even next to a tie.

=================  ====================================================  ====================
rounding           what it does                                          -2.5  -0.5  0.5  2.5
=================  ====================================================  ====================
``half_even``      nearest, ties to even (IEEE 754)                      -2    0     0    2
``half_away``      nearest, ties away from zero (C's ``roundf``)         -3    -1    1    3
``half_up``        nearest, ties upward                                  -2    0     1    3
``floor``          down                                                  -3    -1    0    2
``ceil``           up                                                    -2    0     1    3
``toward_zero``    truncated                                             -2    0     0    2
``…_of_sum``       like the rules above, but ½ is added in       as above
                   float32 first, so 0.49999997 becomes 1
``stochastic``     up with the probability of the fraction,              random; the mean
                   seed 0; ``stochastic_7`` has seed 7                   is the value
=================  ====================================================  ============="""

import re
from collections.abc import Callable

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.numerics.scratch import like

Rounding = Callable[[Tensor], Tensor]  # rounds a float32 tensor in place and returns it

BELOW_HALF = 0.5 - 2.0**-25  # the float32 just below ½
_SIGN, _HALF = torch.tensor(-(1 << 31), dtype=torch.int32), torch.tensor(0.5).view(torch.int32)
_HALVES_END = 2.0**22  # up to here float32 represents every half
MAX_SEED = (1 << 32) - 1


def half_even(values: Tensor) -> Tensor:
    """Round to the nearest integer, ties to even."""
    return values.round_()


def half_up(values: Tensor) -> Tensor:
    """Round to the nearest integer, ties upward."""
    # not floor(x + 0.5): the sum would be rounded, and 0.49999997 would become 1
    below = torch.floor(values)
    values.sub_(below).ge_(0.5)
    return values.add_(below)


def half_away(values: Tensor) -> Tensor:
    """Round to the nearest integer, ties away from zero."""
    # adding the float32 just below ½ lifts a tie to the next integer, but nothing smaller; a smaller
    # magnitude is doubled and stays below 1
    nearly = torch.clamp(values, -BELOW_HALF, BELOW_HALF, out=like(values, "signed"))
    return toward_zero(values.add_(nearly))


def _signed_half(values: Tensor) -> Tensor:
    """½ with the signs of ``values``, until the next call."""
    # on the bits: torch.copysign takes twice as long
    signed = torch.bitwise_and(
        values.view(torch.int32), _SIGN.to(values.device), out=like(values, "signed", torch.int32)
    )
    return signed.bitwise_or_(_HALF.to(values.device)).view(torch.float32)


def half_away_of_sum(values: Tensor) -> Tensor:
    """Add ½ to the magnitude, in float32, and truncate, as microxcaling does."""
    return toward_zero(values.add_(_signed_half(values)))


def half_even_of_sum(values: Tensor) -> Tensor:
    """`half_away_of_sum`, but ties go to even."""
    magnitude = torch.abs(values, out=like(values, "magnitude"))
    if bool(magnitude.amax() < _HALVES_END) and not takes_sum(magnitude, BELOW_HALF):
        return values.round_()
    signed = _signed_half(values)
    # x - ½ is even if half of it is an integer; the 1 subtracted then has the sign of x
    tie = torch.sub(values, signed, out=like(values, "tie")).mul_(0.5)
    torch.eq(tie, torch.floor(tie, out=like(values, "integer")), out=tie)
    return toward_zero(values.add_(signed).sub_(tie.mul_(signed).mul_(2.0))).copysign_(signed)


def takes_sum(magnitude: Tensor, below_half: float) -> bool:
    """Whether any number equals ``below_half``, which only half_even_of_sum rounds up."""
    found = torch.eq(magnitude, below_half, out=like(magnitude, "below half"))
    return bool(found.amax())  # any() takes seven times as long


def floor(values: Tensor) -> Tensor:
    """Round down."""
    return values.floor_()


def ceil(values: Tensor) -> Tensor:
    """Round up."""
    return values.ceil_()


def toward_zero(values: Tensor) -> Tensor:
    """Truncate."""
    return values.div_(1.0, rounding_mode="trunc")  # trunc_ takes 20 times as long


class Stochastic:
    """Round up with the probability of the fraction, else down: the mean is the value.

    The probability is the fraction rounded up to a multiple of 2^-24, the resolution of float32 noise. One
    instance draws one sequence, so a tensor processed in pieces gets the same noise as if processed at once.
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
_IN_WORDS = ("half to even", "half away from zero", "half up", "down", "up", "toward zero", "stochastic")
WORDS = dict(zip(NAMES, _IN_WORDS, strict=True))
_OF_SUMS: dict[str, Rounding] = {rule.__name__: rule for rule in (half_away_of_sum, half_even_of_sum)}


# the rules that round to a nearest integer; they differ only at ties and next to them
NEAREST = ("half_even", "half_away", "half_up", *_OF_SUMS)


def rounding(name: str) -> Rounding:
    """Return the rule of that name; for ``stochastic``, with a new sequence from its seed.

    Raises:
        QuantError: there is no such rule, or the seed has more than 32 bits.
    """
    known = ROUNDINGS | _OF_SUMS
    if name in known:
        return known[name]
    match = re.fullmatch(r"stochastic(?:_([0-9]{1,10}))?", name) if isinstance(name, str) else None
    if not match:
        raise QuantError(
            f"{str(name)[:40]!r} is not a rounding rule; choose {', '.join(NAMES)} or stochastic_<seed>."
        )
    seed = int(match[1] or 0)
    if seed > MAX_SEED:
        raise QuantError(f"The seed {seed} exceeds {MAX_SEED}; choose a smaller one.")
    return Stochastic(seed)


def overflow_stays(rule: Rounding) -> tuple[bool, bool]:
    """Whether a finite number below or above the range becomes the format's extreme even without saturation.

    A rule that never rounds outward on that side gives the extreme, not infinity: IEEE 754-2019, 7.4.
    """
    return rule in (toward_zero, ceil), rule in (toward_zero, floor)
