"""Scripts in the API of AIMET (aimet_torch.quantization.affine); its offset is -zero_point."""

from functools import partial

from quantcore.granularity import PerBlock, PerGroup
from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import Recipe, given_parameters, write

_QUANTIZER = """
from aimet_torch.quantization import affine

quantizer = affine.{{ name }}(
    shape={{ shape }}, qmin={{ fmt.qmin }}, qmax={{ fmt.qmax }}, symmetric={{ symmetric }}{{ block_size }}
)
with quantizer.compute_encodings():
    quantizer(x)
{% if grad %}
codes = quantizer(x).quantize()
{% else %}
with torch.no_grad():
    codes = quantizer(x){{ "" if name == "Quantize" else ".quantize()" }}
{% endif %}
codes = codes.to({{ fmt.dtype }})
scale, zero_point = quantizer.get_scale(), -quantizer.get_offset()
"""
# only the kernels, with a given scale and offset
_FUNCTIONS = """
from aimet_torch.quantization import affine

{{ given }}
{% if grad %}
scale.requires_grad_()
x_hat = affine.quantize_dequantize(x, scale, -zero_point, {{ arguments }})
{% elif name == "QuantizeDequantize" %}
with torch.no_grad():
    x_hat = affine.quantize_dequantize(x, scale, -zero_point, {{ arguments }})
{% endif %}
codes = affine.quantize({{ values }}, scale, -zero_point, {{ arguments }}).to({{ fmt.dtype }})
"""


def affine(result: Quantized, name: str, grad: bool) -> Recipe:
    """Write Quantize(...)(x), or QuantizeDequantize(...)(x) and back; ``grad``: of its range, too."""
    fmt, blocked = result.scheme.format, isinstance(result.scheme.granularity, PerGroup | PerBlock)
    block_size = f", block_size={result.block}" if blocked else ""
    shape = tuple(result.scale.shape) if result.scale.numel() > 1 or blocked else ()
    if given := given_parameters(result, shape, "float32"):
        arguments = f"qmin={fmt.qmin}, qmax={fmt.qmax}{block_size}"
        values = "x" if name == "Quantize" else "x_hat"
        script = write(
            _FUNCTIONS, result, name=name, grad=grad, given=given, arguments=arguments, values=values
        )
        return Recipe(script, ())
    return Recipe(write(_QUANTIZER, result, name=name, grad=grad, shape=shape, block_size=block_size))


RECIPES = {
    "aimet.Quantize": partial(affine, name="Quantize", grad=False),
    "aimet.QuantizeDequantize": partial(affine, name="QuantizeDequantize", grad=False),
    "aimet.QuantizeDequantize.grad": partial(affine, name="QuantizeDequantize", grad=True),
}
