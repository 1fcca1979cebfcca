"""A scheme as `differences` looks at it: what of its convention can reach a number at all."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from quantcore.conventions import Convention
from quantcore.formats import CodebookFormat, FloatFormat, Format, IntFormat
from quantcore.granularity import PerFlatGroup
from quantcore.numerics import KERNELS
from quantcore.qparams import largest_value
from quantcore.range_setting import Given, MinMax
from quantcore.scheme import Scheme

_LEAST_POWER, _MOST_POWER = -127, 127  # of e8m0, and those whose inverse float32 has as well
# Where no zero_point is added, these kernels are those
_WITHOUT_Z = {"C": "A", "D": "B", "E": "B"}


@dataclass(frozen=True)
class Case:
    """One level of a scheme: x and its scales, or these and theirs."""

    scheme: Scheme

    @property
    def fmt(self) -> Format:
        """What codes can be."""
        return self.scheme.format

    @cached_property
    def c(self) -> Convention:
        """The record that holds for the scheme's granularity."""
        return self.scheme.convention.at(self.scheme.granularity)

    @property
    def whole(self) -> bool:
        """Whether codes are integers."""
        return isinstance(self.fmt, IntFormat)

    @property
    def codebook(self) -> bool:
        """Whether codes are places in a table."""
        return isinstance(self.fmt, CodebookFormat)

    @property
    def flat(self) -> bool:
        """Whether blocks run on over the ends of rows, so that the last may be shorter."""
        return isinstance(self.scheme.granularity, PerFlatGroup)

    @property
    def ranged(self) -> bool:
        """Whether scales are found from ranges."""
        return not isinstance(self.scheme.range_setting, Given)

    @property
    def min_max(self) -> bool:
        """Whether the range is all of x."""
        return isinstance(self.scheme.range_setting, MinMax)

    @property
    def symmetric(self) -> bool:
        """Whether the scheme is symmetric."""
        return self.scheme.symmetric

    @property
    def asymmetric(self) -> bool:
        """Whether a zero_point is found from the range."""
        return not self.scheme.symmetric and self.ranged

    @property
    def takes_nonfinite(self) -> bool:
        """Whether NaN and infinity come through: range settings other than min-max refuse them."""
        return self.c.nan != "refuse" and (self.min_max or not self.ranged)

    @property
    def middle(self) -> int:
        """The zero_point of a symmetric scheme."""
        fmt, choice = self.fmt, self.c.unsigned_symmetric_zero_point
        if fmt.signed or choice == "zero" or not isinstance(fmt, IntFormat):
            return 0
        if choice == "observer" and fmt.bits not in (8, 16):
            return (fmt.qmin + fmt.qmax) // 2
        return fmt.middle

    @property
    def shifted(self) -> bool:
        """Whether a zero_point other than 0 may be added."""
        setting = self.scheme.range_setting
        if isinstance(setting, Given):
            return any(_numbers(setting.zero_point)) and self.whole
        return self.whole and (not self.symmetric or self.middle != 0)

    @property
    def given_shift(self) -> bool:
        """Whether the zero_point is given, and the convention takes it for a minimum."""
        return not self.ranged and self.shifted and self.c.zero_point == "shift"

    @property
    def kernel(self) -> str:
        """The kernel, or the simplest that gives the same codes where no zero_point is added."""
        if self.shifted or not self.whole:  # of small floats -0 + 0 is 0, so that an added 0 tells
            return "A" if self.codebook and self.c.kernel == "C" else self.c.kernel
        return _WITHOUT_Z.get(self.c.kernel, self.c.kernel)

    @property
    def inverts(self) -> bool:
        """Whether x is multiplied by 1/s."""
        return KERNELS[self.c.kernel].inverse

    @property
    def stored_as_values(self) -> bool:
        """Whether the scales are quantized to the values of a small float or codebook."""
        return self.scheme.scales is not None and not isinstance(self.scheme.scales.format, IntFormat)

    @property
    def stored_in_units(self) -> bool:
        """Whether the scales are stored as they are, their own scale being 1."""
        return self.scheme.scales is not None and self.scheme.scales.range_setting == Given(1.0)

    @property
    def smallest_given(self) -> float:
        """The smallest of the scales that are given, infinity where none is."""
        setting = self.scheme.range_setting
        return min(_numbers(setting.scale)) if isinstance(setting, Given) else math.inf

    @property
    def stored_exactly(self) -> bool:
        """Whether the scales are powers of two, stored as such."""
        scales = self.scheme.scales
        return (
            self.symmetric
            and self.ranged
            and self.c.symmetric_scale.startswith("power")
            and (scales is None or (isinstance(scales.format, FloatFormat) and scales.format.exponent == 8))
        )

    @property
    def exact_inverse(self) -> bool:
        """Whether every scale is a power of two, so that x · (1/s) is x / s."""
        setting = self.scheme.range_setting
        if not isinstance(setting, Given):
            return self.stored_exactly
        powers = [math.frexp(np.float32(s)) for s in _numbers(setting.scale)]
        return self.scheme.scales is None and all(
            mantissa == 0.5 and _LEAST_POWER <= exponent - 1 <= _MOST_POWER for mantissa, exponent in powers
        )

    @property
    def may_be_least(self) -> bool:
        """Whether a scale can be 2^-127, the least of e8m0."""
        setting = self.scheme.range_setting
        if isinstance(setting, Given):
            return 2.0**_LEAST_POWER in _numbers(setting.scale)
        return self.stored_exactly

    @property
    def same_scale_rule(self) -> bool:
        """Whether the rule of symmetric scales comes to the textbook's for this format."""
        fmt, rule = self.fmt, self.c.symmetric_scale
        if rule == "largest":
            return largest_value(fmt) == 1
        if not isinstance(fmt, IntFormat):
            return False
        half = largest_value(fmt)
        if rule == "half_range":
            return self.steps / 2 == half
        if rule == "whole_range":  # float32 can't add the two of 3e38, float64 can
            return self.steps / 2 == half and self.c.scale_precision == "float64"
        return rule == "larger_side" and fmt.qmin == -fmt.qmax

    @property
    def zero_value(self) -> float:
        """What stands for 0, a value of the format; 0 where the convention changes nothing."""
        return 0.0 if isinstance(self.fmt, IntFormat) else self.fmt.round_value(self.c.zero_value)

    @property
    def steps(self) -> int:
        """N of the symmetric scale."""
        fmt = self.fmt
        narrower = isinstance(fmt, IntFormat) and not fmt.narrow and fmt.bits in self.c.narrow_scale_bits
        return fmt.qmax - fmt.qmin - (fmt.signed and narrower)

    @property
    def largest(self) -> str:
        """What symmetric scales are found from, in words."""
        return "max|x|" if self.min_max else "max(|low|, |high|)"


def _numbers(value: Any) -> Iterator[float]:
    """The numbers of nested tuples."""
    if isinstance(value, tuple):
        for inner in value:
            yield from _numbers(inner)
    else:
        yield value
