"""Back to bytes: codes and parameters in the packing of their format."""

from quantcore.checkpoints.ggml import ggml_bytes
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.tensor import CheckpointTensor
from quantcore.errors import QuantError
from quantcore.quantization import Quantized
from quantcore.range_setting import Stored
from quantcore.scheme import gguf_type


def encode(source: Quantized | CheckpointTensor) -> dict[str, bytes] | bytes:
    """Return the bytes of each stored tensor of a weight, by its name in the file; of a gguf preset, ggml's bytes.

    Of a `CheckpointTensor`, its numbers are decoded and encoded again, which gives the file's own bytes. Of a result
    made by `CheckpointTensor.quantized`, its codes are encoded in the packing of that file; the parameters are the
    file's. Of a result of one of the gguf presets, with importance or without, the blocks of all rows, one after
    another: what ``ggml_quantize_chunk`` writes for x.

    Raises:
        QuantError: a result of neither kind, or a format that can't be written.
    """
    if isinstance(source, CheckpointTensor):
        return source.layout.encode()
    setting = source.scheme.range_setting
    if gguf_type(source.scheme) is not None:
        return ggml_bytes(source)
    if not isinstance(setting, Stored) or not isinstance(setting.owner, Layout):
        raise QuantError(
            "Only a tensor of a checkpoint, a result of its quantized() and a result of a gguf preset know their packing; "
            "give one of these."
        )
    return setting.owner.encode({"codes": source.codes})
