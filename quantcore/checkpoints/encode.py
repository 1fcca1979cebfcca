"""Encodes codes and parameters back to bytes, in the packing of their format."""

from quantcore.checkpoints.ggml import ggml_bytes
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.refused import Deferred
from quantcore.checkpoints.tensor import CheckpointTensor
from quantcore.errors import QuantError
from quantcore.quantization import Quantized
from quantcore.range_setting import Stored
from quantcore.scheme import gguf_type


def encode(source: Quantized | CheckpointTensor) -> dict[str, bytes] | bytes:
    """Return the bytes of each stored tensor of a weight, by its name in the file; for a gguf preset, ggml's bytes.

    For a `CheckpointTensor`, its numbers are decoded and encoded again, which reproduces the file's own bytes. For a
    result of `CheckpointTensor.quantized`, its codes are encoded in that file's packing, with the file's parameters.
    For a result of a gguf preset, with or without importance, the bytes are the blocks of all rows, one after
    another: what ``ggml_quantize_chunk`` writes for x.

    Raises:
        QuantError: any other kind of result, or a format that can't be written.
    """
    if isinstance(source, CheckpointTensor):
        return source.layout.encode()
    setting = source.scheme.range_setting
    if gguf_type(source.scheme) is not None:
        return ggml_bytes(source)
    if not isinstance(setting, Stored) or not isinstance(setting.owner, Layout | Deferred):
        raise QuantError(
            "Only a checkpoint's tensor, a result of its quantized() and a result of a gguf preset have a packing; "
            "give one of these."
        )
    return setting.owner.encode({"codes": source.codes})
