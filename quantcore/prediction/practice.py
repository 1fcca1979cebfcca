"""Tensors to practice on: few digits and an easy scale, yet ties, clipping and negative values."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from quantcore.formats import IntFormat

SCALES = tuple(map(Decimal, ("0.25", "0.5", "1", "2", "4", "5", "10")))
DIGITS = 3  # significant digits of every value
ROWS, COLUMNS = 4, 6
NEAR = 40  # steps from 0: larger quotients are too hard for mental arithmetic
FAR = 300  # steps from 0: beyond that, values just outside the range have too many digits
_INSIDE = tuple(map(Decimal, ("0", "0.1", "0.2", "0.25", "0.3", "0.4", "0.6", "0.7", "0.75", "0.8", "0.9")))
_TIE = (Decimal("0.5"),)


@dataclass(frozen=True)
class Practice:
    """``x``: float32, (4, 6); ``low``, ``high``: the range that gives exactly scale and zero point."""

    x: npt.NDArray[np.float32]
    low: float
    high: float
    scale: float
    zero_point: int


def practice(fmt: IntFormat, symmetric: bool, seed: int, clipping: bool = False) -> Practice:
    """Return the practice tensor of a seed for a format.

    Every row has a tie (x / s ends in .5) and, if the range includes any, a negative value. x / s has at most
    2 decimals, x at most 3 significant digits.

    Args:
        clipping: one value per row lies outside the range (up to 8 bits); otherwise the range is the tensor's
            min to max.
    """
    random = np.random.default_rng(seed)
    scale, zero_point, bounds = _grid(fmt, symmetric, random)
    code_range = (
        fmt.qmin - zero_point,
        fmt.qmax - zero_point,
    )  # symmetric codes reach one step further below 0
    rows = [_row(bounds, code_range if clipping else None, scale, random) for _ in range(ROWS)]
    low, high = (bound * scale for bound in bounds)
    if not clipping:  # the tie and the negative value come first and must stay
        places = random.permutation(ROWS)
        rows[places[0]][-1], rows[places[1]][-1] = low, high
    x = np.array([[row[i] for i in random.permutation(COLUMNS)] for row in rows], np.float32)
    return Practice(x, float(low), float(high), float(scale), zero_point)


def _grid(fmt: IntFormat, symmetric: bool, random: Any) -> tuple[Decimal, int, tuple[int, int]]:
    """Draw an easy scale, a zero point, and bounds of the range in steps that have few digits too."""
    scales = [SCALES[i] for i in random.permutation(len(SCALES))]
    if symmetric:
        highest = fmt.qmax - fmt.middle
        tries = [(fmt.middle, (-highest, highest))]
    else:
        zeros = random.permutation(np.arange(fmt.qmin + 1, fmt.qmax))[:64]
        tries = [(int(z), (fmt.qmin - int(z), fmt.qmax - int(z))) for z in zeros]
    every = [(scale, zero, bounds) for zero, bounds in tries for scale in scales]
    few = (found for found in every if all(_short(bound * found[0]) for bound in found[2]))
    return next(few, every[0])  # no scale gives the bounds of a wide format few digits


def _row(
    bounds: tuple[int, int], code_range: tuple[int, int] | None, scale: Decimal, random: Any
) -> list[Decimal]:
    """Draw one row: a tie, a negative value, one outside ``code_range``, then any others."""
    low, high = max(bounds[0], -NEAR), min(bounds[1], NEAR)
    row = [_value(low, high, _TIE, scale, random), _value(low, 0, _INSIDE, scale, random)]
    if code_range and max(map(abs, code_range)) < FAR:
        # at least a full step: a value less than half a step outside still gets its nearest code
        lowest, highest = code_range
        above = random.random() < 0.5
        beyond = (highest + 1, highest + 5) if above else (lowest - 5, lowest - 1)
        row.append(_value(*beyond, (*_INSIDE, *_TIE), scale, random))
    return row + [_value(low, high, _INSIDE, scale, random) for _ in range(COLUMNS - len(row))]


def _value(low: int, high: int, fractions: tuple[Decimal, ...], scale: Decimal, random: Any) -> Decimal:
    """Draw a value of few digits whose x / s lies between two integers."""
    while True:
        value: Decimal = (
            int(random.integers(low, high)) + fractions[random.integers(len(fractions))]
        ) * scale
        if _short(value):
            return value


def _short(value: Decimal) -> bool:
    return len(value.normalize().as_tuple().digits) <= DIGITS
