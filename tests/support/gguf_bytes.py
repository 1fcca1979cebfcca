"""GGUF files built by hand, so that any number in them can be wrong."""

import struct

import numpy as np

from quantcore.checkpoints.ggml import BLOCK_TYPES, PLAIN_TYPES

IDS = {kind.name: kind.type_id for kind in BLOCK_TYPES.values()} | {
    name: number for number, (name, _) in PLAIN_TYPES.items()
}
U32, I32, STRING, ARRAY, U16, U64 = 4, 5, 8, 9, 2, 10
_CODES = {U32: "<I", I32: "<i", U16: "<H", U64: "<Q"}


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, content):
    """A typed value: (type, number), (STRING, text) or (ARRAY, (type, list))."""
    if kind == STRING:
        return text(content)
    if kind == ARRAY:
        inner, items = content
        return struct.pack("<IQ", inner, len(items)) + b"".join(value(inner, item) for item in items)
    return struct.pack(_CODES[kind], content)


def info(name, dims, type_id, offset, axes=None):
    """The header record of one tensor; ``dims`` has the innermost dimension first."""
    head = text(name) + struct.pack("<I", len(dims) if axes is None else axes)
    return head + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", type_id, offset)


def gguf(infos, data=b"", keys=(), version=3, tensors=None, num_keys=None, alignment=32):
    """A file with these tensor records, metadata as (key, type, value), and the data after the padding."""
    head = struct.pack("<4sIQQ", b"GGUF", version, len(infos) if tensors is None else tensors,
                       len(keys) if num_keys is None else num_keys)  # fmt: skip
    head += b"".join(
        text(key) + struct.pack("<I", kind) + value(kind, content) for key, kind, content in keys
    )
    head += b"".join(infos)
    return head + bytes(-len(head) % alignment) + data


def all_types(seed=0, rows=2, blocks=2, names=tuple(BLOCK_TYPES)):
    """A file with one tensor of each block type (random bytes, moderate scales), and the tensors' names."""
    generator = np.random.default_rng(seed)
    infos, data = [], bytearray()
    for kind in map(BLOCK_TYPES.get, names):
        stored = generator.integers(0, 256, (rows * blocks, kind.num_bytes), dtype=np.uint8)
        fields = kind.unpack(stored)
        for name in ("d", "dmin", "m"):
            if name in fields:
                fields[name][...] = generator.uniform(-2, 2, fields[name].shape)
        if kind.name == "MXFP4":
            fields["scale_code"][...] = generator.integers(100, 140, fields["scale_code"].shape)
        data += bytes(-len(data) % 32)
        infos.append(info(kind.name, (blocks * kind.elements, rows), kind.type_id, len(data)))
        data += kind.pack(fields).tobytes()
    return gguf(infos, bytes(data)), list(names)
