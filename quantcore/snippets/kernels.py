"""The kernel of a convention in torch, from x to codes, including values that do not fit an integer."""

from quantcore.conventions import KERNELS
from quantcore.errors import QuantError
from quantcore.expressions import DEFINITIONS, without, written
from quantcore.formats import Format
from quantcore.numerics import Stochastic, rounding
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
    kernel, rule = KERNELS[coding.kernel], rounding(coding.rounding)
    if isinstance(rule, Stochastic):
        raise QuantError("Stochastic rounding uses quantcore's own random numbers; use the quantcore script.")
    code = kernel.code(rule) if zero_point else without(kernel.code(rule), "z")
    rounded = written(code, "torch", {"s": divisor, "1/s": "inverse", "z": zero_point, "½": "0.5"})
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
        finds_inverse=kernel.inverse and result.params.inverse is None,
        function=DEFINITIONS.get(coding.rounding, "").strip(),
        rounded=rounded,
        leaves_integers=leaves_integers,
        values="values" if leaves_integers else rounded if kernel.shift_first or not zero_point else f"({rounded})",
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


def _wrapped(fmt: Format) -> str:
    """The lowest bits of unclamped codes."""
    half, modulus = 1 << (fmt.bits - 1), 1 << fmt.bits
    return f"(codes + {half}) % {modulus} - {half}" if fmt.signed else f"codes % {modulus}"
