"""Scripts in torch's own API: observers, then a kernel."""

from quantcore.errors import QuantError
from quantcore.granularity import PerChannel
from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import Recipe, finds_range, parameters_source


def fake_quantize(result: Quantized) -> Recipe:
    """Observer -> fake_quantize_per_tensor/channel_affine, whose values are read back as codes.

    Raises:
        QuantError: a scale is not finite.
    """
    if not result.scale.isfinite().all():
        raise QuantError(
            "fake_quantize returns dequantized values, and under a scale that is not finite no code can be read "
            "back from them; scale the tensor down, or replace NaN and infinity."
        )
    fmt, granularity = result.scheme.format, result.scheme.granularity
    imports, lines = _parameters(result)
    bounds = f"{fmt.qmin}, {fmt.qmax}"
    scale, zero_point = "scale", "zero_point"
    back = "" if result.x.dim() else ".reshape(())"  # the observer's scale has shape (1,)
    if isinstance(granularity, PerChannel):
        rank = result.x.dim()
        axis = granularity.axis % rank
        call = f"fake_quantize_per_channel_affine(x, scale, zero_point.int(), {axis}, {bounds})"
        if axis != rank - 1:
            shape = tuple(-1 if i == axis else 1 for i in range(rank))
            scale, zero_point = f"scale.view{shape}", f"zero_point.view{shape}"
    else:
        call = f"fake_quantize_per_tensor_affine(x, scale, zero_point.int(), {bounds})"
    lines += [
        f"x_hat = torch.{call}",
        "# x_hat is (codes - zero_point) * scale",
        f"codes = (torch.round(x_hat / {scale}) + {zero_point}).to({fmt.dtype}){back}",
    ]
    return Recipe(imports, lines, _gives(result))


def quantize(result: Quantized) -> Recipe:
    """Observer -> quantize_per_tensor or quantize_per_channel."""
    granularity = result.scheme.granularity
    imports, lines = _parameters(result)
    dtype = "torch.qint8" if result.scheme.format.signed else "torch.quint8"
    if isinstance(granularity, PerChannel):
        axis = granularity.axis % result.x.dim()
        call = f"quantize_per_channel(x, scale, zero_point, {axis}, {dtype})"
    else:
        call = f"quantize_per_tensor(x, scale, zero_point, {dtype})"
    return Recipe(imports, [*lines, f"codes = torch.{call}.int_repr()"], _gives(result))


def _gives(result: Quantized) -> tuple[str, ...]:
    return ("scale", "zero_point") if finds_range(result) else ()


def _parameters(result: Quantized) -> tuple[str, list[str]]:
    """The import, and lines that bind scale and zero_point, one a channel."""
    if not finds_range(result):
        return "import torch", parameters_source(result, (-1,))
    fmt, granularity = result.scheme.format, result.scheme.granularity
    name, per, arguments = "MinMaxObserver", "per_tensor", []
    if isinstance(granularity, PerChannel):
        name, per = "PerChannelMinMaxObserver", "per_channel"
        arguments.append(f"ch_axis={granularity.axis % result.x.dim()}")
    sign = "" if fmt.signed else "u"
    arguments.append(f"dtype=torch.{sign}int16" if fmt.bits > 8 else f"dtype=torch.q{sign}int8")
    arguments.append(f"qscheme=torch.{per}_{'symmetric' if result.scheme.symmetric else 'affine'}")
    if fmt.bits != 8 or fmt.narrow:
        arguments += [f"quant_min={fmt.qmin}", f"quant_max={fmt.qmax}"]
    lines = [
        f"observer = {name}(\n    {', '.join(arguments)}\n)",
        "observer(x)"
        if result.x.dim() != 1 or per == "per_tensor"
        else "observer(x[:, None])  # it takes two axes",
        "scale, zero_point = observer.calculate_qparams()",
    ]
    return f"import torch\nfrom torch.ao.quantization import {name}", lines
