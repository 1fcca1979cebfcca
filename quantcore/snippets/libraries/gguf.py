"""Scripts in the API of gguf: the bytes of a file, which are unpacked to codes or dequantized by gguf."""

from quantcore.conventions import CONVENTIONS
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.quantization import Quantized
from quantcore.scheme import gguf_type
from quantcore.snippets.libraries.recipe import Call, Recipe, write
from quantcore.snippets.script import NUMPY
from quantcore.tensors import array_source

# the base-3 digits of TQ1_0 and the power-of-two scales of MXFP4 are left to gguf
_BLOCKS = """
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

kind = GGMLQuantizationType.{{ name }}
data = quantize(x, kind)
blocks = data.reshape(-1, GGML_QUANT_SIZES[kind][1])
{% if name in ("Q4_0", "Q4_1", "MXFP4") %}
nibbles = blocks[:, -16:]
codes = np.concatenate([nibbles & 15, nibbles >> 4], 1).reshape(x.shape)
{% elif name in ("Q5_0", "Q5_1") %}
nibbles = blocks[:, -16:]
fifth = np.unpackbits(blocks[:, -20:-16], axis=1, bitorder="little")
codes = (np.concatenate([nibbles & 15, nibbles >> 4], 1) | fifth << 4).reshape(x.shape)
{% elif name == "Q8_0" %}
codes = blocks[:, 2:].view(np.int8).reshape(x.shape)
{% elif name == "TQ2_0" %}
quarters = blocks[:, :64].reshape(-1, 2, 1, 32)
codes = (quarters >> np.array([[0], [2], [4], [6]], np.uint8) & 3).reshape(x.shape)
{% endif %}
{% if "scale" in gives %}
scale = blocks[:, {{ "-2:" if name.startswith("TQ") else ":2" }}].view(np.float16).astype(np.float32)
{% endif %}
{% if "zero_point" in gives %}
zero_point = blocks[:, 2:4].view(np.float16).astype(np.float32)  # the value of code 0
{% endif %}
{% if name == "TQ1_0" %}
dequantized = dequantize(data, kind)
{% endif %}
"""


def blocks(result: Quantized) -> Recipe:
    """Write quants.quantize; TQ1_0 is dequantized, the codes of the others are unpacked."""
    fmt, name = result.scheme.format, result.scheme.convention.name.rpartition(".")[2]
    if isinstance(fmt, IntFormat) and fmt.bits == 5:
        name = name.replace("4", "5")  # these types share a convention with the four-bit types
    gives = {"MXFP4": (), "Q4_1": ("scale", "zero_point"), "Q5_1": ("scale", "zero_point")}.get(
        name, ("scale",)
    )
    script = write(_BLOCKS, result, name=name, gives=gives)
    return Recipe(script, gives, (), NUMPY, "dequantized" if name == "TQ1_0" else "codes")


# gguf can read the types that need a search, but not write them
_READ = """
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

kind = GGMLQuantizationType.{{ name }}
{% if importance %}
importance = {{ importance }}
{% endif %}
result = qc.apply(x, qc.PRESETS["gguf.{{ name }}"]{% if importance %}, importance=importance{% endif %})
data = qc.checkpoints.encode(result)  # the bytes that ggml_quantize_chunk writes for x
size, num_bytes = GGML_QUANT_SIZES[kind]
dequantized = dequantize(np.frombuffer(data, np.uint8).reshape(-1, num_bytes), kind).reshape(x.shape)
"""


def read(result: Quantized) -> Recipe:
    """Write quants.dequantize of the bytes that quantcore writes."""
    name = gguf_type(result.scheme)
    if name is None:
        raise QuantError(
            "ggml has no block type for this scheme, so there are no bytes to read; use an unchanged gguf "
            "preset."
        )
    importance = None if result.importance is None else array_source(result.importance.cpu().numpy(), "np")
    script = write(_READ, result, name=name, importance=importance)
    return Recipe(script, (), (), NUMPY, "dequantized", ("gguf", CONVENTIONS["gguf.Q8_0"].version))


_SEARCHED = ("Q4_K", "Q6_K", "IQ4_XS", "IQ4_NL", "Q4_0.imatrix", "Q4_1.imatrix")
CALLS = {
    **{f"gguf.{name}": Call(read, free=("*",)) for name in _SEARCHED},
    **{f"gguf.{name}": Call(blocks, sizes=(32,)) for name in ("Q4_0", "Q4_1", "Q8_0", "MXFP4")},
    **{f"gguf.{name}": Call(blocks, sizes=(256,)) for name in ("TQ1_0", "TQ2_0")},
}
