"""Back to bytes: codes and parameters in the packing of their format."""

from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.tensor import CheckpointTensor
from quantcore.errors import QuantError
from quantcore.quantization import Quantized
from quantcore.range_setting import Stored


def encode(source: Quantized | CheckpointTensor) -> dict[str, bytes]:
    """Return the bytes of each stored tensor of a weight, by its name in the file.

    Of a `CheckpointTensor`, its numbers are decoded and encoded again, which gives the file's own bytes. Of a result
    made by `CheckpointTensor.quantized`, its codes are encoded in the packing of that file; the parameters are the
    file's.

    Raises:
        QuantError: a result that did not come from a checkpoint, or a format that can't be written.
    """
    if isinstance(source, CheckpointTensor):
        return source.layout.encode()
    setting = source.scheme.range_setting
    if not isinstance(setting, Stored) or not isinstance(setting.owner, Layout):
        raise QuantError(
            "Only a tensor of a checkpoint knows its packing; give one, or a result of its quantized()."
        )
    return setting.owner.encode({"codes": source.codes})
