"""``.safetensors``: 8 bytes, a JSON header, then the data."""

from quantcore.checkpoints.containers.container import Container
from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.files.sources import ByteSource
from quantcore.tensors import read_safetensors_header, uncollected


def open_safetensors(source: ByteSource) -> Container:
    """Read the header: 8 bytes and its JSON.

    Raises:
        QuantError: the header can't be read, or does not describe the file.
    """
    header = read_safetensors_header(source.read, source.size, source.name)
    with uncollected():
        tensors = {
            name: StoredTensor(name, info.dtype, info.shape, source, offset, info.nbytes)
            for name, (info, offset) in header.tensors.items()
        }
    return Container(tensors, header.metadata)
