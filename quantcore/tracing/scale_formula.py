"""How a block's scale was computed from its range: the formula, with the block's numbers."""

import math
import re

import numpy as np

from quantcore.conventions import (
    EXTREME,
    HALF_STEP,
    SYMMETRIC_SCALES,
    Case,
    Convention,
    mantissa,
    sides_of_grid,
)
from quantcore.scheme import case_of
from quantcore.tracing.record import Numbers
from quantcore.tracing.text import given_by, inverse_of_range, number, signed


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
    rule = t.convention.scale.symmetric_scale
    if rule == "aligned_grid":
        return _aligned_grid(t, low, high)
    case = case_of(t.scheme)
    symbols = SYMMETRIC_SCALES[rule](case).symbols
    if t.convention.scale.is_power:
        limit = _end_of_powers(t, case, high)
        if limit:
            return limit
        if rule == "power_log2_wrapped" and _raw(t) > high:  # the exponent's lowest 8 bits are kept
            symbols = symbols.removesuffix(")") + " + 256)"
    return f"{symbols} = {_with_numbers(symbols, t, case, low, high)}"


def _with_numbers(symbols: str, t: Numbers, case: Case, low: float, high: float) -> str:
    """The formula with names replaced by the block's numbers."""
    extreme, half = re.search(EXTREME, symbols), re.search(HALF_STEP, symbols)
    if extreme:
        return symbols.replace(f"({extreme[0]})", number(math.copysign(high, -_raw(t))))
    if half:
        digits = mantissa(t.convention.scale.symmetric_scale, case)
        symbols = symbols.replace(half[0], number(2.0 ** (math.frexp(high)[1] - 2 - digits)))
    if case.amax in symbols:
        return symbols.replace(case.amax, number(high))
    return symbols.replace("low", signed(low)).replace("high", number(high))


def _raw(t: Numbers) -> float:
    return t.scale if t.raw_scale is None else t.raw_scale


def _aligned_grid(t: Numbers, low: float, high: float) -> str:
    """The formula from the range on the grid, since the step d is not stored."""
    steps, _, below, divisor = sides_of_grid(t.scheme.format)
    grid = f"(high - low) / {steps} = ({number(high)} - {signed(low)}) / {steps}"
    return f"{grid}, on the grid of step max(high / {divisor}, -low / {below})"


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
    steps = t.scheme.format.qmax - t.scheme.format.qmin
    a, b = signed(low), number(high)
    if c.scale.asymmetric_scale == "inverse_range":
        found = inverse_of_range(t)
        if "high - low" not in found.partition("=")[0] or "since" in found:
            return f"1 / {found}"
        return f"1 / ({steps} · (1 / (high - low))) = 1 / ({steps} · (1 / ({b} - {a})))"
    if c.range.min_range and np.float32(high) - np.float32(low) < np.float32(c.range.min_range):
        least = number(c.range.min_range)
        return f"{least} / {steps}, since high - low is less than {least}"
    overflows = high - low > float(np.finfo(np.float32).max)
    if overflows and c.scale.range_overflow == "split" and c.scale.scale_precision == "float32":
        return f"high / {steps} - low / {steps} = {b} / {steps} - {a} / {steps}"
    return f"(high - low) / {steps} = ({b} - {a}) / {steps}"
