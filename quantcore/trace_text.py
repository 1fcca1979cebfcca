"""The formulas of a trace in words, with its numbers put in."""

import numpy as np

from quantcore.conventions import Convention
from quantcore.formats import Format
from quantcore.range_setting import Given
from quantcore.rounding import ROUNDINGS
from quantcore.scales_of_floats import largest_value
from quantcore.trace_record import Numbers

_RULES = dict(
    zip(
        ROUNDINGS,
        ("half to even", "half away from zero", "half up", "down", "up", "toward zero"),
        strict=True,
    )
)


def number(value: float) -> str:
    """The shortest decimal that reads back as the same float32."""
    if float(value).is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(np.float32(value))


def signed(value: float) -> str:
    """The number, in brackets if it is negative."""
    return f"({number(value)})" if value < 0 else number(value)


def rule(t: Numbers) -> str:
    """How the convention rounds."""
    name = t.scheme.convention.rounding
    if t.kernel.half:
        return "cut off"
    if name.endswith("_of_sum"):
        return f"{_RULES[name.removesuffix('_of_sum')]}, of |v| + 0.5 in float32"
    return _RULES.get(name, "up or down by chance")


def factor_formula(t: Numbers) -> str:
    """Where the factor that x is multiplied with came from."""
    c = t.convention
    if c.asymmetric_scale == "inverse_range" and t.low is not None:
        return "as kept, before s was made of it"
    if c.inverse == "of_range" and t.high is not None and t.raw_scale is None:
        return f"{number(largest_value(t.scheme.format) * c.divisor)} · (1 / max|x|), kept beside s"
    if c.inverse == "of_levels" and t.raw_scale is not None:
        return "(1 / the scale of the scales) / the value of the scale's code, kept beside s"
    if t.factor == 0:
        return "0, since a scale that is stored as 0 brings all to 0"
    text = f"1 / {signed(t.coded_scale)}, float32"
    if t.coded_scale == t.scale:
        return text
    if c.coded_with == "raw" and t.coded_scale == t.raw_scale:
        return f"{text}; the scale before it was stored"
    return f"{text}; what s = {number(t.scale)} counts as here"


def zero_point_formula(t: Numbers) -> str:
    """How the zero_point came from the range and the scale."""
    fmt, c = t.scheme.format, t.convention
    if isinstance(t.scheme.range_setting, Given) or t.low is None:
        return "given by hand"
    if t.replaced and c.replaced_zero_point != "computed" and t.zero_point == 0:
        return "0, since the scale was replaced"
    if t.scheme.symmetric:
        return _middle(fmt, c)
    if c.zero_point == "shift":
        stored = "" if t.scheme.scales is None else f", quantized ({t.scheme.scales})"
        return f"low = {number(t.low)}{stored}"
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


def code_formula(t: Numbers) -> tuple[str, str]:
    """Name and formula of the step that brings a value into the format."""
    fmt = t.scheme.format
    if t.overflow == "cast":
        return "code q (cast)", f"what {t.scheme.convention.library} makes of {number(t.shifted)}"
    if t.scheme.convention.overflow == "saturate":
        what, how = "clamp", f"clamp({number(t.shifted)}, {fmt.qmin}, {fmt.qmax})"
    else:
        what, how = "wrap", f"{number(t.shifted)} modulo 2^{fmt.bits}, in {fmt.qmin - fmt.narrow}..{fmt.qmax}"
    return f"code q ({what})", how + (", since it does not fit" if t.overflow else "")
