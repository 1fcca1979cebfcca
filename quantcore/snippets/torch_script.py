"""The arithmetic of one scheme on one tensor, as one would write it in torch.

`arithmetic` writes only the lines that this tensor needs: a scale of 0 is handled only if a block has one.
The order of operations is that of `quantize`, so the codes are bit-identical.
"""

import torch
from torch import Tensor

from quantcore.conventions import DECODINGS, KERNELS
from quantcore.errors import QuantError
from quantcore.expressions import DEFINITIONS, without, written
from quantcore.formats import Format, IntFormat
from quantcore.notation import write_call
from quantcore.numerics import Stochastic, rounding
from quantcore.quantization import Quantized, may_leave_integers
from quantcore.range_setting import MIN_MAX, Percentile
from quantcore.scheme import Scheme
from quantcore.snippets.blocks import low_high, range_dtype, spread_source
from quantcore.snippets.parameter_lines import ParameterLines, parameters_of
from quantcore.snippets.script import render
from quantcore.tensors import HALF, Array, array_source

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
{% if cast == "int64" %}
lost = ~(values.abs() < 2.0**63)  # NaN, or too large for int64
{% else %}
lost = ~(values.abs() < 2.0**31)  # NaN, or too large for int32
{% endif %}
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
_CAST_LIMIT = 1 << 62  # quotients near the limit need the clamp of `expressions.wrap` before the cast
_ARITHMETIC = '''
qmin, qmax = {{ fmt.qmin }}, {{ fmt.qmax }}

{% if flat %}
x = x.flatten()  # groups continue across rows
{% endif %}
{% if widened %}
x = x.float()  # {{ widened }} computes in float32
{% endif %}
{% if flat or widened %}

{% endif %}
{% if given %}
{{ given }}
{% else %}
{% if functions %}

{{ functions }}

{% endif %}
{% if percentile %}

def percentile(rows, p):
    """The p-th percentile of each row, interpolated linearly in float64."""
    rows = rows.double().sort(-1).values
    place = p / 100 * (rows.shape[-1] - 1)
    k = int(place)
    below, above = rows[..., k], rows[..., min(k + 1, rows.shape[-1] - 1)]
    return (below + (above - below) * (place - k)).float()

{% endif %}
{{ low_high }}

{{ lines }}
{% endif %}
{% if scale == "s" %}

# expand the parameters from blocks to elements
s = scale{{ spread }}
{% endif %}
{% if zero_point == "z" %}
z = zero_point{{ spread }}
{% endif %}
{% if spread_inverse %}
inverse = inverse{{ spread }}
{% endif %}

{{ codes }}
x_hat = {{ x_hat }}
{% if flat %}
codes, x_hat = codes.reshape({{ shape }}), x_hat.reshape({{ shape }})
{% endif %}
print(codes)
print(x_hat)
'''
_GIVEN = """
# parameters {{ who }}
scale = {{ scale }}
{% if zero_point %}
zero_point = {{ zero_point }}
{% endif %}
{% if inverse %}
inverse = {{ inverse }}  # stored with the scale
{% endif %}
"""


def codes_source(result: Quantized, scale: str, zero_point: str, defined: str = "") -> str:
    """Return lines that bind codes.

    ``scale`` and ``zero_point`` are expressions that broadcast with x; an empty zero_point means 0.
    ``defined``: functions that the script has before.

    Raises:
        QuantError: the rounding is stochastic.
    """
    fmt, convention = result.scheme.format, result.computed.rules
    coding, nonfinite = convention.coding, convention.nonfinite
    may_be_zero = result.scales is not None or convention.storage.zero_scale == "zero_inverse"
    zero_scales = may_be_zero and bool((result.scale == 0).any())
    divisor = "divisor" if zero_scales else scale
    kernel, rule = KERNELS[coding.kernel], rounding(coding.rounding)
    function = DEFINITIONS.get(coding.rounding, "").strip()
    if isinstance(rule, Stochastic):
        raise QuantError("Stochastic rounding uses quantcore's own random numbers; use the quantcore script.")
    code = kernel.code(rule) if zero_point else without(kernel.code(rule), "z")
    rounded = written(code, "torch", {"s": divisor, "1/s": "inverse", "z": zero_point, "½": "0.5"})
    leaves_integers = not convention.refuses_nonfinite and may_leave_integers(
        result.x, result.params, result.computed, convention
    )
    wraps, adds_last = coding.overflow == "wrap", bool(zero_point) and not kernel.shift_first
    far = wraps and bool(result.x.abs().max().double() / result.scale.abs().min() > _CAST_LIMIT / 2)
    return render(
        _CODES,
        scale=scale,
        zero_point=zero_point,
        zero_scales=zero_scales,
        divisor=divisor,
        finds_inverse=kernel.inverse and result.params.inverse is None,
        function="" if function in defined else function,
        rounded=rounded,
        leaves_integers=leaves_integers,
        values="values" if leaves_integers else f"({rounded})" if adds_last else rounded,
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
    """Return the lowest bits of unclamped codes."""
    half, modulus = 1 << (fmt.bits - 1), 1 << fmt.bits
    return f"(codes + {half}) % {modulus} - {half}" if fmt.signed else f"codes % {modulus}"


def arithmetic(result: Quantized) -> str:
    """Return lines that bind codes and x_hat, and print both; they need x, torch and itertools.

    Scale and zero point are computed by the lines of the scheme's program; those that are given, or that a
    search or the scheme's own scales have changed, are written as numbers.

    Raises:
        QuantError: the scheme needs more than integers with one scale and one zero_point per block.
    """
    _check_supported(result)
    shape, coding = tuple(result.x.shape), result.computed.rules.coding
    widened = coding.coding_dtype == "float32" and result.dtype != torch.float32
    dtype = range_dtype(result, torch.float32 if widened else result.dtype)
    lines = parameters_of(result, dtype, _scale_dtype(result))
    scale, zero_point = _names(result, lines)
    spread = spread_source(result)
    return render(
        _ARITHMETIC,
        fmt=result.scheme.format,
        flat=result.blocked_shape != shape,
        shape=shape,
        widened=result.scheme.convention.name if widened else "",
        given="" if lines else _given(result),
        functions=lines.functions if lines else "",
        percentile=isinstance(result.scheme.range_setting, Percentile),
        low_high=low_high(result, lines.starts) if lines else "",
        lines="\n".join(lines.lines) if lines else "",
        scale=scale,
        zero_point=zero_point,
        spread=spread,
        spread_inverse=bool(lines and lines.has_inverse and spread and scale == "s"),
        codes=codes_source(result, scale, zero_point, lines.functions if lines else ""),
        x_hat=_x_hat(result, scale, zero_point),
    )


def _x_hat(result: Quantized, scale: str, zero_point: str) -> str:
    """Return the expression that dequantizes; torch rounds each operation to the dtype of its tensors."""
    rules = result.computed.rules.decoding
    dtype, own = getattr(torch, rules.decoding_dtype), _scale_dtype(result)
    q = "codes.float()" if dtype == torch.float32 else f"codes.to({dtype})"
    # of several scales, torch takes the dtype into account; one number has that of the other operand
    s = scale if own == dtype or not _short(result.scale).ndim else f"{scale}.to({dtype})"
    value = without(DECODINGS["scaled"], "mean", *([] if zero_point else ["z"]))
    found = written(value, "torch", {"q": q, "s": s, "z": zero_point})
    return found if rules.value_dtype == rules.decoding_dtype else f"({found}).to({result.value_dtype})"


def _scale_dtype(result: Quantized) -> torch.dtype:
    """Return the dtype of scales in the script: float32 unless codes are computed in another."""
    return torch.float32 if result.computed.rules.coding.coding_dtype == "float32" else result.scale_dtype


def _check_supported(result: Quantized) -> None:
    """Raise for what needs more than one scale and one zero_point per block."""
    fmt, convention = result.scheme.format, result.scheme.convention
    in_half = result.computed.rules.decoding.decoding_dtype in HALF
    if not isinstance(fmt, IntFormat):
        raise QuantError(
            f"The torch script supports integer formats only; for {fmt}, use the quantcore script."
        )
    searched = convention.storage.zero_scale == "searched" and bool((result.scale == 0).any())
    if searched or convention.storage.quantize_with == "searched":
        what = "uses codes chosen by its search"
    elif convention.storage.quantize_with in ("raw", "levels") and result.scales is not None:
        what = "computes codes with scales that differ from the stored ones"
    elif result.params.coded_zero is not None:
        what = "computes codes with zero points that differ from the stored ones"
    elif result.dequantizer.name or convention.zero_point.is_value or result.params.center is not None:
        what = "does not dequantize by (codes - zero_point) * scale"
    elif result.params.zero_point.is_floating_point() and in_half:
        what = "dequantizes in half precision with a zero point that is a float"
    else:
        return
    raise QuantError(f"{convention.name} {what}, which the torch script can't do; use the quantcore script.")


def _given(result: Quantized) -> str:
    """Write parameters given manually or by a library; one number if it is the same for all blocks."""
    zero_point, inverse = _short(result.params.zero_point), ""
    if result.params.inverse is not None:
        values = _short(result.params.inverse)
        inverse = array_source(values) + (spread_source(result) if values.ndim else "")
    one_integer = zero_point.dtype.kind == "i" and not zero_point.ndim
    return render(
        _GIVEN,
        who=_source(result.scheme),
        scale=array_source(torch.from_numpy(_short(result.scale)).to(_scale_dtype(result))),
        zero_point=""
        if not zero_point.any()
        else int(zero_point)
        if one_integer
        else array_source(zero_point),
        inverse=inverse,
    )


def _source(scheme: Scheme) -> str:
    """Say where parameters that are written as numbers come from."""
    if scheme.range_setting.gives_parameters:
        return "set manually"
    name, setting = scheme.convention.name, scheme.range_setting
    return f"as {name} computes them" + f" from the range {write_call(setting)}" * (setting != MIN_MAX)


def _short(parameters: Tensor) -> Array:
    """Return one number if all are the same."""
    array: Array = parameters.cpu().numpy()
    first: Array = array.flat[:1].reshape(())
    return first if (array == first).all() else array


def _names(result: Quantized, lines: ParameterLines | None) -> tuple[str, str]:
    """Return names of scale and zero_point that broadcast with x.

    They are "s" and "z" where expanded to elements; "" is a zero_point of 0.
    """
    if lines is None:
        zero = not result.params.zero_point.any()
        one_scale, one_zero_point = (not _short(p).ndim for p in (result.scale, result.params.zero_point))
    else:
        zero = not lines.zero_point
        one_scale = result.scheme.range_setting.ends_are_given
        one_zero_point = one_scale or lines.zero_point == "one"
    blocks = bool(spread_source(result))
    scale = "s" if blocks and not one_scale else "scale"
    return scale, "" if zero else "z" if blocks and not one_zero_point else "zero_point"
