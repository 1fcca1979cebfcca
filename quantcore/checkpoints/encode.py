"""Back to bytes: codes and parameters in the packing of their format."""

from quantcore.checkpoints.ggml import ggml_bytes
from quantcore.quantization import Quantized


def encode(source: Quantized) -> bytes:
    """Return the bytes that a result's library stores: of a gguf preset, ggml's blocks, row after row.

    Raises:
        QuantError: the result's scheme has no such bytes.
    """
    return ggml_bytes(source)
