"""GGUF files: where each tensor lies, which parts belong together, and imatrix files.

imatrix files come in GGUF and in an older form (``.dat``): int32 number of entries, then for each: int32
length and name of the weight, int32 calls, int32 number of values, float32 values (the mean of x^2 over the
tokens, times calls). Then, in newer files, int32 number of chunks, int32 length and name of the data set.
Source: ggml-org/llama.cpp, tools/imatrix/imatrix.cpp, `load_imatrix_legacy`.
"""

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from math import prod
from typing import Any

from quantcore.checkpoints.containers.gguf_header import MAGIC, GgufTensor, read_gguf_header
from quantcore.checkpoints.containers.stored import Container, StoredTensor
from quantcore.checkpoints.files.address import Folder
from quantcore.checkpoints.files.sources import ByteSource
from quantcore.checkpoints.ggml import PLAIN_TYPES, TYPE_IDS, UNREADABLE_TYPES
from quantcore.checkpoints.statement import Problem, named, some
from quantcore.errors import QuantError
from quantcore.wording import shape_text, short

MAX_PARTS = 1000
_PART = re.compile(r"(?P<stem>.*)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
MAX_ENTRIES, MAX_NAME = 2**15, 4096
_LEAST_ENTRY = 12  # bytes of an entry without name and values


def part_of(name: str) -> tuple[str, int, int] | None:
    """Return the name's stem, its part counted from 1, and the number of parts; None if it names no part.

    Raises:
        QuantError: its part or its number of parts is out of range.
    """
    match = _PART.fullmatch(name)
    if match is None:
        return None
    part, count = int(match["part"]), int(match["count"])
    if not 1 <= part <= count <= MAX_PARTS:
        raise QuantError(
            f"{named(name)} is named part {part:,} of {count:,}, but parts are numbered from 1 to their "
            f"count, at most {MAX_PARTS:,}; correct its name."
        )
    return match["stem"], part, count


def parts(folder: Folder, names: Sequence[str]) -> tuple[list[str], list[Problem]]:
    """Return the files of the model that ``names`` belong to, and a problem for each missing one.

    Raises:
        QuantError: the names belong to several models.
    """
    models = dict.fromkeys((part[0], part[2]) if (part := part_of(name)) else (name, 0) for name in names)
    if len(models) > 1:
        shown = some(stem for stem, _ in models)
        raise QuantError(f"The folder has {len(models)} GGUF models ({shown}); give the file of one.")
    stem, count = next(iter(models))
    if not count:
        return list(names), []
    wanted = [f"{stem}-{i:05}-of-{count:05}.gguf" for i in range(1, count + 1)]
    there = folder.present(wanted) | set(names)
    missing = [name for name in wanted if name not in there]
    return [name for name in wanted if name in there], [
        Problem(
            "missing_shard",
            "error",
            f"The part {named(name)} is missing; download it into the same folder.",
        )
        for name in missing
    ]


def check_part(name: str, metadata: Mapping[str, Any]) -> None:
    """Check that a file's name matches its header.

    Raises:
        QuantError: it is another part, or of another number of parts.
    """
    part = part_of(name)
    count, number = metadata.get("split.count", 0), metadata.get("split.no", 0)
    if type(count) is not int or type(number) is not int:
        raise QuantError(
            f"split.no and split.count of {named(name)} are not integers; split the model again."
        )
    if part is None and count in (0, 1):
        return
    if part is None or (number + 1, count) != part[1:]:
        raise QuantError(
            f"{named(name)} is part {number + 1} of {count}, but its name does not say so; give every part "
            "its original name, such as model-00001-of-00003.gguf."
        )


def check_number(containers: Mapping[str, Container]) -> list[Problem]:
    """Return a problem if all parts together do not have the number of tensors that they claim."""
    claims = {c.metadata.get("split.tensors.count") for c in containers.values()} - {None}
    found = sum(len(c.tensors) for c in containers.values())
    if not claims or claims == {found}:
        return []
    said = " and ".join(
        f"{claim:,}" if isinstance(claim, int) else short(str(claim)) for claim in sorted(claims, key=str)
    )
    sentence = f"The parts hold {found:,} tensors, but claim {said}; download them again."
    return [Problem("missing_tensor", "error", sentence)]


def open_gguf(source: ByteSource) -> Container:
    """Read the header of a file.

    Raises:
        QuantError: the header is damaged, or does not fit the file or the file's name.
    """
    metadata, found = read_gguf_header(source)
    tensors = {tensor.name: tensor for tensor in _tensors(found, source)}
    beyond = [one for one in tensors.values() if one.offset + one.num_bytes > source.size]
    if beyond:
        end = beyond[-1].offset + beyond[-1].num_bytes
        raise QuantError(
            f"{named(source.name)} is truncated: the tensor {named(beyond[0].name)} ends beyond the file, "
            f"which has {source.size:,} of the expected {end:,} bytes; download it again."
        )
    check_part(source.name, metadata)
    return Container({one.name: tensors[one.name] for one in found}, metadata, is_self_described=True)


def _tensors(tensors: Iterable[GgufTensor], source: ByteSource) -> Iterator[StoredTensor]:
    """Yield the stored tensors in the order of their data, after checking where these are in the file."""
    ordered = sorted(tensors, key=lambda tensor: tensor.begin)
    for tensor, after in zip_longest(ordered, ordered[1:]):
        name, size = _type_of(tensor, source)
        limit = max(tensor.begin, source.size if after is None else after.begin)
        end = limit if size is None else tensor.begin + size
        if after is not None and end > after.begin:
            raise QuantError(
                f"In {named(source.name)}, the tensors {named(tensor.name)} and {named(after.name)} overlap; "
                "convert the model again."
            )
        yield StoredTensor(tensor.name, name, tensor.shape, source, tensor.begin, end - tensor.begin)


def _type_of(tensor: GgufTensor, source: ByteSource) -> tuple[str, int | None]:
    """Return the name of a tensor's type, and the tensor's bytes; None if the type is unknown."""
    count = prod(tensor.shape)
    if tensor.type_id in PLAIN_TYPES:
        name, size = PLAIN_TYPES[tensor.type_id]
        return name, count * size
    kind = TYPE_IDS.get(tensor.type_id)
    if kind is None:
        return UNREADABLE_TYPES.get(tensor.type_id, f"ggml type {tensor.type_id}"), None
    if (tensor.shape[-1] if tensor.shape else 1) % kind.elements:
        raise QuantError(
            f"In {named(source.name)}, the tensor {named(tensor.name)} has the shape "
            f"{shape_text(tensor.shape)}; rows of {kind.name} are multiples of {kind.elements} elements, so "
            "convert the model again."
        )
    return kind.name, count // kind.elements * kind.num_bytes


def open_imatrix(source: ByteSource) -> Container:
    """Read the names and places of an imatrix's entries, in either form: both use the same extensions.

    Raises:
        QuantError: as `open_gguf` and `_open_dat`.
    """
    is_gguf = source.size >= 4 and bytes(source.read(0, 4)) == MAGIC
    return open_gguf(source) if is_gguf else _open_dat(source)


def _open_dat(source: ByteSource) -> Container:
    """Read names, calls and lengths, and no values; the metadata's ``imatrix.calls`` are the calls by name.

    Raises:
        QuantError: the file is not an imatrix, or is truncated.
    """
    name = named(source.name)
    count = _numbers(source, 0, 1)[0] if source.size >= 4 else -1
    if not 1 <= count <= MAX_ENTRIES or 4 + count * _LEAST_ENTRY > source.size:
        raise QuantError(
            f"{name} does not begin like an imatrix file; give a .dat or .gguf that llama-imatrix wrote."
        )
    tensors: dict[str, StoredTensor] = {}
    calls: dict[str, int] = {}
    position = 4
    for i in range(count):
        length = _numbers(source, position, 1)[0]
        if not 1 <= length <= MAX_NAME:
            raise QuantError(
                f"{name} claims a name of {length:,} bytes for entry {i + 1:,}; download it again."
            )
        raw = bytes(source.read(position + 4, length + 8))
        try:
            weight = raw[:length].decode("utf-8")
        except UnicodeDecodeError:
            raise QuantError(
                f"The name of entry {i + 1:,} of {name} is not UTF-8 text; download it again."
            ) from None
        calls[weight], size = struct.unpack("<ii", raw[length:])
        position += 12 + length
        if size < 1 or position + 4 * size > source.size:
            raise QuantError(
                f"{name} claims {size:,} values for {named(weight)}, which is not possible in a file of "
                f"{source.size:,} bytes; download it again."
            )
        if weight in tensors:
            raise QuantError(f"{name} has two entries {named(weight)}; compute the imatrix again.")
        tensors[weight] = StoredTensor(weight, "F32", (1, size), source, position, 4 * size)
        position += 4 * size
    return Container(tensors, {"imatrix.calls": calls} | _tail(source, position), is_self_described=True)


def _tail(source: ByteSource, position: int) -> dict[str, Any]:
    """Return the number of chunks and the name of the data set, where the file has them."""
    left = source.size - position
    if left < 8:
        return {}
    chunks, length = _numbers(source, position, 2)
    if not 0 <= length <= min(MAX_NAME, left - 8):
        return {"imatrix.chunk_count": chunks}
    text = bytes(source.read(position + 8, length)).decode("utf-8", "replace")
    return {"imatrix.chunk_count": chunks, "imatrix.datasets": [text]}


def _numbers(source: ByteSource, offset: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}i", source.read(offset, 4 * count))
