"""Scripts in the API of compressed-tensors."""

from quantcore.conventions import CONVENTIONS
from quantcore.formats import FloatFormat
from quantcore.granularity import PerBlock, PerChannel, PerGroup, PerTensor
from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import PARAMETERS, Call, Recipe, given_parameters, write

_AFFINE = """
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import quantize
from compressed_tensors.quantization.utils.helpers import calculate_qparams

args = QuantizationArgs(num_bits={{ fmt.bits }}, {{ type }}symmetric={{ symmetric }}, {{ strategy }})
{% if given %}
{{ given }}
{% else %}
{{ low_high }}
scale, zero_point = calculate_qparams(low, high, args)
{% endif %}
codes = quantize({{ values }}, scale, zero_point, args, dtype={{ dtype }}){{ back }}
"""
_LOW_HIGH_OF_BLOCKS = """
{% if padding %}
padded = torch.nn.functional.pad(x, {{ padding }})
blocks = padded.reshape({{ sizes }})
{% else %}
blocks = x.reshape({{ sizes }})
{% endif %}
low, high = blocks.amin((1, 3)), blocks.amax((1, 3))
"""
# the library returns values and has no six-bit codes, so these are dequantized
_MX = """
from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
from compressed_tensors.quantization.utils.helpers import calculate_qparams

args = QuantizationArgs(
    num_bits={{ fmt.bits }}, type="float", symmetric=True,
    strategy="group", group_size={{ granularity.size }},
    scale_dtype=torch.uint8, zp_dtype=torch.uint8,
)
rows = {{ rows }}
low, high = rows.unflatten(-1, (-1, {{ granularity.size }})).aminmax(dim=-1)
scale, zero_point = calculate_qparams(low, high, args)
{% if fmt.bits == 8 %}
codes = quantize(rows, scale, zero_point, args, dtype=torch.float8_e4m3fn).view(torch.uint8).reshape(x.shape)
{% elif fmt.bits == 4 %}
packed = pack_fp4_to_uint8(quantize(rows, scale, zero_point, args))
codes = torch.stack([packed & 15, packed >> 4], -1).reshape(x.shape)
{% else %}
values = quantize(rows, scale, zero_point, args)
dequantized = dequantize(values, scale, zero_point, args).reshape(x.shape)
{% endif %}
"""
_NVFP4 = """
from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import quantize
from compressed_tensors.quantization.utils.helpers import calculate_qparams, generate_gparam

args = QuantizationArgs(
    num_bits=4, type="float", symmetric=True,
    strategy="tensor_group", group_size={{ granularity.size }},
    scale_dtype=torch.float8_e4m3fn, zp_dtype=torch.float8_e4m3fn,
)
rows = {{ rows }}
low, high = rows.unflatten(-1, (-1, {{ granularity.size }})).aminmax(dim=-1)
global_scale = generate_gparam(x.min(), x.max())
scale, zero_point = calculate_qparams(low, high, args, global_scale)
packed = pack_fp4_to_uint8(quantize(rows, scale, zero_point, args, global_scale=global_scale))
codes = torch.stack([packed & 15, packed >> 4], -1).reshape(x.shape)
scale = scale.to(torch.float32) / global_scale
"""


def affine(result: Quantized) -> Recipe:
    """Write calculate_qparams -> quantize, to integers or float8."""
    scheme, one_axis = result.scheme, result.x.dim() == 1
    float8 = isinstance(scheme.format, FloatFormat)
    row = isinstance(scheme.granularity, PerGroup) and one_axis
    values, back = ("x[None]", "[0]") if row else ("x", "")
    if not result.x.dim():
        back = ".reshape(())"  # the library's scale has shape (1,)
    one = not result.x.dim() or isinstance(scheme.granularity, PerTensor)
    given = given_parameters(result, (1,) if one else (1, -1) if row else None)
    strategy, low_high = _strategy(result)
    script = write(
        _AFFINE,
        result,
        type='type="float", ' if float8 else "",
        strategy=strategy,
        given=given,
        low_high=low_high,
        values=values,
        dtype="torch.float8_e4m3fn" if float8 else scheme.format.dtype,
        back=".view(torch.uint8)" * float8 + back,
    )
    return Recipe(script, () if given else ("scale",) if float8 else PARAMETERS)


def mx(result: Quantized) -> Recipe:
    """Write calculate_qparams -> quantize with scales that are powers of two."""
    shows = "codes" if result.scheme.format.bits in (4, 8) else "dequantized"
    return Recipe(write(_MX, result, rows=_rows(result)), ("scale",), shows=shows)


def nvfp4(result: Quantized) -> Recipe:
    """Write generate_gparam -> calculate_qparams -> quantize."""
    return Recipe(write(_NVFP4, result, rows=_rows(result)), ("scale",))


def _rows(result: Quantized) -> str:
    """Return x reshaped to two axes."""
    return "x" if result.x.dim() == 2 else "x.reshape(-1, x.shape[-1])"


def _strategy(result: Quantized) -> tuple[str, str]:
    """Return arguments for the granularity, and lines that bind low and high in the shape that it takes."""
    x, block = result.x, result.block
    match result.scheme.granularity:
        case PerChannel():
            axes = tuple(range(1, x.dim()))
            ends = f"x.amin({axes}, keepdim=True), x.amax({axes}, keepdim=True)" if axes else "x, x"
            return 'strategy="channel"', f"low, high = {ends}"
        case PerGroup(size):
            source = "x[None]" if x.dim() == 1 else "x"
            groups = f"{source}.unflatten(-1, ({x.shape[-1] // size}, {size}))"
            return f'strategy="group", group_size={size}', f"low, high = {groups}.aminmax(dim=-1)"
        case PerBlock():
            (rows, columns), (a, b), (down, across) = x.shape, block, result.scale.shape
            padding = (0, -columns % b, 0, -rows % a) if rows % a or columns % b else ()
            low_high = write(
                _LOW_HIGH_OF_BLOCKS, result, padding=padding, sizes=f"{down}, {a}, {across}, {b}"
            )
            return f'strategy="block", block_structure=[{a}, {b}]', low_high
    return 'strategy="tensor"', "low, high = torch.aminmax(x)"


RECIPES = {"compressed_tensors": affine}
_FLOAT8 = tuple(
    limit
    for limit in CONVENTIONS["compressed_tensors"].limits
    if limit.of.partition("_")[0] in ("granularity", "channel", "group", "block")
)
CALLS = {
    "compressed_tensors.float8": Call(affine, ("range_setting",), limits=_FLOAT8),
    "compressed_tensors.mx": Call(mx, sizes=(32,)),
    "compressed_tensors.mx8": Call(mx, sizes=(32,)),
    "compressed_tensors.nvfp4": Call(nvfp4, sizes=(16,)),
}
