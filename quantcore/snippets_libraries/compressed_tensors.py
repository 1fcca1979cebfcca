"""Scripts in compressed-tensors' own API."""

from quantcore.granularity import PerBlock, PerChannel, PerGroup, PerTensor
from quantcore.quantize import Quantized
from quantcore.snippets_libraries.recipe import Recipe, axes_but, finds_range, parameters_source

_IMPORTS = (
    "import torch\n"
    "from compressed_tensors.quantization import QuantizationArgs\n"
    "from compressed_tensors.quantization.lifecycle.forward import quantize"
)
_HELPERS = "from compressed_tensors.quantization.utils.helpers import calculate_qparams"


def integers(result: Quantized) -> Recipe:
    """calculate_qparams -> quantize."""
    fmt = result.scheme.format
    strategy, low_high = _strategy(result)
    lines = [
        f"args = QuantizationArgs(num_bits={fmt.bits}, symmetric={result.scheme.symmetric}, {strategy})",
    ]
    imports, gives = _IMPORTS, tuple[str, ...]()
    row = isinstance(result.scheme.granularity, PerGroup) and result.x.dim() == 1
    if finds_range(result):
        imports, gives = f"{_IMPORTS}\n{_HELPERS}", ("scale", "zero_point")
        lines += [*low_high, "scale, zero_point = calculate_qparams(low, high, args)"]
    else:
        one = not result.x.dim() or isinstance(result.scheme.granularity, PerTensor)
        lines += parameters_source(result, (1,) if one else (1, -1) if row else None)
    x, back = ("x[None]", "[0]") if row else ("x", "")
    if not result.x.dim():
        back = ".reshape(())"  # the library's scale has shape (1,)
    lines.append(f"codes = quantize({x}, scale, zero_point, args, dtype={fmt.dtype}){back}")
    return Recipe(imports, lines, gives)


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
