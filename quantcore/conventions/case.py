"""The properties of a scheme that decide whether a choice can change a number, as plain values."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantcore.conventions.kernels import KERNELS
from quantcore.conventions.symmetric_scales import Rule
from quantcore.expressions import written
from quantcore.formats import CodebookFormat, FloatFormat, Format

_LEAST_POWER, _MOST_POWER = -127, 127  # exponents of e8m0; the inverses are float32 numbers too


@dataclass(frozen=True)
class Case:
    """One level of a scheme: x and its scales, or the scales and their scales.

    ``rules``: the record for the scheme's granularity. ``flat``: blocks cross row boundaries, so that the
    last may be shorter. ``ranged``: scales are computed from ranges; ``min_max``: the range is that of x;
    ``half_quadratic``: HQQ adjusts the zero point; ``searched``: one of ggml's searches finds the scale.
    ``scales``, ``zero_points``: the given ones, if any. ``stored``: the format that scales are quantized to,
    None if they stay float32; ``stored_in_units``: scales are quantized with scale 1.
    """

    rules: Any  # a `Convention`, whose stages have sentences on cases
    fmt: Format
    symmetric: bool
    flat: bool
    ranged: bool
    min_max: bool
    half_quadratic: bool = False
    searched: bool = False
    scales: tuple[float, ...] = ()
    zero_points: tuple[float, ...] = ()
    stored: Format | None = None
    stored_in_units: bool = False

    @property
    def integer(self) -> bool:
        """Whether codes are integers."""
        return self.fmt.has_zero_point

    @property
    def codebook(self) -> bool:
        """Whether codes are indices into a table."""
        return isinstance(self.fmt, CodebookFormat)

    @property
    def asymmetric(self) -> bool:
        """Whether a zero_point is computed from the range."""
        return not self.symmetric and self.ranged

    @property
    def takes_nonfinite(self) -> bool:
        """Whether NaN and infinity are accepted: range settings other than min-max refuse them."""
        return self.rules.nonfinite.nan != "refuse" and (self.min_max or not self.ranged)

    @property
    def middle(self) -> int:
        """The zero_point of a symmetric scheme."""
        return int(self.rules.zero_point.middle(self.fmt))

    @property
    def shifted(self) -> bool:
        """Whether a nonzero zero_point may be added."""
        if not self.ranged:
            return any(self.zero_points) and self.integer
        return self.integer and (not self.symmetric or self.middle != 0)

    @property
    def given_shift(self) -> bool:
        """Whether the zero_point is given, and the convention reads it as a minimum."""
        return not self.ranged and self.shifted and self.rules.zero_point.is_min

    @property
    def kernel(self) -> str:
        """The kernel, or the simplest that gives the same codes where no zero_point is added."""
        kernel = self.rules.coding.kernel
        if self.shifted or not self.integer:  # for small floats an added 0 matters: -0 + 0 is 0
            return "A" if self.codebook and kernel == "C" else kernel
        own = KERNELS[kernel]
        simpler = (name for name, k in KERNELS.items() if written(k.unrounded) == written(own.quotient))
        return next(simpler) if own.adds_z_last else kernel

    @property
    def inverts(self) -> bool:
        """Whether x is multiplied by 1/s."""
        return KERNELS[self.rules.coding.kernel].inverse

    @property
    def stored_as_values(self) -> bool:
        """Whether the scales are quantized to the values of a small float or codebook."""
        return self.stored is not None and not self.stored.has_zero_point

    @property
    def stored_exactly(self) -> bool:
        """Whether the scales are powers of two and stored exactly."""
        return (
            self.symmetric
            and self.ranged
            and self.rules.scale.is_power
            and (self.stored is None or (isinstance(self.stored, FloatFormat) and self.stored.exponent == 8))
        )

    @property
    def smallest_given(self) -> float:
        """The smallest of the given scales; infinity if none are given."""
        return min(self.scales, default=math.inf)

    @property
    def exact_inverse(self) -> bool:
        """Whether every scale is a power of two, so that x · (1/s) is x / s."""
        if self.ranged:
            return self.stored_exactly
        powers = [math.frexp(np.float32(s)) for s in self.scales]
        return self.stored is None and all(
            mantissa == 0.5 and _LEAST_POWER <= exponent - 1 <= _MOST_POWER for mantissa, exponent in powers
        )

    @property
    def may_be_least(self) -> bool:
        """Whether a scale can be 2^-127, the smallest of e8m0."""
        return self.stored_exactly if self.ranged else 2.0**_LEAST_POWER in self.scales

    @property
    def amax(self) -> str:
        """What symmetric scales are computed from, in words."""
        return f"max|{self.centered}|" if self.min_max else "max(|low|, |high|)"

    @property
    def symmetric_rule(self) -> Rule:
        """How a symmetric scale is computed."""
        rule: Rule = self.rules.scale.rule(self.fmt, self.rules.range.finite_range)
        return rule

    @property
    def names(self) -> dict[str, str]:
        """What the names in the rule of a symmetric scale stand for."""
        extreme = f"first {self.centered} of the largest" if self.min_max else "bound of the larger"
        return {"max|x|": self.amax, "extreme": f"(the {extreme} magnitude)"}

    @property
    def centered(self) -> str:
        """What is quantized: ``x``, or what is left of it without its mean."""
        return "x - mean" if self.rules.scale.center == "mean" else "x"

    @property
    def nan(self) -> str:
        """What gives NaN: infinity over an infinite scale if NaN scales are refused, otherwise NaN itself."""
        return "∞ / ∞" if self.rules.scale.bad_scale == "nan" and self.min_max else "NaN"


def exactly(value: float) -> str:
    """Format a number briefly and exactly: ``2^-23``, ``1e-10``."""
    mantissa, exponent = math.frexp(value)
    return f"2^{exponent - 1}" if mantissa == 0.5 and abs(exponent) > 8 else f"{value:.9g}"
