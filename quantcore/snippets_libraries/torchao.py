"""Scripts in torchao's own API."""

from quantcore.quantize import Quantized
from quantcore.snippets_libraries.recipe import Recipe, finds_range, parameters_source


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
