"""How a symmetric scale is computed from max|x|: each rule as a symbolic formula.

``qparams`` implements the rules under the same names; sentences and traces are built from these formulas.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from quantcore.conventions.case import Case
from quantcore.formats import FloatFormat, Format, IntFormat
from quantcore.numerics import decimal

SymmetricScale = Literal[
    "amax_over_qmax",
    "amax_over_half_range",
    "full_range",
    "max_of_sides",
    "aligned_grid",
    "amax",
    "amax_over_half_codes",
    "signed_amax",
    "power_floor",
    "power_log2_floor",
    "power_log2_wrapped",
    "power_even",
    "power_rounded",
    "power_rounded_e2m1",
    "power_ceil",
    "power_log2_ceil",
]
# phrases in a formula that a trace replaces with a number
HALF_STEP = r"half a step of (?:the format|e2m1)"
EXTREME = r"the (?:first x(?: - mean)? of the largest|bound of the larger) magnitude"


@dataclass(frozen=True)
class Formula:
    """``symbols``: the formula, with ``max|x|``, ``low`` and ``high``; ``note``: what happens at its limits."""

    symbols: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.symbols}, {self.note}" if self.note else self.symbols


Rule = Callable[[Case], Formula]


def _over(divisor: Callable[[Case], float]) -> Rule:
    return lambda case: Formula(f"{case.amax} / {decimal(divisor(case))}")


def _over_qmax(case: Case) -> Formula:
    of_values, qmax = case.rules.scale.divisor, decimal(case.fmt.symmetric_max)
    return Formula(f"{case.amax} / {qmax if of_values == 1 else f'({qmax} · {decimal(of_values)})'}")


def _max_of_sides(case: Case) -> Formula:
    fmt = case.fmt  # unsigned codes: qmin is 0
    return Formula(f"max(low / ({fmt.qmin}), high / {fmt.qmax})" if fmt.qmin < 0 else f"high / {fmt.qmax}")


def sides_of_grid(fmt: Format) -> tuple[int, int, int, int]:
    """N, the steps above and below 0 of the aligned grid, and the divisor of high."""
    steps = fmt.qmax - fmt.qmin
    # with 4 codes, 1 step above 0 would leave the lowest code unused: both sides are divided by 2
    return steps, steps // 2, -(-steps // 2), steps // 2 + (steps == 3)


def _aligned_grid(case: Case) -> Formula:
    steps, above, below, divisor = sides_of_grid(case.fmt)
    step = f"where d is the larger of high / {divisor} and -low / {below}"
    return Formula(f"({above} · d + {below} · d) / {steps}", step)


def _signed_amax(case: Case) -> Formula:
    extreme = f"the first {case.centered} of the largest magnitude" if case.min_max else "the bound of the larger magnitude"
    return Formula(f"({extreme}) / (-{1 << (case.fmt.bits - 1)})")


def mantissa(rule: str, case: Case) -> int:
    """Return the mantissa bits that a rule assumes."""
    if rule == "power_rounded_e2m1":
        return 1
    if isinstance(case.fmt, IntFormat):
        return case.fmt.bits - 2
    return case.fmt.mantissa if isinstance(case.fmt, FloatFormat) else 0


def _power(exponent: str, note: str) -> Rule:
    """A power of two; ``{m}``: max|x|, ``{k}``: the exponent of the format's largest power, ``{max}``: its max."""

    def formula(case: Case) -> Formula:
        k = case.fmt.symmetric_max_exponent
        unit = k if case.integer else 0
        text = exponent.replace("{m}", case.amax).replace("{k}", str(k))
        text = text.replace("{max}", decimal(case.fmt.symmetric_max))
        return Formula(f"2^({text})", note.format(low=f"2^{-127 - unit}", high=f"2^{127 - unit}"))

    return formula


_FLOOR = "floor(log2({m})) - {k}"
_AT_LEAST = "at least {low}, with ∞ as 2^128"
_ROUNDED = "floor(log2({m} + half a step of %s)) - {k}"
_INFINITE = "at least {low}, and infinite where the sum is 2^128"
SYMMETRIC_SCALES: Mapping[str, Rule] = {
    "amax_over_qmax": _over_qmax,
    "amax_over_half_range": _over(lambda case: case.rules.scale.steps(case.fmt) / 2),
    "full_range": lambda case: Formula(f"2 · {case.amax} / {case.rules.scale.steps(case.fmt)}"),
    "max_of_sides": _max_of_sides,
    "aligned_grid": _aligned_grid,
    "amax": lambda case: Formula(case.amax),
    "amax_over_half_codes": _over(lambda case: 1 << (case.fmt.bits - 1)),
    "signed_amax": _signed_amax,
    "power_floor": _power(_FLOOR, _AT_LEAST),
    "power_log2_floor": _power(
        _FLOOR, "log2 in float32 and -126 for 0, at least {low}, and NaN above {high}"
    ),
    "power_log2_wrapped": _power(
        _FLOOR, "log2 in float32; multiplied by 2^256 below 2^-128, and 2^-128 for 0 and ∞"
    ),
    "power_even": _power(_ROUNDED % "the format", _AT_LEAST),
    "power_rounded": _power(_ROUNDED % "the format", _INFINITE),
    "power_rounded_e2m1": _power(_ROUNDED % "e2m1", _INFINITE),
    "power_ceil": _power("ceil(log2({m})) - {k}", _AT_LEAST),
    "power_log2_ceil": _power("ceil(log2({m} / {max}))", "log2 in float32, clamped between {low} and {high}"),
}
