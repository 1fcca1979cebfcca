"""How a symmetric scale is computed: each rule as an expression of the range's ends and largest magnitude.

Powers of two are for blocks of small floats (OCP Microscaling Formats 1.0, 6.3): 2^(e - emax), where e is
computed from max|x| and 2^emax is the largest power of two of the element's format. The exponent is at least
-127, the smallest of e8m0. Integers are read as x.xxx in binary: their scale is 2^(2 - bits) times such a
power.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.expressions import (
    EXPONENT,
    EXPONENT_CEIL,
    EXPONENT_OR_INFINITY,
    LARGER,
    LOG2,
    MAGNITUDE,
    MAXIMUM,
    MINIMUM,
    NEGATIVE,
    POWER_OF_TWO,
    Explained,
    Expression,
    Let,
    Name,
    Number,
    Operation,
    Term,
    Where,
    rounded,
    written,
)
from quantcore.formats import FloatFormat, Format, IntFormat

# EXTREME: the first element of the largest magnitude, or the bound
LOW, HIGH, AMAX, EXTREME = (Name(name) for name in ("low", "high", "max|x|", "extreme"))
_LEAST, _MOST = -127, 127  # exponents of e8m0
_SMALLEST_NORMAL = -126
_LARGEST = float(torch.finfo(torch.float32).max)


@dataclass(frozen=True)
class ScaleInputs:
    """What a rule depends on besides the range.

    ``steps``: N = qmax - qmin, without the lowest code if the scale excludes it; ``divisor``: what x is
    divided by first; ``finite``: whether infinite bounds become the largest float32.
    """

    fmt: Format
    steps: int
    divisor: float
    finite: bool


@dataclass(frozen=True, eq=False)
class Rule:
    """``scale``: of the range; ``note``: what the formula leaves out; ``low``, ``high``: the range it is for.

    ``step``: of the grid that the range is moved to, else None.
    """

    scale: Expression
    note: str = ""
    low: Expression = NEGATIVE(AMAX)
    high: Expression = AMAX
    step: Let | None = None

    def said(self, names: Mapping[str, str]) -> str:
        """Return the rule in words; ``names``: see `SchemeFacts.names`."""
        return ", ".join(filter(None, (written(self.scale, names=names), self.note)))


def _over_qmax(inputs: ScaleInputs) -> Rule:
    qmax = Number(inputs.fmt.symmetric_max)
    return Rule(AMAX / (qmax if inputs.divisor == 1 else qmax * inputs.divisor))


def _max_of_sides(inputs: ScaleInputs) -> Rule:
    above = HIGH / inputs.fmt.qmax  # unsigned codes: qmin is 0
    scale = LARGER(LOW / inputs.fmt.qmin, above) if inputs.fmt.qmin < 0 else above
    return Rule(scale, low=LOW, high=HIGH)


def _aligned_grid(inputs: ScaleInputs) -> Rule:
    steps = inputs.fmt.qmax - inputs.fmt.qmin
    # with 4 codes, 1 step above 0 would leave the lowest code unused: both sides are divided by 2
    above, below, divisor = steps // 2, -(-steps // 2), steps // 2 + (steps == 3)
    ends = HIGH / divisor, NEGATIVE(LOW) / below
    step = Let("d", MAXIMUM(*ends))

    def side(count: int) -> Expression:
        found = Number(count) * step
        return Let(written(found), MINIMUM(found, _LARGEST)) if inputs.finite else found

    note = f"where d is the larger of {written(ends[0])} and {written(ends[1])}"
    return Rule((side(above) + side(below)) / steps, note, NEGATIVE(side(below)), side(above), step)


def _signed_amax(inputs: ScaleInputs) -> Rule:
    magnitude = MAGNITUDE(EXTREME)
    return Rule(EXTREME / -(1 << (inputs.fmt.bits - 1)), low=NEGATIVE(magnitude), high=magnitude)


def _power(
    exponent: Callable[[Format], Expression], note: str, beyond: float = 2.0**_MOST, least: int | None = None
) -> Callable[[ScaleInputs], Rule]:
    """Return the rule of a power of two; ``beyond``: the scale above the largest of e8m0."""

    def rule(inputs: ScaleInputs) -> Rule:
        unit = inputs.fmt.symmetric_max_exponent if isinstance(inputs.fmt, IntFormat) else 0
        low, high = _LEAST - unit if least is None else least, _MOST - unit
        bounded = _bounded(2.0**low, 2.0**high, beyond * 2.0**-unit)
        said = note.format(low=f"2^{low}", high=f"2^{high}")
        return Rule(bounded(POWER_OF_TWO(exponent(inputs.fmt))), said)

    return rule


def _bounded(least: float, most: float, beyond: float) -> Operation:
    """Return at least the smallest scale, and ``beyond`` above the largest; the note of a rule says it."""

    def tensors(x: Tensor, out: Tensor | None = None) -> Tensor:
        return torch.where(x > most, beyond, x.clamp(min=least))

    def number(x: Any) -> Any:
        return np.float32(beyond) if x > most else np.maximum(x, np.float32(least))

    return Operation("{0}", "{0}", "{0}", tensors, number)


def _below(exponent: Expression) -> Callable[[Format], Expression]:
    return lambda fmt: exponent - fmt.symmetric_max_exponent


def _raised(exponent: Operation, mantissa: int | None = None) -> Callable[[Format], Expression]:
    """Return the exponent of max|x| plus half a step of the format's mantissa.

    A number that rounds up to the next power of two reaches it.
    """

    def of(fmt: Format) -> Expression:
        own = fmt.mantissa if isinstance(fmt, FloatFormat) else fmt.bits - 2
        digits, name = (own, "the format") if mantissa is None else (mantissa, "e2m1")
        normal = MAXIMUM(EXPONENT(AMAX), _SMALLEST_NORMAL)
        half = Let(f"half a step of {name}", POWER_OF_TWO(normal - (digits + 1)))
        return exponent(AMAX + half) - fmt.symmetric_max_exponent

    return of


def _wrapped(exponent: Any) -> Any:
    """gguf's byte is the exponent of twice the scale, cast to 8 bits without a clamp; 0 for max|x| = 0."""
    return (exponent + 128) % 256 - 128 if math.isfinite(exponent) else -128.0


def _explained(exponent: Term) -> Explained:
    more = " + 256" if _wrapped(exponent.value) > exponent.value else ""
    return Explained(f"{exponent.names.text}{more}", f"{exponent.numbers.text}{more}")


_WRAPPED = Operation(
    "{0}", "{0}", "{0}",
    lambda x, out=None: torch.where(x.isfinite(), (x + 128).remainder(256) - 128, -128.0),
    lambda x: np.float32(_wrapped(float(x))), explain=_explained,
)  # fmt: skip
_LOG2 = rounded("floor")(LOG2(AMAX))
_LOG2_OF_NORMAL = rounded("floor")(LOG2(Where(AMAX, 0, Number(2.0**_SMALLEST_NORMAL), AMAX)))
_AT_LEAST = "at least {low}, with ∞ as 2^128"
_INFINITE = "at least {low}, and infinite where the sum is 2^128"
SYMMETRIC_SCALES: Mapping[str, Callable[[ScaleInputs], Rule]] = {
    "amax_over_qmax": _over_qmax,
    "amax_over_half_range": lambda inputs: Rule(AMAX / (inputs.steps / 2)),
    "full_range": lambda inputs: Rule(Number(2) * AMAX / inputs.steps),
    "max_of_sides": _max_of_sides,
    "aligned_grid": _aligned_grid,
    "amax": lambda inputs: Rule(AMAX),
    "amax_over_half_codes": lambda inputs: Rule(AMAX / (1 << (inputs.fmt.bits - 1))),
    "signed_amax": _signed_amax,
    "signed_end": lambda inputs: replace(_signed_amax(inputs), note="the lowest if two have it"),
    "power_floor": _power(_below(EXPONENT(AMAX)), _AT_LEAST),
    "power_log2_floor": _power(
        _below(_LOG2_OF_NORMAL),
        "log2 in float32 and -126 for 0, at least {low}, and NaN above {high}",
        math.nan,
    ),
    "power_log2_wrapped": lambda inputs: Rule(
        POWER_OF_TWO(_WRAPPED(_LOG2 - inputs.fmt.symmetric_max_exponent)),
        "log2 in float32; multiplied by 2^256 below 2^-128, and 2^-128 for 0 and ∞",
    ),
    "power_even": _power(_raised(EXPONENT), _AT_LEAST),
    "power_rounded": _power(_raised(EXPONENT_OR_INFINITY), _INFINITE, math.inf),
    "power_rounded_e2m1": _power(_raised(EXPONENT_OR_INFINITY, mantissa=1), _INFINITE, math.inf),
    "power_ceil": _power(_below(EXPONENT_CEIL(AMAX)), _AT_LEAST),
    "power_log2_ceil": _power(
        lambda fmt: rounded("ceil")(LOG2(AMAX / fmt.symmetric_max)),
        "log2 in float32, clamped between {low} and {high}",
        least=_LEAST,
    ),
}


@lru_cache(maxsize=256)
def symmetric_rule(name: str, inputs: ScaleInputs) -> Rule:
    """Return a rule for a format."""
    return SYMMETRIC_SCALES[name](inputs)


@lru_cache(maxsize=256)
def inverse_of_range(name: str, inputs: ScaleInputs) -> Expression:
    """Return 1/s computed from 1/max|x|: rounded twice, as torch divides a number by a tensor."""
    if name == "amax_over_half_codes":
        return Number(1 << inputs.fmt.bits) * (Number(1) / (Number(2) * AMAX))
    return Number(inputs.fmt.symmetric_max * inputs.divisor) * (Number(1) / AMAX)
