"""What each value of each choice does, in words: complete tables, so that no value borrows another's sentence.

A test finds a sentence for every value that a record or a type of `conventions.choices` has, and computes what
it says.
"""

import math
from collections.abc import Callable, Mapping

import torch

from quantcore.comparison.textbook_case import Case
from quantcore.formats import IntFormat
from quantcore.numerics import KERNELS, Stochastic, rounding
from quantcore.qparams import largest_power, largest_value
from quantcore.range_setting import HalfQuadratic

Words = Callable[[Case], str]
_FLOAT32_MAX = "3.4e38"


def exactly(value: float) -> str:
    """A number in few letters that loses nothing: ``2^-23``, ``1e-10``."""
    mantissa, exponent = math.frexp(value)
    return f"2^{exponent - 1}" if mantissa == 0.5 and abs(exponent) > 8 else f"{value:.9g}"


def _kernel(case: Case) -> str:
    formula = KERNELS[case.kernel].formula
    formula = formula.replace("round", _DOWN.get(case.c.rounding, "round"), 1)
    if not case.shifted:
        formula = formula.replace("(z + ½)", "½").replace("(x - z)", "x")
        formula = formula.removesuffix(" + z").replace("+ z", "+ 0").replace(", z)", ", 0)")
    elif case.c.zero_point == "shift":
        formula = formula.replace("z", "min")
    return f"codes are {formula}" + (", so that -0 becomes 0" if formula.endswith("+ 0)") else "")


_DOWN = {"toward_zero": "trunc", "floor": "floor", "ceil": "ceil"}
_ROUNDINGS = {
    "half_even": "ties are rounded to even",
    "half_away": "ties are rounded away from zero",
    "half_up": "ties are rounded up",
    "floor": "values are rounded down",
    "ceil": "values are rounded up",
    "toward_zero": "values are truncated",
    "half_away_of_sum": "rounding adds ½{} to the magnitude in float32, then truncates",
    "half_even_of_sum": "rounding adds ½{} to the magnitude in float32, then truncates; ties go to even",
}


def _rounding(case: Case) -> str:
    name = case.c.rounding
    if isinstance(rounding(name), Stochastic):
        return "values are rounded up or down at random"
    return _ROUNDINGS[name].format("" if case.whole else " of a step")


def _nan_of(case: Case) -> str:
    """What comes to NaN: where NaN in x is refused with its scale, infinity over an infinite scale."""
    return "∞ / ∞" if case.c.bad_scale == "nan" and case.min_max else "NaN"


def _nan(case: Case) -> str:
    c, fmt = case.c, case.fmt
    if isinstance(fmt, IntFormat):
        if c.cast != "none":
            return f"{_nan_of(case)} becomes code {max(0, fmt.qmin) if c.cast == 'low_bits' else fmt.qmin}"
        zero = max(0, fmt.qmin)  # is clamped as any other
        return _NAN[c.nan].format(_nan_of(case), zero=zero, qmin=fmt.qmin, qmax=fmt.qmax)
    if c.cast == "low_bits":
        return f"NaN and infinity become code {int(fmt.encode(0.0))} (value 0)"
    if c.nan_value:
        return f"NaN becomes {c.nan_value:g} with the sign of the NaN"
    code = int(fmt.encode(math.nan))
    value = float(fmt.decode(torch.tensor(code)))
    return "NaN stays NaN" if math.isnan(value) else f"NaN becomes code {code} (value {value:g})"


_NAN = {
    "zero": "{} becomes code {zero}",
    "qmin": "{} becomes code {qmin}",
    "qmax": "{} becomes code {qmax}",
    "undefined": "{} has no code; {zero} is shown",
}


def _cast(case: Case) -> str:
    fmt = case.fmt
    lost = _nan_of(case) if case.min_max else "NaN and values beyond 2^31"
    wrapped = f", or {fmt.qmax} where z is negative" if case.shifted else ""
    return _CAST[case.c.cast].format(lost, zero=max(0, fmt.qmin), qmin=fmt.qmin, wrapped=wrapped)


_CAST = {
    "int32": "the code of {} is {qmin}{wrapped}",
    "int64": "values beyond 2^63 become code {qmin}",
    "low_bits": "values beyond 2^31 become code {zero}",
}


def _widen_range(case: Case) -> str:
    fmt, step = case.fmt, exactly(case.c.smallest_scale)
    steps = fmt.qmax - fmt.qmin
    start = f"a range with (high - low) / {steps} < {step} is widened"
    if not case.symmetric:
        return f"{start} by {steps} · {step} above"
    return f"{start} by {-(-steps // 2)} · {step} below and {steps // 2} · {step} above"


def _smallest_range(case: Case) -> str:
    what = case.largest if case.symmetric else "high - low"
    return f"{what} is at least {exactly(case.c.smallest_range)}"


def _symmetric_scale(case: Case) -> str:
    return "the scale is " + SYMMETRIC_SCALES[case.c.symmetric_scale](case)


def _positive_steps(case: Case) -> str:
    return f"{case.largest} / {largest_value(case.fmt):g}"


def _half_range(case: Case) -> str:
    return f"{case.largest} / {case.steps / 2:g}"


def _whole_range(case: Case) -> str:
    return f"2 · {case.largest} / {case.steps}"


def _larger_side(case: Case) -> str:
    fmt = case.fmt
    return f"the larger of low / {fmt.qmin} and high / {fmt.qmax}" if fmt.qmin < 0 else f"high / {fmt.qmax}"


def _regridded(case: Case) -> str:
    steps = case.fmt.qmax - case.fmt.qmin
    above, below = steps // 2, -(-steps // 2)
    step = f"d the larger of high / {above + (steps == 3)} and -low / {below}"
    return f"({above} · d + {below} · d) / {steps}, {step}"


def _half_codes(case: Case) -> str:
    return f"{case.largest} / {1 << (case.fmt.bits - 1)}"


def _signed_extreme(case: Case) -> str:
    extreme = "the first x of the largest magnitude" if case.min_max else "the end of the larger magnitude"
    return f"{extreme} / {-(1 << (case.fmt.bits - 1))}"


def _power(exponent: str, ends: str) -> Words:
    """A power of two; ``exponent``: m stands for max|x|, k for the format's largest power, M for its max."""

    def words(case: Case) -> str:
        fmt = case.fmt
        m, k = case.largest, str(largest_power(fmt))
        unit = largest_power(fmt) if case.whole else 0
        text = exponent.replace("{m}", m).replace("{k}", k).replace("{max}", f"{largest_value(fmt):g}")
        return f"2^({text}), {ends.format(low=f'2^{-127 - unit}', high=f'2^{127 - unit}')}"

    return words


_AT_LEAST = "at least {low}, with ∞ as 2^128"
_ROUNDED = "floor(log2({m} + half a step of {step})) - {k}"
SYMMETRIC_SCALES: Mapping[str, Words] = {
    "positive_steps": _positive_steps,
    "half_range": _half_range,
    "whole_range": _whole_range,
    "larger_side": _larger_side,
    "regridded": _regridded,
    "largest": lambda case: case.largest,
    "half_codes": _half_codes,
    "signed_extreme": _signed_extreme,
    "power_floor": _power("floor(log2({m})) - {k}", _AT_LEAST),
    "power_log2_floor": _power(
        "floor(log2({m})) - {k}", "log2 in float32 and -126 for 0, at least {low}, and NaN above {high}"
    ),
    "power_log2_wrapped": _power(
        "floor(log2({m})) - {k}",
        "log2 in float32; below 2^-128 it is 2^256 times as much, and for 0 and ∞ 2^-128",
    ),
    "power_even": _power(_ROUNDED.replace("{step}", "the format"), _AT_LEAST),
    "power_rounded": _power(
        _ROUNDED.replace("{step}", "the format"), "at least {low}, and infinite where the sum is 2^128"
    ),
    "power_rounded_e2m1": _power(
        _ROUNDED.replace("{step}", "e2m1"), "at least {low}, and infinite where the sum is 2^128"
    ),
    "power_ceil": _power("ceil(log2({m})) - {k}", _AT_LEAST),
    "power_log2_ceil": _power("ceil(log2({m} / {max}))", "log2 in float32, kept between {low} and {high}"),
}


def _inverse(case: Case) -> str:
    if case.c.inverse == "of_levels":
        return "1/s is (1 / the scale of the scales) / the value of the scale's code"
    if case.c.symmetric_scale == "half_codes":
        return f"1/s is {1 << case.fmt.bits} · (1 / (2 · {case.largest}))"
    return f"1/s is {largest_value(case.fmt) * case.c.divisor:g} · (1 / {case.largest})"


def _divisor(case: Case) -> str:
    divisor = f"{case.c.divisor:g}"
    first = f"x is divided by {divisor} first"
    if not case.ranged:
        return first
    return f"{first}, and the scale is {case.largest} / ({largest_value(case.fmt):g} · {divisor})"


def _asymmetric_scale(case: Case) -> str:
    steps = case.fmt.qmax - case.fmt.qmin
    return (
        f"1/s is {steps} · (1 / (high - low)), at most 20000, and 1 if high - low is at most 0.0001, "
        "and the scale is 1 / (1/s)"
    )


def _scale_precision(case: Case) -> str:
    both = case.asymmetric and case.c.zero_point == "integer" and case.c.zero_point_scale == "raw"
    return "scale and zero point are found in float64" if both else "the scale is found in float64"


def _smallest_scale(case: Case) -> str:
    c = case.c
    if c.smallest_scale == 0:
        return "a scale of 0 stays 0" + (" until it is stored" if case.scheme.scales is not None else "")
    if c.smallest_scale == c.replacement:
        return f"no scale is below {exactly(c.smallest_scale)}"
    return f"a scale below {exactly(c.smallest_scale)} is replaced by {exactly(c.replacement)}"


def _coded_with(case: Case) -> str:
    what = "scale and min before they are" if case.c.zero_point == "shift" else "the scale before it is"
    return f"codes are found with {what} stored"


def _zero_scale(case: Case) -> str:
    return "a scale of 0 divides like any other: 0 / 0 is NaN"


def _coded_least(case: Case) -> str:
    return f"where the scale is 2^-127, x is divided by {exactly(case.c.coded_least)}"


def _zero_point(case: Case) -> str:
    moved = ", then moved by half_quadratic" if isinstance(case.scheme.range_setting, HalfQuadratic) else ""
    return _ZERO_POINTS[case.c.zero_point].format(of_range=", with min = low" if case.ranged else "") + moved


_ZERO_POINTS = {
    "float": "the zero point is -low · (1/s), not rounded",
    "float_rounded": "the zero point is round(-low · (1/s)), not clamped",
    "shift": "there is no zero point: x̂ is q · s + min{of_range}",
}


def _nan_zero_point(case: Case) -> str:
    fmt = case.fmt
    value = {"zero": 0, "wrapped": fmt.qmin if fmt.qmin == 0 else fmt.qmax}[case.c.nan_zero_point]
    return f"a zero point that comes to NaN is {value}"


_DECODING: Mapping[str, Words] = {
    "divided": lambda case: "x̂ is q / (1/s)" + (" + the mean" if case.c.center == "mean" else ""),
    "of_largest": lambda case: f"x̂ is (q · {case.largest}) · (1 / {largest_value(case.fmt):g})",
}
# choice -> its sentences, by value or made for the case; in the order in which they are said
SENTENCES: Mapping[str, Words | Mapping[object, str]] = {
    "center": {"mean": "the mean of x is subtracted first and added last"},
    "divisor": _divisor,
    "kernel": _kernel,
    "inverse": _inverse,
    "bad_inverse": {"one": "a 1/s that is infinite or NaN is 1"},
    "rounding": _rounding,
    "overflow": {"wrap": "codes that do not fit wrap around"},
    "coded_with": _coded_with,
    "coded_least": _coded_least,
    "coded_smallest": lambda case: (
        f"x is divided by {exactly(case.c.coded_smallest)} where the scale is smaller"
    ),
    "short_block": {"divided": "in a shorter last block x is divided by s"},
    "least_value": lambda case: f"x / s is at least {exactly(case.c.least_value)}",
    "zero_value": lambda case: f"what rounds to 0 becomes {exactly(case.zero_value)}",
    "scale_precision": _scale_precision,
    "symmetric_scale": _symmetric_scale,
    "narrow_scale_bits": {},  # changes the sentence of symmetric_scale
    "unsigned_symmetric_zero_point": lambda case: f"the zero point is {case.middle}",
    "asymmetric_scale": _asymmetric_scale,
    "zero_in_range": {
        "low": "the range is extended down to 0, but not up to it",
        "no": "the range need not include 0",
    },
    "range_overflow": {"infinite": "a range wider than float32 gives an infinite scale"},
    "finite_range": {True: f"infinity in x counts as {_FLOAT32_MAX}, the largest float32"},
    "widen_range": _widen_range,
    "smallest_range": _smallest_range,
    "smallest_scale": _smallest_scale,
    "replacement": lambda case: f"a scale of 0 is replaced by {exactly(case.c.replacement)}",
    "zero_scale": _zero_scale,
    "bad_scale": {
        "nan": "a scale of NaN is refused",
        "nonfinite": "a scale that is not finite is refused",
    },
    "zero_point": _zero_point,
    "zero_point_order": {"round_difference": "the zero point is rounded after the subtraction"},
    "zero_point_precision": {"float64": "the zero point is found in float64"},
    "zero_point_scale": {"raw": "the zero point is found with the scale before it is replaced"},
    "replaced_zero_point": {
        "zero": "the zero point of a scale that is replaced is 0",
        "zero_if_asymmetric": "the zero point of a scale that is replaced is 0",
    },
    "nan_zero_point": _nan_zero_point,
    "nan": _nan,
    "nan_value": {},  # changes the sentence of nan
    "cast": _cast,
    "decoding": lambda case: _DECODING[case.c.decoding](case),
    "code_bits": lambda case: f"a code takes {case.c.code_bits:g} bits",
}
