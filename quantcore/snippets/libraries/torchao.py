"""Scripts in torchao's own API."""

from quantcore.errors import QuantError
from quantcore.formats import FLOATS, Format
from quantcore.granularity import PerFlatGroup, PerGroup
from quantcore.quantization import Quantized
from quantcore.range_setting import MinMax
from quantcore.snippets.libraries.recipe import Recipe, finds_range, parameters_source

_ODD = "{} of torchao packs two codes into a byte, and the {}; choose a tensor with {}."
# the format -> its name as element of an MXTensor, what imports it, and how its codes are read
_PACKED = "unpack_uint4({}.qdata.view(torch.uint8)).reshape(x.shape)"
_KERNELS = "from torchao.prototype.mx_formats.kernels import unpack_uint4"
_CONSTANTS = "from torchao.prototype.mx_formats.constants import "
_MX: dict[Format, tuple[str, str, str]] = {
    FLOATS["e4m3fn"]: ("torch.float8_e4m3fn", "", "mx.qdata.view(torch.uint8)"),
    FLOATS["e5m2"]: ("torch.float8_e5m2", "", "mx.qdata.view(torch.uint8)"),
    FLOATS["e2m3"]: ("DTYPE_FP6_E2M3", f"{_CONSTANTS}DTYPE_FP6_E2M3", "mx.qdata"),
    FLOATS["e3m2"]: ("DTYPE_FP6_E3M2", f"{_CONSTANTS}DTYPE_FP6_E3M2", "mx.qdata"),
    FLOATS["e2m1"]: ("torch.float4_e2m1fn_x2", _KERNELS, _PACKED.format("mx")),
}


def affine(result: Quantized) -> Recipe:
    """choose_qparams_affine -> quantize_affine.

    Raises:
        QuantError: blocks of one element.
    """
    return _affine(result, "SYMMETRIC")


def affine_no_clipping_err(result: Quantized) -> Recipe:
    """The same with MappingType.SYMMETRIC_NO_CLIPPING_ERR."""
    return _affine(result, "SYMMETRIC_NO_CLIPPING_ERR")


def _affine(result: Quantized, symmetric: str) -> Recipe:
    fmt = result.scheme.format
    lines = [f"block_size = {result.block}"]
    imports = "from torchao.quantization.quant_primitives import "
    gives: tuple[str, ...] = ()
    if finds_range(result):
        imports += "MappingType, choose_qparams_affine, quantize_affine"
        mapping = f"MappingType.{symmetric if result.scheme.symmetric else 'ASYMMETRIC'}"
        lines += [
            "scale, zero_point = choose_qparams_affine(",
            f"    x, {mapping}, block_size, {fmt.dtype},",
            f"    quant_min={fmt.qmin}, quant_max={fmt.qmax}, keepdim=True,",
            ")",
        ]
        gives = ("scale", "zero_point")
    else:
        imports += "quantize_affine"
        lines += parameters_source(result, None)
    lines += [
        "codes = quantize_affine(",
        f"    x, block_size, scale, zero_point, {fmt.dtype},",
        f"    quant_min={fmt.qmin}, quant_max={fmt.qmax},",
        ")",
    ]
    return Recipe(f"import torch\n{imports}", lines, gives)


def int8(result: Quantized) -> Recipe:
    """quantize_ of a linear layer with these weights."""
    lines = [
        "linear = torch.nn.Linear(x.shape[1], x.shape[0], bias=False)",
        "linear.weight.data = x.clone()",
        "quantize_(linear, Int8WeightOnlyConfig())",
        "codes, scale = linear.weight.qdata, linear.weight.scale",
    ]
    return Recipe(
        "import torch\nfrom torchao.quantization import Int8WeightOnlyConfig, quantize_", lines, ("scale",)
    )


def float8(result: Quantized) -> Recipe:
    """_choose_scale_float8 -> _quantize_affine_float8."""
    dtype = f"torch.float8_{result.scheme.format}"
    imports = "from torchao.quantization.quant_primitives import "
    gives: tuple[str, ...] = ()
    if finds_range(result):
        imports, gives = f"{imports}_choose_scale_float8, ", ("scale",)
        lines = [f"scale = _choose_scale_float8(x, {list(result.block)}, {dtype})"]
    else:
        lines = parameters_source(result, None)[:-1]
    lines.append(f"codes = _quantize_affine_float8(x, scale, {dtype}).view(torch.uint8)")
    return Recipe(f"import torch\n{imports}_quantize_affine_float8", lines, gives)


def mx(result: Quantized) -> Recipe:
    """MXTensor.to_mx, whose scales are powers of two.

    Raises:
        QuantError: rows of an odd length, of whose codes of four bits two go into a byte.
    """
    granularity, mode = result.scheme.granularity, result.scheme.convention.name.rpartition(".")[2]
    assert isinstance(granularity, PerGroup)
    if result.scheme.format.bits == 4 and result.x.shape[-1] % 2:
        raise QuantError(_ODD.format("MXTensor", "rows have an odd length", "rows of an even one"))
    element, imports, codes = _MX[result.scheme.format]
    lines = [
        f"mx = MXTensor.to_mx(x, {element}, {granularity.size}, ScaleCalculationMode.{mode})",
        f"codes = {codes}",
        "scale = mx.scale.to(torch.float32)",
    ]
    own = "from torchao.prototype.mx_formats.mx_tensor import MXTensor, ScaleCalculationMode"
    return Recipe("\n".join(filter(None, ["import torch", own, imports])), lines, ("scale",))


def nvfp4(result: Quantized) -> Recipe:
    """NVFP4Tensor.to_nvfp4, with a scale for the tensor where the scales of blocks have one."""
    assert result.scales is not None
    levels = isinstance(result.scales.scheme.range_setting, MinMax)
    names, lines, argument = "NVFP4Tensor", list[str](), ""
    if levels:
        names, argument = f"{names}, per_tensor_amax_to_scale", ", per_tensor_scale=per_tensor_scale"
        lines = ["per_tensor_scale = per_tensor_amax_to_scale(x.abs().amax())"]
    rows = "x" if result.x.dim() in (2, 3) else "x.reshape(-1, x.shape[-1])"  # it takes two axes or three
    lines += [
        f"nvfp4 = NVFP4Tensor.to_nvfp4({rows}{argument})",
        f"codes = {_PACKED.format('nvfp4')}",
        "scale = nvfp4.get_hp_scales()",
    ]
    own = f"from torchao.prototype.mx_formats.nvfp4_tensor import {names}"
    return Recipe(f"import torch\n{_KERNELS}\n{own}", lines, ("scale",))


def nf4(result: Quantized) -> Recipe:
    """to_nf4, whose scales are int8 with a mean and a factor a block of them.

    Raises:
        QuantError: an odd number of elements.
    """
    if result.x.numel() % 2:
        raise QuantError(_ODD.format("to_nf4", "elements are odd in number", "an even number of them"))
    assert result.scales is not None
    granularity, of_scales = result.scheme.granularity, result.scales.scheme.granularity
    assert isinstance(granularity, PerFlatGroup)
    # it takes no block of scales that is longer than they are many
    count = result.scale.numel()
    size = min(of_scales.size, count) if isinstance(of_scales, PerFlatGroup) else count
    lines = [
        f"nf4 = to_nf4(x, {granularity.size}, {size})",
        "packed = nf4.quantized_data",
        "codes = torch.stack([packed >> 4, packed & 15], 1).reshape(x.shape)  # the higher four bits first",
        "scale = nf4.dequantize_scalers(",
        "    nf4.quantized_scalers, nf4.quantization_factor, nf4.scaler_block_size",
        ")",
    ]
    return Recipe("import torch\nfrom torchao.quantization import to_nf4", lines, ("scale",))
