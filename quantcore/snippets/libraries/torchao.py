"""Scripts in the API of torchao."""

from functools import partial

from quantcore.conventions import Limit
from quantcore.errors import QuantError
from quantcore.formats import FLOATS, Format
from quantcore.granularity import PerFlatGroup, PerGroup, PerTensor
from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import PARAMETERS, Call, Recipe, given_parameters, write

_AFFINE = """
from torchao.quantization.quant_primitives import MappingType, choose_qparams_affine, quantize_affine

block_size = {{ block }}
{% if given %}
{{ given }}
{% else %}
scale, zero_point = choose_qparams_affine(
    x, MappingType.{{ mapping_type }}, block_size, {{ fmt.dtype }},
    quant_min={{ fmt.qmin }}, quant_max={{ fmt.qmax }}, keepdim=True,
)
{% endif %}
codes = quantize_affine(
    x, block_size, scale, zero_point, {{ fmt.dtype }},
    quant_min={{ fmt.qmin }}, quant_max={{ fmt.qmax }},
)
"""
_TINYGEMM = """
from torchao.quantization.quant_primitives import (
    MappingType, _choose_qparams_affine_tinygemm, _quantize_affine_tinygemm
)

block_size = {{ block }}
scale, zero_point = _choose_qparams_affine_tinygemm(
    x, MappingType.ASYMMETRIC, block_size, torch.uint8, 0, 15, eps=1e-6
)
codes = _quantize_affine_tinygemm(x, block_size, scale, zero_point, torch.uint8, 0, 15)
"""
_INT8 = """
from torchao.quantization import Int8WeightOnlyConfig, PerGroup, PerTensor, quantize_

linear = torch.nn.Linear(x.shape[1], x.shape[0], bias=False)
linear.weight.data = x.clone()
quantize_(linear, Int8WeightOnlyConfig({{ own }}))
codes, scale = linear.weight.qdata, linear.weight.scale
"""
_FLOAT8 = """
from torchao.quantization.quant_primitives import _choose_scale_float8, _quantize_affine_float8

{% if given %}
{{ given }}
{% else %}
scale = _choose_scale_float8(x, {{ block | list }}, torch.float8_{{ fmt }})
{% endif %}
codes = _quantize_affine_float8(x, scale, torch.float8_{{ fmt }}).view(torch.uint8)
"""
_MX = """
from torchao.prototype.mx_formats.constants import DTYPE_FP6_E2M3, DTYPE_FP6_E3M2
from torchao.prototype.mx_formats.kernels import unpack_uint4
from torchao.prototype.mx_formats.mx_tensor import MXTensor, ScaleCalculationMode

mx = MXTensor.to_mx(x, {{ element }}, {{ granularity.size }}, ScaleCalculationMode.{{ mode }})
{% if fmt.bits == 8 %}
codes = mx.qdata.view(torch.uint8)
{% elif fmt.bits == 6 %}
codes = mx.qdata
{% else %}
codes = unpack_uint4(mx.qdata.view(torch.uint8)).reshape(x.shape)
{% endif %}
scale = mx.scale.to(torch.float32)
"""
_NVFP4 = """
from torchao.prototype.mx_formats.kernels import unpack_uint4
from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale

{% if two_levels %}
per_tensor_scale = per_tensor_amax_to_scale(x.abs().amax())
nvfp4 = NVFP4Tensor.to_nvfp4({{ rows }}, per_tensor_scale=per_tensor_scale)
{% else %}
nvfp4 = NVFP4Tensor.to_nvfp4({{ rows }})
{% endif %}
codes = unpack_uint4(nvfp4.qdata.view(torch.uint8)).reshape(x.shape)
scale = nvfp4.get_hp_scales()
"""
_NF4 = """
from torchao.quantization import to_nf4

nf4 = to_nf4(x, {{ granularity.size }}, {{ scaler_block_size }})
packed = nf4.quantized_data
codes = torch.stack([packed >> 4, packed & 15], 1).reshape(x.shape)  # upper four bits first
scale = nf4.dequantize_scalers(
    nf4.quantized_scalers, nf4.quantization_factor, nf4.scaler_block_size
)
"""
_ELEMENTS: dict[Format, str] = {
    FLOATS["e4m3fn"]: "torch.float8_e4m3fn",
    FLOATS["e5m2"]: "torch.float8_e5m2",
    FLOATS["e2m3"]: "DTYPE_FP6_E2M3",
    FLOATS["e3m2"]: "DTYPE_FP6_E3M2",
    FLOATS["e2m1"]: "torch.float4_e2m1fn_x2",
}
_NEEDS_PAIRS = "{} of torchao packs two codes into a byte, but the {}; choose a tensor with {}."


def affine(result: Quantized, symmetric: str = "SYMMETRIC") -> Recipe:
    """Write choose_qparams_affine -> quantize_affine; ``symmetric``: the MappingType of symmetric schemes."""
    given = given_parameters(result, None)
    mapping_type = symmetric if result.scheme.symmetric else "ASYMMETRIC"
    script = write(_AFFINE, result, given=given, mapping_type=mapping_type)
    return Recipe(script, () if given else PARAMETERS)


def tinygemm(result: Quantized) -> Recipe:
    """Write _choose_qparams_affine_tinygemm -> _quantize_affine_tinygemm."""
    return Recipe(write(_TINYGEMM, result))


def int8(result: Quantized) -> Recipe:
    """Write quantize_ on a linear layer with these weights."""
    granularity, own = result.scheme.granularity, ""  # one scale per row
    if isinstance(granularity, PerTensor):
        own = "granularity=PerTensor()"
    elif isinstance(granularity, PerGroup):
        own = f"granularity=PerGroup({granularity.size})"
    return Recipe(write(_INT8, result, own=own), ("scale",))


def float8(result: Quantized) -> Recipe:
    """Write _choose_scale_float8 -> _quantize_affine_float8."""
    given = given_parameters(result, None, names=("scale",))
    return Recipe(write(_FLOAT8, result, given=given), () if given else ("scale",))


def mx(result: Quantized) -> Recipe:
    """Write MXTensor.to_mx, whose scales are powers of two.

    Raises:
        QuantError: the format has four bits and the rows have an odd length.
    """
    fmt, mode = result.scheme.format, result.scheme.convention.name.rpartition(".")[2]
    if fmt.bits == 4 and result.x.shape[-1] % 2:
        raise QuantError(_NEEDS_PAIRS.format("MXTensor", "rows have an odd length", "rows of even length"))
    return Recipe(write(_MX, result, element=_ELEMENTS[fmt], mode=mode), ("scale",))


def nvfp4(result: Quantized) -> Recipe:
    """Write NVFP4Tensor.to_nvfp4, with a scale for the whole tensor if the scales of blocks have a scale."""
    assert result.scales is not None
    two_levels = result.scales.scheme.range_setting.ends_are_elements
    rows = "x" if result.x.dim() in (2, 3) else "x.reshape(-1, x.shape[-1])"  # it needs two or three axes
    return Recipe(write(_NVFP4, result, two_levels=two_levels, rows=rows), ("scale",))


def nf4(result: Quantized) -> Recipe:
    """Write to_nf4, whose scales are int8, with a mean and a factor for each block of scales.

    Raises:
        QuantError: the number of elements is odd.
    """
    if result.x.numel() % 2:
        raise QuantError(_NEEDS_PAIRS.format("to_nf4", "number of elements is odd", "an even number"))
    assert result.scales is not None
    of_scales = result.scales.scheme.granularity
    # a block of scales must not be longer than the number of scales
    count = result.scale.numel()
    size = min(of_scales.size, count) if isinstance(of_scales, PerFlatGroup) else count
    return Recipe(write(_NF4, result, scaler_block_size=size), ("scale",))


RECIPES = {
    "torchao": affine,
    "torchao.no_clipping_err": partial(affine, symmetric="SYMMETRIC_NO_CLIPPING_ERR"),
}
_BOXES = (
    Limit(
        "granularity", ("per_tensor", "per_channel", "per_group", "per_block"), "does not support flat groups"
    ),
    Limit("divides", (True,), "supports only blocks that divide the tensor"),
    Limit("block_elements", ("more",), "does not support blocks of one element"),
)
CALLS = {
    "torchao.tinygemm": Call(tinygemm),
    "torchao.int8": Call(int8),
    "torchao.float8": Call(float8, ("range_setting",), limits=_BOXES),
    **{f"torchao.mx.{mode}": Call(mx) for mode in ("FLOOR", "EVEN", "CEIL", "RCEIL")},
    "torchao.nvfp4": Call(nvfp4, sizes=(16,)),
    "torchao.nf4": Call(nf4, ("scales.granularity",)),
}
