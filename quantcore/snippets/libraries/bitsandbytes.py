"""Scripts in the API of bitsandbytes, on the CPU."""

from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import Call, Recipe, write

_FOUR_BITS = """
from bitsandbytes.functional import quantize_4bit

packed, state = quantize_4bit(x, blocksize={{ granularity.size }}, quant_type="{{ quant_type }}")
packed = packed.flatten()
codes = torch.stack([packed >> 4, packed & 15], 1).flatten()  # upper four bits first
codes = codes[:x.numel()].reshape(x.shape)
scale = state.absmax
"""
_BLOCKWISE = """
from bitsandbytes.functional import quantize_blockwise

codes, state = quantize_blockwise(x, blocksize={{ granularity.size }})
scale = state.absmax
"""
_VECTORWISE = """
from bitsandbytes.functional import int8_vectorwise_quant

codes, largest, _ = int8_vectorwise_quant(x)
"""
_QUANT_TYPES = {"nf4": "nf4", "fp4_bitsandbytes": "fp4"}


def four_bits(result: Quantized) -> Recipe:
    """Write quantize_4bit, with its codes unpacked."""
    quant_type = _QUANT_TYPES[str(result.scheme.format)]
    return Recipe(write(_FOUR_BITS, result, quant_type=quant_type), ("scale",))


def blockwise(result: Quantized) -> Recipe:
    """Write quantize_blockwise, with the library's own table."""
    return Recipe(write(_BLOCKWISE, result), ("scale",))


def vectorwise(result: Quantized) -> Recipe:
    """Write int8_vectorwise_quant; it returns max|x| of each row, not a scale."""
    return Recipe(write(_VECTORWISE, result), ())


CALLS = {
    "bitsandbytes.4bit": Call(four_bits, sizes=tuple(2**n for n in range(5, 13))),
    "bitsandbytes.blockwise": Call(blockwise, sizes=tuple(2**n for n in range(5, 13))),
    "bitsandbytes.int8_vectorwise": Call(vectorwise),
}
