"""Scripts in gguf's own API: its file's bytes, and the codes taken out of them."""

from quantcore.formats import IntFormat
from quantcore.quantization import Quantized
from quantcore.snippets.libraries.recipe import Recipe
from quantcore.snippets.script import NUMPY

_NIBBLES = "nibbles = blocks[:, -16:]"
_FOUR = [_NIBBLES, "codes = np.concatenate([nibbles & 15, nibbles >> 4], 1).reshape(x.shape)"]
_FIVE = [
    _NIBBLES,
    'fifth = np.unpackbits(blocks[:, -20:-16], axis=1, bitorder="little")',
    "codes = (np.concatenate([nibbles & 15, nibbles >> 4], 1) | fifth << 4).reshape(x.shape)",
]
_EIGHT = ["codes = blocks[:, 2:].view(np.int8).reshape(x.shape)"]
_TWO = [
    "quarters = blocks[:, :64].reshape(-1, 2, 1, 32)",
    "codes = (quarters >> np.array([[0], [2], [4], [6]], np.uint8) & 3).reshape(x.shape)",
]
_HALF = "{} = blocks[:, {}].view(np.float16).astype(np.float32)"
_SCALE = _HALF.format("scale", ":2")
_SCALE_LAST = _HALF.format("scale", "-2:")
_SHIFT = _HALF.format("zero_point", "2:4") + "  # the value of code 0"
# type -> the lines that read its blocks, and what they bind of scale and zero_point. The digits of TQ1_0 to the
# base 3 and the powers of MXFP4 are read by gguf alone
_READ: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "Q4_0": ([*_FOUR, _SCALE], ("scale",)),
    "Q4_1": ([*_FOUR, _SCALE, _SHIFT], ("scale", "zero_point")),
    "Q5_0": ([*_FIVE, _SCALE], ("scale",)),
    "Q5_1": ([*_FIVE, _SCALE, _SHIFT], ("scale", "zero_point")),
    "Q8_0": ([*_EIGHT, _SCALE], ("scale",)),
    "MXFP4": (_FOUR, ()),
    "TQ1_0": ([_SCALE_LAST], ("scale",)),
    "TQ2_0": ([*_TWO, _SCALE_LAST], ("scale",)),
}


def blocks(result: Quantized) -> Recipe:
    """quants.quantize; TQ1_0 is dequantized again, the others' codes are read."""
    fmt, name = result.scheme.format, result.scheme.convention.name.rpartition(".")[2]
    if isinstance(fmt, IntFormat) and fmt.bits == 5:
        name = name.replace("4", "5")  # their arithmetic is that of four bits
    read, gives = _READ[name]
    packed = name == "TQ1_0"
    lines = [
        f"kind = GGMLQuantizationType.{name}",
        "data = quantize(x, kind)",
        "blocks = data.reshape(-1, GGML_QUANT_SIZES[kind][1])",
        *read,
        *(["dequantized = dequantize(data, kind)"] if packed else []),
    ]
    imports = (
        "import numpy as np\nfrom gguf import GGML_QUANT_SIZES, GGMLQuantizationType\n"
        f"from gguf.quants import {'dequantize, ' if packed else ''}quantize"
    )
    return Recipe(imports, lines, gives, (), NUMPY, "dequantized" if packed else "codes")
