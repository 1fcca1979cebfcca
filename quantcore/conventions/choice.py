"""A choice of a convention: its values, what depends on it, and a sentence on what it does to a scheme.

A choice is a field of one of the stages, declared with `choice`, which takes its default and its sentences.
`quantcore.differences` and the reasons of `quantcore.compare` are built from these.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import numpy as np

from quantcore import notation
from quantcore.conventions.kernels import KERNELS
from quantcore.conventions.symmetric_scales import Rule
from quantcore.errors import QuantError
from quantcore.expressions import written
from quantcore.formats import CodebookFormat, FloatFormat, Format

Precision = Literal["float32", "float64", "float16", "bfloat16"]
_LEAST_POWER, _MOST_POWER = -127, 127  # exponents of e8m0; the inverses are float32 numbers too


@dataclass(frozen=True)
class SchemeFacts:
    """One level of a scheme, which sentences depend on: x and its scales, or the scales and their scales.

    ``rules``: the record for the scheme's granularity. ``flat``: blocks cross row boundaries, so that the
    last may be shorter. ``ranged``: scales are computed from ranges; ``min_max``: the range is that of x;
    ``half_quadratic``: HQQ adjusts the zero point; ``searched``: one of ggml's searches finds the scale.
    ``scales``, ``zero_points``: the given ones, if any. ``stored``: the format that scales are quantized to,
    None if they stay float32; ``stored_in_units``: scales are quantized with scale 1.
    """

    rules: Any  # a `Convention`, whose stages have sentences on these facts
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
        """Whether a nonzero zero_point may be added, or the value of code 0, which has the scale in it."""
        if self.rules.zero_point.is_middle:
            return self.integer
        if not self.ranged:
            return any(self.zero_points) and self.integer
        return self.integer and (not self.symmetric or self.middle != 0)

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
    def stored_exactly(self) -> bool:
        """Whether the scales are powers of two and stored exactly."""
        return (
            self.symmetric
            and self.ranged
            and self.rules.scale.is_power
            and (self.stored is None or (isinstance(self.stored, FloatFormat) and self.stored.exponent == 8))
        )

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
        first = "first " * (self.rules.scale.symmetric_scale == "signed_amax")
        extreme = f"{first}{self.centered} of the largest" if self.min_max else "bound of the larger"
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


Says = Callable[[SchemeFacts], str] | Mapping[object, str]


@dataclass(frozen=True)
class Choice:
    """``at_stake``: what depends on it, as a phrase; ``says``: what it does, or a sentence per value;
    ``matters``: whether another value can change a number; ``kind``: the reason in a word or two.
    """

    at_stake: str
    says: Says
    matters: Callable[[SchemeFacts], bool]
    kind: str

    def sentence(self, value: object, facts: SchemeFacts) -> str:
        """Return what this value does to the scheme."""
        return self.says(facts) if callable(self.says) else self.says[value]


def choice(
    default: Any,
    at_stake: str,
    says: Says,
    matters: Callable[[SchemeFacts], bool] = lambda facts: True,
    kind: str = "",
    values: Iterable[str] = (),
) -> Any:
    """Declare a field of a stage with its sentences.

    ``default``: the textbook's value; ``values``: the allowed ones, if the annotation does not list them.
    """
    made = Choice(at_stake, says, matters, kind or at_stake)
    return dataclasses.field(default=default, metadata={"choice": made, "values": tuple(values)})


class Stage:
    """One stage of the arithmetic, and its choices.

    ``ALTERS``: the first result that its choices change: "parameters", "codes", or the dequantized "values".
    ``VALUES``: the allowed values, by choice, where they are listed; ``NUMBERS``: the choices that are
    numbers.
    """

    ALTERS: ClassVar[str] = "parameters"
    VALUES: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    NUMBERS: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        # once per class: resolving annotations is slow, and comparisons create many stages that differ in one
        # choice
        hints = {name: get_type_hints(cls)[name] for name in cls.__annotations__}
        listed = {
            name: (False, True) if hint is bool else get_args(hint) or vars(cls)[name].metadata["values"]
            for name, hint in hints.items()
            if get_origin(hint) is Literal or hint in (bool, str)
        }
        cls.VALUES = {name: values for name, values in listed.items() if values}
        cls.NUMBERS = tuple(name for name, hint in hints.items() if hint is float)

    def __post_init__(self) -> None:
        for name, values in self.VALUES.items():
            value = getattr(self, name)
            if value not in values or isinstance(value, bool) != isinstance(values[0], bool):
                *others, last = map(str, values)
                raise QuantError(
                    f"{name}={str(value)[:40]!r} is not valid; choose {', '.join(others)} or {last}."
                )
        for name in self.NUMBERS:
            number = notation.finite(getattr(self, name), name)
            if number < 0:
                raise QuantError(f"{name} must not be negative, but is {number:g}.")
            object.__setattr__(self, name, number)


def choices_of(stage: type[Stage]) -> dict[str, Choice]:
    """Return the choices of a stage, by name."""
    return {f.name: f.metadata["choice"] for f in dataclasses.fields(stage)}  # type: ignore[arg-type]
