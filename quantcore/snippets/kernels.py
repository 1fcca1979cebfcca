"""The kernel of a convention in torch, from x to codes, including values that do not fit an integer."""

from quantcore.conventions import Convention
from quantcore.errors import QuantError
from quantcore.formats import Format
from quantcore.numerics import KERNELS
from quantcore.quantization import Quantized, may_leave_integers
from quantcore.snippets.template import render

_CODES = """
{% if zero_scales %}
divisor = torch.where({{ scale }} == 0, torch.inf, {{ scale }})  # with scale 0, every code is that of 0
{% endif %}
{% if finds_inverse %}
inverse = 1 / {{ divisor }}
{% endif %}
{% if function %}
{{ function }}
{% endif %}
{% if leaves_integers %}
values = {{ rounded }}
{% if cast == "none" %}
values = torch.where(values.isnan(), {{ nan_code }}, values)  # the result of casting NaN to an integer
{% else %}
lost = ~(values.abs() < {{ "2.0**63" if cast == "int64" else "2.0**31" }})  # NaN, or too large for {{ "int64" if cast == "int64" else "int32" }}
values = torch.where(lost, {{ "0" if cast == "low_bits" else "qmin" }}, values)
{% if negative_zero_points %}
values = torch.where(lost & (torch.tensor({{ zero_point }}) < 0), qmax, values)
{% endif %}
{% endif %}
{% endif %}
{% if wraps %}
codes = {{ values }}{{ limit }}.long()  # not clamped: the lowest {{ fmt.bits }} bits are kept
codes = ({{ wrapped }}).to({{ fmt.dtype }})
{% else %}
codes = {{ values }}.clamp(qmin, qmax).to({{ fmt.dtype }})
{% endif %}
"""
_HALF_UP = """
def half_up(v):
    return v.floor() + (v - v.floor() >= 0.5)
"""
_HALF_AWAY = """
def half_away(v):
    return (v.abs().floor() + (v.abs() - v.abs().floor() >= 0.5)).copysign(v)
"""
_HALF_AWAY_OF_SUM = """
def half_away_of_sum(v):
    return (v.abs() + 0.5).floor().copysign(v)
"""
_HALF_EVEN_OF_SUM = """
def half_even_of_sum(v):
    ties = (v.abs() - 0.5) % 2 == 0
    return ((v.abs() + 0.5).floor() - ties.float()).copysign(v)
"""
# rounding -> the function, and the lines that define it
_ROUNDINGS = {
    "half_even": ("torch.round", ""),
    "floor": ("torch.floor", ""),
    "ceil": ("torch.ceil", ""),
    "toward_zero": ("torch.trunc", ""),
    "half_up": ("half_up", _HALF_UP),
    "half_away": ("half_away", _HALF_AWAY),
    "half_away_of_sum": ("half_away_of_sum", _HALF_AWAY_OF_SUM),
    "half_even_of_sum": ("half_even_of_sum", _HALF_EVEN_OF_SUM),
}
_CAST_LIMIT = 1 << 62  # quotients near the limit need the clamp of `quantize.wrap` before the cast


def codes_source(result: Quantized, scale: str, zero_point: str) -> str:
    """Return lines that bind codes.

    ``scale`` and ``zero_point`` are expressions that broadcast with x; an empty zero_point means 0.

    Raises:
        QuantError: the rounding is stochastic.
    """
    fmt, convention = result.scheme.format, result.scheme.rules
    coding, nonfinite = convention.coding, convention.nonfinite
    zero_scales = result.scales is not None and bool((result.scale == 0).any())
    divisor = "divisor" if zero_scales else scale
    rounded, is_sum = _rounded(convention, divisor, zero_point)
    leaves_integers = not convention.refuses_nonfinite and may_leave_integers(
        result.x, result.params, result.scheme, convention
    )
    wraps = coding.overflow == "wrap"
    far = wraps and bool(result.x.abs().max().double() / result.scale.abs().min() > _CAST_LIMIT / 2)
    return render(
        _CODES,
        scale=scale,
        zero_point=zero_point,
        zero_scales=zero_scales,
        divisor=divisor,
        finds_inverse=KERNELS[coding.kernel].inverse and result.params.inverse is None,
        function=_ROUNDINGS[coding.rounding][1].strip(),
        rounded=rounded,
        leaves_integers=leaves_integers,
        values="values" if leaves_integers else f"({rounded})" if is_sum else rounded,
        cast=nonfinite.cast,
        nan_code={"qmin": "qmin", "qmax": "qmax"}.get(nonfinite.nan, "0"),
        negative_zero_points=nonfinite.cast == "int32"
        and zero_point
        and bool((result.params.zero_point < 0).any()),
        wraps=wraps,
        limit=".clamp(-(2**62), 2**62)" if far else "",
        wrapped=_wrapped(fmt),
        fmt=fmt,
    )


def _rounded(convention: Convention, divisor: str, zero_point: str) -> tuple[str, bool]:
    """The kernel as an expression, and whether it is a sum, which needs parentheses before a method call."""
    coding = convention.coding
    if coding.rounding not in _ROUNDINGS:
        raise QuantError("Stochastic rounding uses quantcore's own random numbers; use the quantcore script.")
    kernel, round_ = KERNELS[coding.kernel], _ROUNDINGS[coding.rounding][0]
    quotient = "x * inverse" if kernel.inverse else f"x / {divisor}"
    if kernel.subtracts and zero_point:
        quotient, zero_point = f"(x - {zero_point}) * inverse", ""
    shift = zero_point
    if kernel.half:
        shift = f"({zero_point} + 0.5)" if zero_point else "0.5"
    if not shift:
        return f"{round_}({quotient})", False
    if kernel.fused:
        # add with alpha is one operation with one rounding, as in the library
        return f"{round_}(torch.add(torch.tensor(float({shift})), x, alpha=inverse.item()))", False
    if kernel.shift_first:
        return f"{round_}({quotient} + {shift})", False
    return f"{round_}({quotient}) + {shift}", True


def _wrapped(fmt: Format) -> str:
    """The lowest bits of unclamped codes."""
    half, modulus = 1 << (fmt.bits - 1), 1 << fmt.bits
    return f"(codes + {half}) % {modulus} - {half}" if fmt.signed else f"codes % {modulus}"
