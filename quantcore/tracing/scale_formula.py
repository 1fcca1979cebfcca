"""How a block's scale came from its range, as a formula with the numbers put in."""

import math
from collections.abc import Callable

import numpy as np

from quantcore.conventions import Convention
from quantcore.formats import IntFormat
from quantcore.range_setting import MinMax
from quantcore.tracing.record import Numbers
from quantcore.tracing.text import inverse_of_range, number, signed


def scale_formula(t: Numbers) -> str:
    """How the scale came from the block's range, and how it was quantized itself."""
    own = _own_scale_formula(t)
    if t.raw_scale is None:
        return own
    return f"{number(t.raw_scale)} quantized ({t.scheme.scales}), of {own}"


def _own_scale_formula(t: Numbers) -> str:
    if t.low is None or t.high is None:
        return "given by hand"
    c = t.convention
    if t.low == t.high == 0 and t.replaced:
        return f"{number(c.scale.eps_replacement)}, since the range is 0"
    if t.scheme.symmetric:
        formula = _SYMMETRIC.get(c.scale.symmetric_scale, _power)(t, c, t.low, t.high)
    else:
        formula = _asymmetric(t, c, t.low, t.high)
    if c.scale.scale_precision == "float64":
        formula += ", in float64"
    if t.replaced:
        smallest = "= 0 in float32" if c.scale.eps < 1e-44 else f"< {number(c.scale.eps)}"
        formula += f" {smallest}; {number(c.scale.eps_replacement)} instead"
    return formula


def _name(t: Numbers) -> str:
    return "max|x|" if isinstance(t.scheme.range_setting, MinMax) else "max(|low|, |high|)"


def _steps(t: Numbers, c: Convention) -> int:
    fmt = t.scheme.format
    return fmt.qmax - fmt.qmin - (fmt.signed and not fmt.narrow and fmt.bits in c.scale.narrow_scale_bits)


def _positive_steps(t: Numbers, c: Convention, low: float, high: float) -> str:
    divisor = number(t.scheme.format.symmetric_max)
    if c.scale.divisor != 1:
        divisor = f"({divisor} · {number(c.scale.divisor)})"
    return f"{_name(t)} / {divisor} = {number(high)} / {divisor}"


def _half_range(t: Numbers, c: Convention, low: float, high: float) -> str:
    divisor = number(_steps(t, c) / 2)
    return f"{_name(t)} / {divisor} = {number(high)} / {divisor}"


def _whole_range(t: Numbers, c: Convention, low: float, high: float) -> str:
    return f"2 · {_name(t)} / {_steps(t, c)} = 2 · {number(high)} / {_steps(t, c)}"


def _larger_side(t: Numbers, c: Convention, low: float, high: float) -> str:
    fmt, side = t.scheme.format, f"{number(high)} / {t.scheme.format.qmax}"
    if fmt.qmin >= 0:  # unsigned codes have nothing to divide low by
        return f"high / {fmt.qmax} = {side}"
    left = f"{signed(low)} / ({fmt.qmin})"
    return f"max(low / ({fmt.qmin}), high / {fmt.qmax}) = max({left}, {side})"


def _regridded(t: Numbers, c: Convention, low: float, high: float) -> str:
    steps = t.scheme.format.qmax - t.scheme.format.qmin
    above, below = steps // 2 + (steps == 3), -(-steps // 2)
    grid = f"(high - low) / {steps} = ({number(high)} - {signed(low)}) / {steps}"
    return f"{grid}, the grid whose step is max(high / {above}, -low / {below})"


def _largest(t: Numbers, c: Convention, low: float, high: float) -> str:
    return f"{_name(t)} = {number(high)}"


def _half_codes(t: Numbers, c: Convention, low: float, high: float) -> str:
    divisor = 1 << (t.scheme.format.bits - 1)
    return f"{_name(t)} / {divisor} = {number(high)} / {divisor}"


def _signed_extreme(t: Numbers, c: Convention, low: float, high: float) -> str:
    divisor = f"(-{1 << (t.scheme.format.bits - 1)})"
    extreme = math.copysign(high, -_raw(t))
    return f"(the x of the largest magnitude) / {divisor} = {number(extreme)} / {divisor}"


def _raw(t: Numbers) -> float:
    return t.scale if t.raw_scale is None else t.raw_scale


_OF_RAISED = {"power_even", "power_rounded", "power_rounded_e2m1"}


def _power(t: Numbers, c: Convention, low: float, high: float) -> str:
    """A power of two; the rules are those of `scales_of_floats`."""
    fmt, raw, most = t.scheme.format, _raw(t), f"{_name(t)} = {number(high)}"
    if math.isinf(high) and raw == 2.0 ** (128 - fmt.symmetric_max_exponent):
        return f"2^(128 - {fmt.symmetric_max_exponent}), where ∞ counts as 2^128"
    mantissa, exponent = math.frexp(raw)
    # what e8m0 has, and of integers, which are digits after the point, that times a power
    unit = fmt.symmetric_max_exponent if isinstance(fmt, IntFormat) else 0
    if not math.isfinite(raw) or mantissa != 0.5 or abs(exponent - 1 + unit) >= 127 or high == 0:
        return f"{number(raw)}, where the powers of two end, of {most}"
    if c.scale.symmetric_scale == "power_log2_ceil":
        largest = number(fmt.symmetric_max)
        return f"2^ceil(log2({_name(t)} / {largest})) = 2^ceil(log2({number(high)} / {largest}))"
    name, with_numbers, round_ = _name(t), number(high), "floor"
    if c.scale.symmetric_scale in _OF_RAISED:
        half = number(2.0 ** (math.frexp(high)[1] - 2 - _digits(t, c)))
        name, with_numbers = f"{name} + half a step", f"{with_numbers} + {half}"
    elif c.scale.symmetric_scale == "power_ceil":
        round_ = "ceil"
    least = str(fmt.symmetric_max_exponent)
    if c.scale.symmetric_scale == "power_log2_wrapped" and raw > high:
        least += " + 256"  # the exponent's lowest 8 bits are kept
    return f"2^({round_}(log2({name})) - {least}) = 2^({round_}(log2({with_numbers})) - {least})"


def _digits(t: Numbers, c: Convention) -> int:
    """The binary digits after the point that the rule counts with."""
    fmt = t.scheme.format
    if c.scale.symmetric_scale == "power_rounded_e2m1":
        return 1
    return fmt.bits - 2 if isinstance(fmt, IntFormat) else getattr(fmt, "mantissa", 0)


_SYMMETRIC: dict[str, Callable[[Numbers, Convention, float, float], str]] = {
    "amax_over_qmax": _positive_steps,
    "amax_over_half_range": _half_range,
    "full_range": _whole_range,
    "max_of_sides": _larger_side,
    "aligned_grid": _regridded,
    "amax": _largest,
    "amax_over_half_codes": _half_codes,
    "signed_amax": _signed_extreme,
}


def _asymmetric(t: Numbers, c: Convention, low: float, high: float) -> str:
    steps = t.scheme.format.qmax - t.scheme.format.qmin
    a, b = signed(low), number(high)
    if c.scale.asymmetric_scale == "inverse_range":
        found = inverse_of_range(t)
        if "high - low" not in found.partition("=")[0] or "since" in found:
            value, _, why = found.partition(", ")
            return f"1 / {value}, 1/s being {why}"
        return f"1 / ({steps} · (1 / (high - low))) = 1 / ({steps} · (1 / ({b} - {a})))"
    if c.range.min_range and np.float32(high) - np.float32(low) < np.float32(c.range.min_range):
        least = number(c.range.min_range)
        return f"{least} / {steps}, since high - low is less than {least}"
    overflows = high - low > float(np.finfo(np.float32).max)
    if overflows and c.scale.range_overflow == "split" and c.scale.scale_precision == "float32":
        return f"high / {steps} - low / {steps} = {b} / {steps} - {a} / {steps}"
    return f"(high - low) / {steps} = ({b} - {a}) / {steps}"
