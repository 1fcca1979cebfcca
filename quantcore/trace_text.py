"""The formulas of a trace in words, with its numbers put in."""

from typing import Protocol

import numpy as np

from quantcore.conventions import Convention
from quantcore.formats import Format, IntFormat
from quantcore.range_setting import Given, MinMax
from quantcore.scheme import Scheme


class Traced(Protocol):
    """What of a `trace.Trace` the formulas need."""

    # ruff: noqa: D102 (described at `trace.Trace`)
    @property
    def scheme(self) -> Scheme: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...
    @property
    def scale(self) -> float: ...
    @property
    def raw_scale(self) -> float | None: ...
    @property
    def zero_point(self) -> float: ...
    @property
    def replaced(self) -> bool: ...
    @property
    def shifted(self) -> float: ...
    @property
    def overflow(self) -> str | None: ...


def number(value: float) -> str:
    """The shortest decimal that reads back as the same float32."""
    if float(value).is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(np.float32(value))


def signed(value: float) -> str:
    """The number, in brackets if it is negative."""
    return f"({number(value)})" if value < 0 else number(value)


def scale_formula(t: Traced) -> str:
    """How the scale came from the block's range, and how it was quantized itself."""
    own = _own_scale_formula(t)
    if t.raw_scale is None:
        return own
    return f"{number(t.raw_scale)} quantized ({t.scheme.scales}), of {own}"


def _own_scale_formula(t: Traced) -> str:
    if t.low is None or t.high is None:
        return "given by hand"
    c = t.scheme.convention.at(t.scheme.granularity)
    if t.low == t.high == 0 and t.replaced:
        return f"{number(c.replacement)}, since the range is 0"
    formula = _symmetric(t, c, t.low, t.high) if t.scheme.symmetric else _asymmetric(t, c, t.low, t.high)
    if c.scale_precision == "float64":
        formula += ", in float64"
    if t.replaced:
        smallest = "= 0 in float32" if c.smallest_scale < 1e-44 else f"< {number(c.smallest_scale)}"
        formula += f" {smallest}; {number(c.replacement)} instead"
    return formula


def _symmetric(t: Traced, c: Convention, low: float, high: float) -> str:
    fmt = t.scheme.format
    steps = fmt.qmax - fmt.qmin
    if c.symmetric_scale == "larger_side":
        return f"max(low / {fmt.qmin}, high / {fmt.qmax}), low = {number(low)}, high = {number(high)}"
    if c.symmetric_scale == "regridded":
        above, below = steps // 2 + (steps == 3), -(-steps // 2)
        grid = f"(high - low) / {steps} = ({number(high)} - {signed(low)}) / {steps}"
        return f"{grid}, the grid whose step is max(high / {above}, -low / {below})"
    name = "max|x|" if isinstance(t.scheme.range_setting, MinMax) else "max(|low|, |high|)"
    narrowed = steps - (fmt.signed and not fmt.narrow and fmt.bits in c.narrow_scale_bits)
    if c.symmetric_scale == "whole_range":
        return f"2 · {name} / {narrowed} = 2 · {number(high)} / {narrowed}"
    if not isinstance(fmt, IntFormat):
        divisor = number(fmt.max)
    else:
        divisor = number(narrowed / 2 if c.symmetric_scale == "half_range" else (1 << (fmt.bits - 1)) - 1)
    return f"{name} / {divisor} = {number(high)} / {divisor}"


def _asymmetric(t: Traced, c: Convention, low: float, high: float) -> str:
    steps = t.scheme.format.qmax - t.scheme.format.qmin
    a, b = signed(low), number(high)
    if c.asymmetric_scale == "inverse_range":
        return f"1 / ({steps} · (1 / (high - low))) = 1 / ({steps} · (1 / ({b} - {a})))"
    overflows = high - low > float(np.finfo(np.float32).max)
    if overflows and c.range_overflow == "split" and c.scale_precision == "float32":
        return f"high / {steps} - low / {steps} = {b} / {steps} - {a} / {steps}"
    return f"(high - low) / {steps} = ({b} - {a}) / {steps}"


def zero_point_formula(t: Traced) -> str:
    """How the zero_point came from the range and the scale."""
    fmt = t.scheme.format
    if isinstance(t.scheme.range_setting, Given) or t.low is None:
        return "given by hand"
    c = t.scheme.convention.at(t.scheme.granularity)
    if t.replaced and c.replaced_zero_point != "computed" and t.zero_point == 0:
        return "0, since the scale was replaced"
    if t.scheme.symmetric:
        return _middle(fmt, c)
    quotient = f"{number(t.low)} / {signed(t.scale)}"
    if c.zero_point != "integer":
        text = f"-low · (1/s) = {signed(-t.low)} · (1 / {signed(t.scale)})"
        return f"round({text})" if c.zero_point == "float_rounded" else text
    end = ", in float64" if c.zero_point_precision == "float64" else ""
    if c.zero_point_order == "round_difference":
        return f"clamp(round(qmin - low / s)) = clamp(round({fmt.qmin} - {signed(t.low)} / {signed(t.scale)})){end}"
    return f"clamp(qmin - round(low / s)) = clamp({fmt.qmin} - round({quotient})){end}"


def _middle(fmt: Format, c: Convention) -> str:
    if fmt.signed:
        return "0, symmetric and signed"
    if c.unsigned_symmetric_zero_point == "zero":
        return "0, symmetric"
    if c.unsigned_symmetric_zero_point == "observer" and fmt.bits not in (8, 16):
        return f"({fmt.qmin} + {fmt.qmax}) // 2, symmetric and unsigned"
    return f"2^{fmt.bits - 1}, symmetric and unsigned"


def code_formula(t: Traced) -> tuple[str, str]:
    """Name and formula of the step that brings a value into the format."""
    fmt = t.scheme.format
    if t.overflow == "cast":
        return "code q (cast)", f"what {t.scheme.convention.library} makes of {number(t.shifted)}"
    if t.scheme.convention.overflow == "saturate":
        what, how = "clamp", f"clamp({number(t.shifted)}, {fmt.qmin}, {fmt.qmax})"
    else:
        what, how = "wrap", f"{number(t.shifted)} modulo 2^{fmt.bits}, in {fmt.qmin - fmt.narrow}..{fmt.qmax}"
    return f"code q ({what})", how + (", since it does not fit" if t.overflow else "")
