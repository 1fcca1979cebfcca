"""Writes a GGUF file of float32 tensors. Format: see `gguf_header`."""

import struct
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from quantcore.checkpoints.containers.gguf_header import DEFAULT_ALIGNMENT, MAGIC, VERSION

_U32, _STRING, _ARRAY, _F32 = 4, 8, 9, 0  # of values and of tensors


def write_gguf(
    path: str | Path, metadata: Mapping[str, str | int | list[str]], tensors: Mapping[str, Tensor]
) -> None:
    """Write metadata (texts, uint32 and lists of texts) and tensors, as float32."""
    head = struct.pack("<4sIQQ", MAGIC, VERSION, len(tensors), len(metadata))
    head += b"".join(_text(key) + _value(value) for key, value in metadata.items())
    begin = 0
    for name, tensor in tensors.items():
        axes = tensor.shape[::-1]  # the innermost first
        head += _text(name) + struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, _F32, begin)
        begin += _padded(4 * tensor.numel())
    with open(path, "wb") as file:
        file.write(head.ljust(_padded(len(head)), b"\0"))
        for tensor in tensors.values():
            raw = tensor.numpy().astype("<f4").tobytes()
            file.write(raw.ljust(_padded(len(raw)), b"\0"))


def _padded(size: int) -> int:
    return -(-size // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: str | int | list[str]) -> bytes:
    """Return the type of a value and the value."""
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, int):
        return struct.pack("<II", _U32, value)
    return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(map(_text, value))
