"""The tensor that a command is about: from a text or an image, or one of a checkpoint."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from quantcore.checkpoints import open_checkpoint
from quantcore.errors import QuantError
from quantcore.tensors import DTYPES, IMAGES, list_tensors, read_tensor
from quantcore.wording import count, printable, short

_TEXTS = (".csv", ".tsv", ".txt", ".json")
_LISTED = 5  # names in a sentence


class TensorRead(NamedTuple):
    """``title``: the tensor in a few words, for the first line; ``name``: empty if the file has but one."""

    x: Tensor
    name: str
    title: str


def read_file(file: str, name: str | None = None) -> TensorRead:
    """Return a tensor of a file, in the dtype in which libraries compute.

    Texts (.csv, .tsv, .txt, .json) and images are read as the page reads them; all others, folders and
    addresses as checkpoints, of which only the tensor's bytes are read; a quantized weight is dequantized.

    Args:
        file: a path or an address.
        name: which one of several.

    Raises:
        QuantError: the file can't be read, or has no such tensor; the message says what it has.
    """
    return _of_text(file, name) if file.lower().endswith((*_TEXTS, *IMAGES)) else _of_checkpoint(file, name)


def _of_text(file: str, name: str | None) -> TensorRead:
    path = Path(file)
    try:
        data = path.read_bytes()
    except OSError as reason:
        raise QuantError(f"{file} can't be read: {reason.strerror or reason}; check the path.") from None
    names = [info.name for info in list_tensors(data, path.name)]
    chosen = _chosen(file, names, name)
    return _read(torch.from_numpy(read_tensor(data, path.name, chosen)), file, chosen, names, "float32")


def _of_checkpoint(file: str, name: str | None) -> TensorRead:
    tensors = open_checkpoint(file).tensors
    chosen = _chosen(file, list(tensors), name)
    tensor = tensors[chosen]
    return _read(tensor.read(), file, chosen, list(tensors), tensor.dtype)


def _chosen(file: str, names: list[str], name: str | None) -> str:
    if name in names:
        return str(name)
    if name is None and len(names) == 1:
        return names[0]
    listed = ", ".join(short(one, 80) for one in names[:_LISTED])
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    has = f"{printable(file)} has {count(len(names), 'tensor')}" + (f": {listed}{more}" if names else "")
    raise QuantError(
        f"{has}; choose one with --tensor." if name is None else f"{has}, but no {short(name, 80)}."
    )


def _read(values: Tensor, file: str, name: str, names: list[str], dtype: str) -> TensorRead:
    """Return values with their heading, in their dtype if libraries compute in it."""
    x = values.to(DTYPES[dtype]) if dtype in ("float16", "bfloat16") else values
    one = len(names) == 1
    of = printable(file) if one else f"{printable(file)}, {short(name, 120)}"
    shape = "×".join(map(str, x.shape)) or "one number"
    stored = str(x.dtype).removeprefix("torch.")
    return TensorRead(x, "" if one else name, f"{of}: {stored} {shape}")
