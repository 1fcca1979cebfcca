"""Scripts in the API of brevitas: a layer whose weight is the tensor."""

import torch

from quantcore.errors import QuantError
from quantcore.granularity import PerChannel
from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import Recipe, given_parameters, write

_LAYER = """
from brevitas.nn import QuantLinear
from brevitas.quant import {{ quantizer }}

weight = x{% if rows %}.reshape({{ rows }}, -1){% endif +%}
layer = QuantLinear(
    weight.shape[1], weight.shape[0], bias=False,
    weight_quant={{ quantizer }}, weight_bit_width={{ fmt.bits }},
)
layer.weight.data = weight
{% if not float32 %}
layer.to(weight.dtype)
{% endif %}
with torch.no_grad():
    quantized = layer.quant_weight()
scale, zero_point = quantized.scale, quantized.zero_point
{% if float32 %}
codes = quantized.int(float_datatype=False){% if rows %}.reshape({{ shape }}){% endif %}.to({{ fmt.dtype }})
{% else %}
dequantized = quantized.value{% if rows %}.reshape({{ shape }}){% endif +%}
{% endif %}
"""
# only the kernel
_KERNEL = """
from brevitas.core.function_wrapper import Identity
from brevitas.core.quant import IntQuant

{{ given }}
bits = torch.tensor({{ fmt.bits }}.0)
kernel = IntQuant(narrow_range={{ fmt.narrow }}, signed={{ fmt.signed }}, input_view_impl=Identity())
codes = kernel.to_int(scale, zero_point, bits, x).to({{ fmt.dtype }})
"""


def weight(result: Quantized) -> Recipe:
    """Write QuantLinear(weight_quant=...).quant_weight().int(); only IntQuant for given parameters.

    In another dtype than float32, int() computes codes from values that were rounded to it, so the values are
    checked.

    Raises:
        QuantError: a scale is 0 in another dtype than float32.
    """
    if given := given_parameters(result, None, "float32"):
        return Recipe(write(_KERNEL, result, given=given), ())
    shape, per_channel = tuple(result.x.shape), isinstance(result.scheme.granularity, PerChannel)
    kind = "Int8Weight" if result.scheme.symmetric else "ShiftedUint8Weight"
    quantizer = f"{kind}Per{'Channel' if per_channel else 'Tensor'}Float"
    # a layer's weight has two axes
    rows = 0 if len(shape) == 2 else shape[0] if shape and per_channel else 1
    float32 = result.dtype == torch.float32
    if not float32 and bool((result.scale == 0).any()):
        raise QuantError(
            "A scale is 0, and brevitas divides by it in this dtype; remove rows of zeros, or choose float32."
        )
    script = write(_LAYER, result, quantizer=quantizer, rows=rows, shape=shape, float32=float32)
    return Recipe(script, shows="codes" if float32 else "dequantized")


RECIPES = {"brevitas": weight}
