"""GGUF files: where each tensor lies."""

from math import prod

from quantcore.checkpoints.containers.container import Container
from quantcore.checkpoints.containers.gguf.header import GgufHeader, GgufTensor, read_gguf_header
from quantcore.checkpoints.containers.gguf.split import check_part
from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.files.sources import ByteSource
from quantcore.checkpoints.ggml import PLAIN_TYPES, TYPE_IDS, UNREADABLE_TYPES
from quantcore.checkpoints.problem import named
from quantcore.errors import QuantError
from quantcore.wording import shape_text


def open_gguf(source: ByteSource) -> Container:
    """Read the header of a file.

    Raises:
        QuantError: the header is damaged, or does not fit the file or the file's name.
    """
    header = read_gguf_header(source)
    spans = _spans(header, source)
    tensors = {
        tensor.name: StoredTensor(tensor.name, _type_name(tensor), tensor.shape, source, begin, end - begin)
        for tensor, (begin, end) in zip(header.tensors, spans, strict=True)
    }
    check_part(source.name, header.metadata)
    return Container(tensors, header.metadata, is_self_described=True)


def _spans(header: GgufHeader, source: ByteSource) -> list[tuple[int, int]]:
    """Check where the tensors are in the file; return the first byte of each, and the one after its last."""
    begins = [_begin(tensor, header, source) for tensor in header.tensors]
    order = sorted(range(len(begins)), key=lambda i: begins[i])
    ends = [0] * len(begins)
    for place, i in enumerate(order):
        following = order[place + 1] if place + 1 < len(order) else None
        limit = max(begins[i], source.size if following is None else begins[following])
        size = _size(header.tensors[i], source)
        ends[i] = limit if size is None else begins[i] + size
        if following is not None and ends[i] > begins[following]:
            raise QuantError(
                f"In {_quoted(source.name)}, the tensors {_quoted(header.tensors[i].name)} and "
                f"{_quoted(header.tensors[following].name)} overlap; convert the model again."
            )
    if ends and max(ends) > source.size:
        tensor = next(header.tensors[i] for i in order if ends[i] > source.size)
        raise QuantError(
            f"{_quoted(source.name)} is truncated: the tensor {_quoted(tensor.name)} ends beyond the file, which has "
            f"{source.size:,} of the expected {max(ends):,} bytes; download it again."
        )
    return list(zip(begins, ends, strict=True))


def _begin(tensor: GgufTensor, header: GgufHeader, source: ByteSource) -> int:
    if tensor.offset % header.alignment:
        raise QuantError(
            f"In {_quoted(source.name)}, the tensor {_quoted(tensor.name)} begins at the offset {tensor.offset:,}, which is "
            f"not a multiple of the alignment {header.alignment}; convert the model again."
        )
    return header.data + tensor.offset


def _size(tensor: GgufTensor, source: ByteSource) -> int | None:
    """Return the bytes of a tensor; None if its type is unknown."""
    if tensor.type_id in PLAIN_TYPES:
        return prod(tensor.shape) * PLAIN_TYPES[tensor.type_id][1]
    kind = TYPE_IDS.get(tensor.type_id)
    if kind is None:
        return None
    row = tensor.shape[-1] if tensor.shape else 1
    if row % kind.elements:
        raise QuantError(
            f"In {_quoted(source.name)}, the tensor {_quoted(tensor.name)} has the shape {shape_text(tensor.shape)}; rows of "
            f"{kind.name} are multiples of {kind.elements} elements, so convert the model again."
        )
    return prod(tensor.shape) // kind.elements * kind.num_bytes


def _type_name(tensor: GgufTensor) -> str:
    if tensor.type_id in PLAIN_TYPES:
        return PLAIN_TYPES[tensor.type_id][0]
    kind = TYPE_IDS.get(tensor.type_id)
    return kind.name if kind else UNREADABLE_TYPES.get(tensor.type_id, f"ggml type {tensor.type_id}")


def _quoted(name: str) -> str:
    return named(name)
