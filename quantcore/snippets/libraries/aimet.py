"""Scripts in AIMET's own API (aimet_torch.quantization.affine); its offset is -zero_point."""

from quantcore.granularity import PerBlock, PerGroup
from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import Recipe, finds_range, parameters_source


def quantize(result: Quantized) -> Recipe:
    """Quantize(...)(x)."""
    return _affine(result, "Quantize", grad=False)


def quantize_dequantize(result: Quantized) -> Recipe:
    """QuantizeDequantize(...)(x) under torch.no_grad(), its codes read back."""
    return _affine(result, "QuantizeDequantize", grad=False)


def quantize_dequantize_grad(result: Quantized) -> Recipe:
    """QuantizeDequantize(...)(x) with a gradient for its range."""
    return _affine(result, "QuantizeDequantize", grad=True)


def _affine(result: Quantized, name: str, grad: bool) -> Recipe:
    fmt, blocked = result.scheme.format, isinstance(result.scheme.granularity, PerGroup | PerBlock)
    block = f", block_size={result.block}" if blocked else ""
    shape = tuple(result.scale.shape) if result.scale.numel() > 1 or blocked else ()
    bounds = f"qmin={fmt.qmin}, qmax={fmt.qmax}"
    imports = "import torch\nfrom aimet_torch.quantization import affine"
    if not finds_range(result):
        lines = parameters_source(result, shape, "float32")
        return Recipe(imports, [*lines, *_functions(result, name, grad, bounds + block)], ())
    call = "quantizer(x)" if name == "Quantize" else "quantizer(x).quantize()"
    lines = [
        f"quantizer = affine.{name}(",
        f"    shape={shape}, {bounds}, symmetric={result.scheme.symmetric}{block}",
        ")",
        "with quantizer.compute_encodings():",
        "    quantizer(x)",
        *_under_grad([f"codes = {call}"], grad),
        f"codes = codes.to({fmt.dtype})",
        "scale, zero_point = quantizer.get_scale(), -quantizer.get_offset()",
    ]
    return Recipe(imports, lines)


def _functions(result: Quantized, name: str, grad: bool, arguments: str) -> list[str]:
    """The kernel alone, with scale and offset."""
    quantize = (
        f"codes = affine.quantize({{}}, scale, -zero_point, {arguments}).to({result.scheme.format.dtype})"
    )
    if name == "Quantize":
        return [quantize.format("x")]
    call = f"x_hat = affine.quantize_dequantize(x, scale, -zero_point, {arguments})"
    wants = ["scale.requires_grad_()"] if grad else []
    return [*wants, *_under_grad([call], grad), quantize.format("x_hat")]


def _under_grad(lines: list[str], grad: bool) -> list[str]:
    return lines if grad else ["with torch.no_grad():", *(f"    {line}" for line in lines)]
