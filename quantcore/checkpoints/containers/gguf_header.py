"""The header of a GGUF file: metadata, then for each tensor its name, shape, type and offset.

It is read from front to back, and no byte beyond it. It does not say how long it is, but its counts give a
lower bound for the rest of it: that much is read ahead, so that a header of several megabytes takes a few
dozen reads.

Format: ggml-org/ggml d99724f2, include/gguf.h, src/gguf.cpp. All numbers are little-endian.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from quantcore.checkpoints.files.sources import ByteSource
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError
from quantcore.wording import short

MAX_HEADER = 2**26  # bytes; a vocabulary of 250,000 words with its merges takes 12 MB
KEPT = 1024  # elements of an array; of a longer one, only the first are kept
_LENGTH = struct.Struct("<Q")
MAGIC, VERSION, DEFAULT_ALIGNMENT = b"GGUF", 3, 32
VERSION_KEY = "GGUF.version"  # the metadata's key for the file's version, as in gguf-py
MAX_AXES = 4
MAX_COUNT = 2**15  # of tensors and of keys; the largest models have a few thousand
# types of numbers, by the codes of `struct`
_SCALARS = {kind: f"<{code}" for kind, code in zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True)}
_STRING, _ARRAY = 8, 9
# the smallest size of a key with its value (length, one letter, type, one byte), and of a tensor without name
# and axes
_LEAST_KEY, _LEAST_TENSOR = 14, 24


class Cursor:
    """Reads forward, and ahead only as far as the header must reach, so never beyond its end."""

    def __init__(self, source: ByteSource) -> None:
        self.source, self.position = source, 0
        self.least = 0  # bytes that the header must still have after the next take
        self._data, self._start = memoryview(b""), 0

    def view(self, size: int) -> memoryview:
        """Return the bytes from here on, at least ``size`` of them, without moving on."""
        have = self._start + len(self._data) - self.position
        if have < size:
            self._read_to(self.position + size + self.least)
        return self._data[self.position - self._start :]

    def take(self, size: int) -> memoryview:
        """Return the next ``size`` bytes."""
        found = self.view(size)[:size]
        self.position += size
        return found

    def _read_to(self, end: int) -> None:
        reached = self._start + len(self._data)
        if end > self.source.size:
            raise QuantError(
                f"{named(self.source.name)} is truncated: its header goes on for at least {end - reached:,} "
                f"bytes after byte {reached:,}, and the file size is {self.source.size:,} bytes; "
                "download it again."
            )
        if end > MAX_HEADER:
            raise QuantError(
                f"The header of {named(self.source.name)} is longer than the limit of {MAX_HEADER:,} bytes; "
                "its counts or lengths are damaged, download it again."
            )
        rest = self._data[self.position - self._start :]
        self._data = memoryview(bytes(rest) + bytes(self.source.read(reached, end - reached)))
        self._start = self.position

    def number(self, code: str) -> Any:
        """Return the next number, by its `struct` code."""
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def text(self, what: str, strict: bool = True) -> str:
        """Return the next text; ``what``: what it is, for messages."""
        raw = bytes(self.take(self.number("<Q")))
        try:
            return raw.decode("utf-8", "strict" if strict else "replace")
        except UnicodeDecodeError:
            raise QuantError(
                f"{what} of {named(self.source.name)} is not UTF-8 text; download it again."
            ) from None

    def texts(self, count: int) -> list[str]:
        """Skip ``count`` texts, and return the first of them."""
        kept: list[str] = []
        after, left = self.least, count
        while left:
            self.least = after + 8 * (left - 1)
            data, done = self.view(8), 0
            while left and done + 8 <= len(data):
                size = _LENGTH.unpack_from(data, done)[0]
                if done + 8 + size > len(data):
                    break
                if len(kept) < KEPT:
                    kept.append(bytes(data[done + 8 : done + 8 + size]).decode("utf-8", "replace"))
                done, left = done + 8 + size, left - 1
            self.position += done
            if not done:  # the next text is longer than what is read so far
                self.view(8 + size)
        self.least = after
        return kept


@dataclass(frozen=True)
class LongArray:
    """An array of the metadata that is too long to keep: how many elements it has, and the first of them."""

    count: int
    first: tuple[Any, ...]


@dataclass(frozen=True)
class GgufTensor:
    """What the header says about a tensor.

    ``shape``: row-major, the reverse of the file's; ``begin``: the first byte of its data in the file.
    """

    name: str
    shape: tuple[int, ...]
    type_id: int
    begin: int


def read_gguf_header(source: ByteSource) -> tuple[dict[str, Any], list[GgufTensor]]:
    """Read the header of a GGUF file, and no other byte of it.

    Returns metadata by key (numbers, texts, lists of them, or `LongArray`), and tensors in the file's order.

    Raises:
        QuantError: it is not a GGUF file of version 3, or its header is damaged.
    """
    cursor = Cursor(source)
    num_tensors, num_keys = _read_counts(cursor)
    metadata: dict[str, Any] = {VERSION_KEY: VERSION}
    for key, value in _read_keys(cursor, num_keys):
        if key in metadata:
            raise QuantError(f"{named(source.name)} has the key {named(key)} twice; convert the model again.")
        metadata[key] = value
    tensors: dict[str, GgufTensor] = {}
    for _ in range(num_tensors):
        cursor.least -= _LEAST_TENSOR
        tensor = _read_tensor(cursor)
        if tensor.name in tensors:
            raise QuantError(
                f"{named(source.name)} has a duplicate name: two tensors are called {named(tensor.name)}; "
                "convert the model again."
            )
        tensors[tensor.name] = tensor
    return metadata, list(_placed(tensors.values(), metadata, cursor))


def gguf_key_bytes(source: ByteSource) -> dict[str, int]:
    """Return how many bytes each key of a GGUF file takes in its header, with its value.

    Raises:
        QuantError: as `read_gguf_header`.
    """
    cursor, found = Cursor(source), {}
    _, num_keys = _read_counts(cursor)
    begin = cursor.position
    for key, _ in _read_keys(cursor, num_keys):
        found[key], begin = cursor.position - begin, cursor.position
    return found


def _read_keys(cursor: Cursor, count: int) -> Iterator[tuple[str, Any]]:
    for _ in range(count):
        cursor.least -= _LEAST_KEY
        key = cursor.text("A key")
        yield key, _read_value(cursor, key)


def _read_counts(cursor: Cursor) -> tuple[int, int]:
    """Read magic, version and counts; return the number of tensors and of keys."""
    name = named(cursor.source.name)
    if cursor.source.size < 24 or (magic := bytes(cursor.take(24)))[:4] != MAGIC:
        raise QuantError(f"{name} does not begin like a GGUF file; download it again.")
    version, num_tensors, num_keys = struct.unpack("<IQQ", magic[4:])
    if version & 0xFFFF == 0:
        raise QuantError(
            f"{name} is a big-endian GGUF file, which has no reader here; convert it to little-endian."
        )
    if version != VERSION:
        raise QuantError(
            f"{name} is a GGUF file of version {version}, which has no reader here; "
            f"convert it to version {VERSION}."
        )
    for what, count, least in (("tensor", num_tensors, _LEAST_TENSOR), ("key", num_keys, _LEAST_KEY)):
        if count > MAX_COUNT or count * least > cursor.source.size:
            raise QuantError(
                f"{name} claims a {what} count of {count:,}, but the file size is {cursor.source.size:,} "
                f"bytes and the limit is {MAX_COUNT:,}; download it again."
            )
    cursor.least = num_tensors * _LEAST_TENSOR + num_keys * _LEAST_KEY
    return num_tensors, num_keys


def _read_value(cursor: Cursor, key: str) -> Any:
    kind = cursor.number("<I")
    if kind in _SCALARS:
        return cursor.number(_SCALARS[kind])
    if kind == _STRING:
        return cursor.text("", strict=False)
    if kind != _ARRAY:
        raise QuantError(
            f"In {named(cursor.source.name)}, the value of {named(key)} has the unknown type {kind}; "
            "download it again."
        )
    kind, count = cursor.number("<I"), cursor.number("<Q")
    values: list[Any]
    if kind in _SCALARS:
        dtype = np.dtype(_SCALARS[kind])
        values = np.frombuffer(cursor.take(count * dtype.itemsize), dtype)[:KEPT].tolist()
    elif kind == _STRING:
        values = cursor.texts(count)
    else:
        raise QuantError(
            f"In {named(cursor.source.name)}, {named(key)} is an array of type {kind}, which GGUF does not "
            "have; download it again."
        )
    return values if count <= KEPT else LongArray(count, tuple(values))


def _read_tensor(cursor: Cursor) -> GgufTensor:
    name = cursor.text("The name of a tensor")
    where = f"In {named(cursor.source.name)}, {named(name)}"
    axes = cursor.number("<I")
    if axes > MAX_AXES:
        raise QuantError(f"{where} claims {axes:,} axes; GGUF has at most {MAX_AXES}, so download it again.")
    shape = struct.unpack(f"<{axes}Q", cursor.take(8 * axes))[::-1]
    if prod(n for n in shape if n) >= 2**48:  # also if an axis of 0 leaves none
        raise QuantError(f"{where} claims 2^48 elements or more; its shape is damaged, download it again.")
    type_id, offset = struct.unpack("<IQ", cursor.take(12))
    return GgufTensor(name, shape, type_id, offset)


def _placed(
    tensors: Iterable[GgufTensor], metadata: Mapping[str, Any], cursor: Cursor
) -> Iterator[GgufTensor]:
    """Yield the tensors, whose offsets count from the first multiple of the alignment after the header."""
    name = named(cursor.source.name)
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1) or alignment >= 2**32:
        raise QuantError(
            f"{name} has the general.alignment {short(str(alignment))}, which is not a power of two; "
            "convert the model again."
        )
    data = -(-cursor.position // alignment) * alignment
    for tensor in tensors:
        if tensor.begin % alignment:
            raise QuantError(
                f"In {name}, the tensor {named(tensor.name)} begins at the offset {tensor.begin:,}, which is "
                f"not a multiple of the alignment {alignment}; convert the model again."
            )
        yield replace(tensor, begin=data + tensor.begin)
