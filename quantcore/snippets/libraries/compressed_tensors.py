"""Scripts in compressed-tensors' own API."""

from dataclasses import replace

from quantcore.formats import FloatFormat
from quantcore.granularity import PerBlock, PerChannel, PerGroup, PerTensor
from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import Recipe, axes_but, finds_range, parameters_source

_IMPORTS = (
    "import torch\n"
    "from compressed_tensors.quantization import QuantizationArgs\n"
    "from compressed_tensors.quantization.lifecycle.forward import quantize"
)
_HELPERS = "from compressed_tensors.quantization.utils.helpers import calculate_qparams"


_SCALE_TYPES = "scale_dtype={0}, zp_dtype={0}"
_FP8 = "torch.float8_e4m3fn"


def affine(result: Quantized) -> Recipe:
    """calculate_qparams -> quantize, to integers or float8."""
    fmt = result.scheme.format
    float8 = isinstance(fmt, FloatFormat)
    dtype, view = (_FP8, ".view(torch.uint8)") if float8 else (fmt.dtype, "")
    strategy, low_high = _strategy(result)
    kind = 'type="float", ' if float8 else ""
    symmetric = result.scheme.symmetric
    lines = [f"args = QuantizationArgs(num_bits={fmt.bits}, {kind}symmetric={symmetric}, {strategy})"]
    imports, gives = _IMPORTS, tuple[str, ...]()
    row = isinstance(result.scheme.granularity, PerGroup) and result.x.dim() == 1
    if finds_range(result):
        imports, gives = f"{_IMPORTS}\n{_HELPERS}", ("scale",) if float8 else ("scale", "zero_point")
        lines += [*low_high, "scale, zero_point = calculate_qparams(low, high, args)"]
    else:
        one = not result.x.dim() or isinstance(result.scheme.granularity, PerTensor)
        lines += parameters_source(result, (1,) if one else (1, -1) if row else None)
    x, back = ("x[None]", "[0]") if row else ("x", "")
    if not result.x.dim():
        back = ".reshape(())"  # the library's scale has shape (1,)
    lines.append(f"codes = quantize({x}, scale, zero_point, args, dtype={dtype}){view}{back}")
    return Recipe(imports, lines, gives)


def mx(result: Quantized) -> Recipe:
    """calculate_qparams -> quantize with scales that are powers of two."""
    lines = [
        *_grouped(result, "group", "torch.uint8"),
        "scale, zero_point = calculate_qparams(low, high, args)",
    ]
    return _values(result, _HELPERS, lines, "")


def nvfp4(result: Quantized) -> Recipe:
    """generate_gparam -> calculate_qparams -> quantize."""
    lines = [
        *_grouped(result, "tensor_group", _FP8),
        "global_scale = generate_gparam(x.min(), x.max())",
        "scale, zero_point = calculate_qparams(low, high, args, global_scale)",
    ]
    recipe = _values(result, f"{_HELPERS}, generate_gparam", lines, ", global_scale=global_scale")
    return replace(recipe, lines=[*recipe.lines, "scale = scale.to(torch.float32) / global_scale"])


def _grouped(result: Quantized, strategy: str, scale_type: str) -> list[str]:
    """Lines that bind args, rows of two axes, and low and high of their groups."""
    granularity = result.scheme.granularity
    assert isinstance(granularity, PerGroup)
    return [
        "args = QuantizationArgs(",
        f'    num_bits={result.scheme.format.bits}, type="float", symmetric=True,',
        f'    strategy="{strategy}", group_size={granularity.size},',
        f"    {_SCALE_TYPES.format(scale_type)},",
        ")",
        f"rows = {'x' if result.x.dim() == 2 else 'x.reshape(-1, x.shape[-1])'}",
        f"low, high = rows.unflatten(-1, (-1, {granularity.size})).aminmax(dim=-1)",
    ]


def _values(result: Quantized, helpers: str, lines: list[str], more: str) -> Recipe:
    """The library quantizes to values; of six bits it has no codes at all, so they are dequantized."""
    quantize = f"quantize(rows, scale, zero_point, args{more}{{}})"
    imports, shows = f"{_IMPORTS}\n{helpers}", "codes"
    match result.scheme.format.bits:
        case 8:
            read = [f"codes = {quantize.format(f', dtype={_FP8}')}.view(torch.uint8).reshape(x.shape)"]
        case 4:
            imports += "\nfrom compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8"
            read = [
                f"packed = pack_fp4_to_uint8({quantize.format('')})",
                "codes = torch.stack([packed & 15, packed >> 4], -1).reshape(x.shape)",
            ]
        case _:
            imports, shows = imports.replace("import quantize", "import dequantize, quantize"), "dequantized"
            read = [
                f"values = {quantize.format('')}",
                f"dequantized = dequantize(values, scale, zero_point, args{more}).reshape(x.shape)",
            ]
    return Recipe(imports, [*lines, *read], ("scale",), shows=shows)


def _strategy(result: Quantized) -> tuple[str, list[str]]:
    """Arguments that name the granularity, and lines that bind low and high in the shape it takes."""
    x, block = result.x, result.block
    match result.scheme.granularity:
        case PerChannel():
            axes = axes_but(0, x.dim())
            ends = "low, high = x, x" if not axes else _ends("x", axes)
            return 'strategy="channel"', [ends]
        case PerGroup(size):
            source = "x[None]" if x.dim() == 1 else "x"
            split = f"{source}.unflatten(-1, ({x.shape[-1] // size}, {size}))"
            return f'strategy="group", group_size={size}', [f"low, high = {split}.aminmax(dim=-1)"]
        case PerBlock():
            (rows, columns), (a, b) = x.shape, block
            lines, source = [], "x"
            if rows % a or columns % b:
                lines = [f"padded = torch.nn.functional.pad(x, (0, {-columns % b}, 0, {-rows % a}))"]
                source = "padded"
            grid = tuple(result.scale.shape)
            lines += [
                f"blocks = {source}.reshape({grid[0]}, {a}, {grid[1]}, {b})",
                "low, high = blocks.amin((1, 3)), blocks.amax((1, 3))",
            ]
            return f'strategy="block", block_structure=[{a}, {b}]', lines
    return 'strategy="tensor"', ["low, high = torch.aminmax(x)"]


def _ends(source: str, axes: tuple[int, ...]) -> str:
    return f"low, high = {source}.amin({axes}, keepdim=True), {source}.amax({axes}, keepdim=True)"
