"""How a block's scale was computed from its range: the formula, with the block's numbers."""

import math

import numpy as np

from quantcore.conventions import INVERSE_OF_RANGE, OF_RANGE, SPLIT, Case, Convention
from quantcore.expressions import Number, written
from quantcore.scheme import case_of
from quantcore.tracing.record import Numbers
from quantcore.tracing.text import ends_of_inverse, given_by, number, range_of, signed, with_numbers


def scale_formula(t: Numbers) -> str:
    """How the scale was computed from the block's range, and then quantized, if it was."""
    if t.search is not None and t.search.of_scale is not None:
        return f"{t.search.of_scale.code} · {signed(t.search.of_scale.stored)}"
    own = _own_scale_formula(t) if t.search is None else "what the search found"
    if t.raw_scale is None:
        return own
    raw = number(t.raw_scale)
    return f"{raw} quantized ({t.scheme.scales}), where {raw} is {own}"


def _own_scale_formula(t: Numbers) -> str:
    if t.low is None or t.high is None:
        return given_by(t)
    c = t.convention
    if t.low == t.high == 0 and t.replaced:
        return f"{number(c.scale.eps_replacement)}, since the range is 0"
    formula = _symmetric(t, t.low, t.high) if t.scheme.symmetric else _asymmetric(t, c, t.low, t.high)
    if t.center is not None and "mean" not in formula:  # low and high are bounds
        formula += ", of x - mean"
    if c.scale.scale_precision == "float64":
        formula += ", in float64"
    if t.replaced:
        smallest = "= 0 in float32" if c.scale.eps < 1e-44 else f"< {number(c.scale.eps)}"
        formula += f" {smallest}; {number(c.scale.eps_replacement)} instead"
    return formula


def _symmetric(t: Numbers, low: float, high: float) -> str:
    """The rule's formula in symbols, then with the block's numbers."""
    case = case_of(t.scheme)
    rule = case.symmetric_rule
    if rule.step is not None:  # it is not stored, so the formula is that of the range on the grid
        formula = with_numbers(OF_RANGE, range_of(t))
        return f"{formula}, on the grid of step {written(rule.step.of)}"
    limit = _end_of_powers(t, case, high) if t.convention.scale.is_power else ""
    extreme = math.copysign(high, -_raw(t))
    return limit or with_numbers(rule.scale, range_of(t) | {"max|x|": high, "extreme": extreme}, case.names)


def _raw(t: Numbers) -> float:
    return t.scale if t.raw_scale is None else t.raw_scale


def _end_of_powers(t: Numbers, case: Case, high: float) -> str:
    """The formula at the limits of the powers of two; empty elsewhere."""
    raw, k = _raw(t), case.fmt.symmetric_max_exponent
    if math.isinf(high) and raw == 2.0 ** (128 - k):
        return f"2^(128 - {k}), where ∞ counts as 2^128"
    significand, exponent = math.frexp(raw)
    # the range of e8m0; integer codes are digits after the binary point, so their scales are smaller by 2^k
    unit = k if case.integer else 0
    if not math.isfinite(raw) or significand != 0.5 or abs(exponent - 1 + unit) >= 127 or high == 0:
        return f"{number(raw)}, at the limits of the powers of two, for {case.amax} = {number(high)}"
    return ""


def _asymmetric(t: Numbers, c: Convention, low: float, high: float) -> str:
    steps, numbers = t.scheme.format.qmax - t.scheme.format.qmin, range_of(t)
    if c.scale.asymmetric_scale == "inverse_range":
        return ends_of_inverse(t, "1 / ") or with_numbers(Number(1) / INVERSE_OF_RANGE, numbers)
    if c.range.min_range and np.float32(high) - np.float32(low) < np.float32(c.range.min_range):
        least = number(c.range.min_range)
        return f"{least} / {steps}, since high - low is less than {least}"
    overflows = high - low > float(np.finfo(np.float32).max)
    split = overflows and c.scale.range_overflow == "split" and c.scale.scale_precision == "float32"
    return with_numbers(SPLIT if split else OF_RANGE, numbers)
