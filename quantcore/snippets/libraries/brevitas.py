"""Scripts in brevitas' own API: a layer whose weight is the tensor."""

from quantcore.granularity import PerChannel
from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import Recipe, finds_range, parameters_source


def weight(result: Quantized) -> Recipe:
    """QuantLinear(weight_quant=...).quant_weight().int(); IntQuant alone for parameters from elsewhere."""
    return _layer(result) if finds_range(result) else _kernel(result)


def _layer(result: Quantized) -> Recipe:
    fmt, shape = result.scheme.format, tuple(result.x.shape)
    per_channel = isinstance(result.scheme.granularity, PerChannel)
    kind = "Int8Weight" if result.scheme.symmetric else "ShiftedUint8Weight"
    quantizer = f"{kind}Per{'Channel' if per_channel else 'Tensor'}Float"
    rows = shape[0] if per_channel else 1
    weight, back = "x", ""
    if len(shape) != 2:
        weight, back = f"x.reshape({rows if shape else 1}, -1)", f".reshape({shape})"
    lines = [
        f"weight = {weight}",
        "layer = QuantLinear(",
        "    weight.shape[1], weight.shape[0], bias=False,",
        f"    weight_quant={quantizer}, weight_bit_width={fmt.bits},",
        ")",
        "layer.weight.data = weight",
        "with torch.no_grad():",
        "    quantized = layer.quant_weight()",
        "scale, zero_point = quantized.scale, quantized.zero_point",
        f"codes = quantized.int(float_datatype=False){back}.to({fmt.dtype})",
    ]
    imports = f"import torch\nfrom brevitas.nn import QuantLinear\nfrom brevitas.quant import {quantizer}"
    return Recipe(imports, lines)


def _kernel(result: Quantized) -> Recipe:
    fmt = result.scheme.format
    lines = [
        *parameters_source(result, None, "float32"),
        f"bits = torch.tensor({float(fmt.bits)})",
        f"kernel = IntQuant(narrow_range={fmt.narrow}, signed={fmt.signed}, input_view_impl=Identity())",
        f"codes = kernel.to_int(scale, zero_point, bits, x).to({fmt.dtype})",
    ]
    imports = (
        "import torch\nfrom brevitas.core.function_wrapper import Identity\n"
        "from brevitas.core.quant import IntQuant"
    )
    return Recipe(imports, lines, ())
