"""Scripts in bitsandbytes' own API, on the CPU."""

from quantcore.granularity import PerFlatGroup
from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import Recipe

_TYPES = {"nf4": "nf4", "fp4_bitsandbytes": "fp4"}


def four_bits(result: Quantized) -> Recipe:
    """quantize_4bit, its codes taken out of the bytes."""
    granularity = result.scheme.granularity
    assert isinstance(granularity, PerFlatGroup)
    kind = _TYPES[str(result.scheme.format)]
    lines = [
        f'packed, state = quantize_4bit(x, blocksize={granularity.size}, quant_type="{kind}")',
        "packed = packed.flatten()",
        "codes = torch.stack([packed >> 4, packed & 15], 1).flatten()  # the higher four bits first",
        "codes = codes[:x.numel()].reshape(x.shape)",
        "scale = state.absmax",
    ]
    return Recipe("import torch\nfrom bitsandbytes.functional import quantize_4bit", lines, ("scale",))


def vectorwise(result: Quantized) -> Recipe:
    """int8_vectorwise_quant; it gives each row's largest magnitude, which no scale is kept of."""
    lines = ["codes, largest, _ = int8_vectorwise_quant(x)"]
    return Recipe("import torch\nfrom bitsandbytes.functional import int8_vectorwise_quant", lines, ())
