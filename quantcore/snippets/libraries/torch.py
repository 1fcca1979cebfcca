"""Scripts in the quantization API of torch: observers, then a kernel."""

from dataclasses import replace

import torch

from quantcore.errors import QuantError
from quantcore.granularity import PerChannel
from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import PARAMETERS, Call, Recipe, finds_range, given_parameters, write

_GIVEN_OR_OBSERVED = """
{% if given %}
{{ given }}
{% else %}
from torch.ao.quantization import {{ observer }}

observer = {{ observer }}(
    {{ arguments }}
)
{% if axis is not none and x.dim() == 1 %}
observer(x[:, None])  # it needs two axes
{% else %}
observer(x)
{% endif %}
scale, zero_point = observer.calculate_qparams()
{% endif %}
"""
_FAKE_QUANTIZE = """
{{ parameters }}
{% set ends = fmt.qmin ~ ", " ~ fmt.qmax %}
{% if axis is none %}
x_hat = torch.fake_quantize_per_tensor_affine(x, scale, zero_point.int(), {{ ends }})
{% else %}
x_hat = torch.fake_quantize_per_channel_affine(x, scale, zero_point.int(), {{ axis }}, {{ ends }})
{% endif %}
{% if float32 %}
# x_hat is (codes - zero_point) * scale
codes = (torch.round(x_hat / scale{{ view }}) + zero_point{{ view }}).to({{ fmt.dtype }}){{ back }}
{% else %}
dequantized = x_hat
{% endif %}
"""
_QUANTIZE = """
{{ parameters }}
{% if axis is none %}
codes = torch.quantize_per_tensor(x, scale, zero_point, {{ dtype }}).int_repr()
{% else %}
codes = torch.quantize_per_channel(x, scale, zero_point, {{ axis }}, {{ dtype }}).int_repr()
{% endif %}
"""


_DECOMPOSED = """
from torch.ao.quantization.fx import _decomposed  # defines the operators

{{ parameters }}
operators, dtype = torch.ops.quantized_decomposed, {{ fmt.dtype }}
{% if axis is none %}
scale, zero_point = scale.item(), int(zero_point)
codes = operators.quantize_per_tensor(x, scale, zero_point, {{ fmt.qmin }}, {{ fmt.qmax }}, dtype)
{% else %}
codes = operators.quantize_per_channel(
    x, scale, zero_point, {{ axis }}, {{ fmt.qmin }}, {{ fmt.qmax }}, dtype
)
{% endif %}
"""


def decomposed(result: Quantized) -> Recipe:
    """Write observer -> quantized_decomposed.quantize_per_tensor or quantize_per_channel."""
    script = write(_DECOMPOSED, result, parameters=_parameters(result), axis=_axis(result))
    return Recipe(script, PARAMETERS if finds_range(result) and _axis(result) is not None else ())


def fake_quantize(result: Quantized) -> Recipe:
    """Write observer -> fake_quantize_per_tensor/channel_affine, whose values are converted back to codes.

    In another dtype than float32, several codes may have the same value, so the values are checked.

    Raises:
        QuantError: a scale is not finite.
    """
    if not result.scale.isfinite().all():
        raise QuantError(
            "fake_quantize returns dequantized values, from which codes can't be recovered if a scale is not "
            "finite; scale the tensor down, or replace NaN and infinity."
        )
    rank, axis = result.x.dim(), _axis(result)
    view = "" if axis in (None, rank - 1) else f".view{tuple(-1 if i == axis else 1 for i in range(rank))}"
    back = "" if rank else ".reshape(())"  # the observer's scale has shape (1,)
    float32 = result.dtype == torch.float32
    recipe = _recipe(_FAKE_QUANTIZE, result, view=view, back=back, float32=float32)
    return recipe if float32 else replace(recipe, shows="dequantized")


def quantize(result: Quantized) -> Recipe:
    """Write observer -> quantize_per_tensor or quantize_per_channel."""
    return _recipe(_QUANTIZE, result, dtype="torch.qint8" if result.scheme.format.signed else "torch.quint8")


def _recipe(template: str, result: Quantized, **values: object) -> Recipe:
    script = write(template, result, parameters=_parameters(result), axis=_axis(result), **values)
    return Recipe(script, PARAMETERS if finds_range(result) else ())


def _axis(result: Quantized) -> int | None:
    """Return the channel axis; None if there is one scale for the tensor."""
    granularity = result.scheme.granularity
    return granularity.axis % result.x.dim() if isinstance(granularity, PerChannel) else None


def _parameters(result: Quantized) -> str:
    """Return lines that bind scale and zero_point, one per channel."""
    fmt, axis = result.scheme.format, _axis(result)
    name, per, arguments = "MinMaxObserver", "per_tensor", []
    if axis is not None:
        name, per = "PerChannelMinMaxObserver", "per_channel"
        arguments.append(f"ch_axis={axis}")
    sign = "" if fmt.signed else "u"
    arguments.append(f"dtype=torch.{sign}int16" if fmt.bits > 8 else f"dtype=torch.q{sign}int8")
    arguments.append(f"qscheme=torch.{per}_{'symmetric' if result.scheme.symmetric else 'affine'}")
    if fmt.bits != 8 or fmt.narrow:
        arguments += [f"quant_min={fmt.qmin}", f"quant_max={fmt.qmax}"]
    return write(
        _GIVEN_OR_OBSERVED,
        result,
        given=given_parameters(result, (-1,)),
        observer=name,
        arguments=", ".join(arguments),
        axis=axis,
    )


RECIPES = {
    "torch.fake_quantize": fake_quantize,
    "torch.quantize_per_tensor": quantize,
    "torch.quantize_per_channel": quantize,
}
CALLS = {"torch.quantized_decomposed": Call(decomposed, ("format", "symmetric", "range_setting"))}
