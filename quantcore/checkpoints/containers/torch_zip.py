"""PyTorch's ``.pt``, ``.pth`` and ``.bin``: a zip file of a pickle that names tensors, and their bytes.

The pickle is read by torch's own unpickler of weights (`weights_unpickler`), which runs nothing and gives
tensors without bytes; each is a range of the file. Files from before PyTorch 1.6 are bare pickles, and are
refused.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from quantcore.checkpoints.containers.stored import (
    TORCH_DTYPES,
    Container,
    StoredTensor,
    TensorQuantizer,
    TorchQuantized,
    constant,
    strided,
)
from quantcore.checkpoints.containers.weights_unpickler import MAX_PICKLE, TorchQuantizer, WatchedUnpickler
from quantcore.checkpoints.containers.zipped import Archive
from quantcore.checkpoints.files.sources import ByteSource
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError
from quantcore.tensors import CONVERT_TORCH
from quantcore.wording import megabytes, shape_text

MAX_VISITS = 2_000_000  # objects in containers, shared ones counted each time
MAX_TENSORS = 7_500  # as many as a pickle can make within its steps; shared ones are counted each time
_MAX_NAME = 2000
_DTYPES = {dtype: name for name, dtype in TORCH_DTYPES.items()}
_CONTAINERS = (dict, list, tuple)  # with their subclasses


def open_torch(source: ByteSource) -> Container:
    """Read the directory of the zip file and its pickle.

    Raises:
        QuantError: it is not a zip file of tensors, or damaged.
    """
    name = named(source.name)
    if bytes(source.read(0, min(4, source.size))) != b"PK\x03\x04":
        raise QuantError(
            f"{name} is not a zip file of tensors, as PyTorch has written since 1.6; bare pickles are "
            f"not read. {CONVERT_TORCH}"
        )
    archive = Archive(source)
    pickles = [name for name in archive.members if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) != 1:
        raise QuantError(f"{name} is not a zip file of tensors; save them as .safetensors.")
    if archive.members[pickles[0]].file_size > MAX_PICKLE:
        raise QuantError(
            f"The pickle in {name} takes {megabytes(archive.members[pickles[0]].file_size)}; the limit is "
            f"{megabytes(MAX_PICKLE)}, so save the tensors as .safetensors."
        )
    root = pickles[0].removesuffix("data.pkl")
    if f"{root}constants.pkl" in archive.members:
        raise QuantError(f"{name} is a TorchScript program; save its state_dict() as .safetensors.")
    if f"{root}byteorder" in archive.members and archive.start(f"{root}byteorder", 8) != b"little":
        raise QuantError(f"{name} was written on a big-endian machine; save it as .safetensors.")
    unpickler = WatchedUnpickler(archive.start(pickles[0], MAX_PICKLE), source.name)
    reader = _TensorReader(archive, root, unpickler.quantizers)
    for path, tensor in _tensors(unpickler.load(), source.name):
        reader.add(path, tensor)
    if not reader.tensors:
        raise QuantError(f"{name} holds no tensor.")
    return Container(reader.tensors, structure=TorchQuantized(reader.quantized) if reader.quantized else None)


def _tensors(content: Any, file: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in nested dicts and lists, with names joined by dots.

    Raises:
        QuantError: there are too many objects; shared ones are counted each time.
    """
    todo, visits, found = [("", content)] if isinstance(content, (torch.Tensor, *_CONTAINERS)) else [], 0, 0
    while todo:
        name, value = todo.pop()
        if isinstance(value, torch.Tensor):
            found += 1
            if found > MAX_TENSORS:
                raise QuantError(
                    f"{named(file)} holds more than {MAX_TENSORS:,} tensors; save them as .safetensors, or "
                    "in several files."
                )
            yield name or "tensor", value
            continue
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        visits += len(value)
        if visits > MAX_VISITS or len(name) > _MAX_NAME:
            raise QuantError(
                f"The pickle in {named(file)} nests more than {MAX_VISITS:,} objects; "
                "save the tensors as .safetensors."
            )
        inside = [(key, one) for key, one in pairs if isinstance(one, (torch.Tensor, *_CONTAINERS))]
        if any(isinstance(key, str) and len(key) > _MAX_NAME for key, _ in inside):
            raise QuantError(
                f"{named(file)} has names of more than {_MAX_NAME:,} characters; "
                "save the tensors as .safetensors."
            )
        todo += [(f"{name}.{key}" if name else str(key), one) for key, one in reversed(inside)]


class _TensorReader:
    """The stored tensors of a file, by name."""

    def __init__(self, archive: Archive, root: str, quantizers: dict[torch.Tensor, TorchQuantizer]) -> None:
        self._archive, self._root, self._quantizers = archive, root, quantizers
        self._places: dict[str, tuple[ByteSource, int]] = {}
        self.tensors: dict[str, StoredTensor] = {}
        self.quantized: dict[str, TensorQuantizer] = {}

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Add a tensor, and the scales and zero points of a quantized one.

        Raises:
            QuantError: its bytes are missing or too few, or its name occurs twice.
        """
        quantizer = self._quantizers.get(tensor)
        self._add(name, self._stored(name, tensor))
        if quantizer is None:
            return
        scale, zero_point = f"{name} (scale)", f"{name} (zero point)"
        if quantizer.axis is None:
            source = self._archive.source
            self._add(scale, constant(source, scale, "F64", np.array(quantizer.scale, "<f8")))
            self._add(zero_point, constant(source, zero_point, "I64", np.array(quantizer.zero_point, "<i8")))
        else:
            self._add(scale, self._stored(scale, quantizer.scale))
            self._add(zero_point, self._stored(zero_point, quantizer.zero_point))
        self.quantized[name] = TensorQuantizer(scale, zero_point, quantizer.axis)

    def _add(self, name: str, piece: StoredTensor) -> None:
        if name in self.tensors:
            raise QuantError(
                f"{named(self._archive.source.name)} holds two tensors {named(name)}; rename one of them."
            )
        self.tensors[name] = piece

    def _stored(self, name: str, tensor: torch.Tensor) -> StoredTensor:
        if tensor.dtype not in _DTYPES or tensor.is_neg() or tensor.is_conj():
            raise QuantError(
                f"{named(name)} is {str(tensor.dtype).removeprefix('torch.')}, which is not read here; "
                "save it as float32."
            )
        key = getattr(tensor.untyped_storage(), "key", None)
        member = f"{self._root}data/{key}"
        if key is None or member not in self._archive.members:
            raise QuantError(f"The bytes of {named(name)} are missing; download the file again.")
        size, shape, strides = tensor.element_size(), tuple(tensor.shape), tensor.stride()
        begin = int(tensor.storage_offset())
        room = self._archive.members[member].file_size
        count = math.prod(shape)
        reach = sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + 1
        if count and (begin + reach) * size > room:
            raise QuantError(
                f"{named(name)} has shape {shape_text(shape)}, which does not fit the {room:,} bytes of its "
                "storage; the file is damaged."
            )
        if member not in self._places:
            self._places[member] = self._archive.bytes_of(member)
        source, start = self._places[member]
        # no byte of an empty tensor lies anywhere
        offset = start + begin * size if count else start
        whole = StoredTensor(name, _DTYPES[tensor.dtype], shape, source, offset, count * size)
        return strided(whole, strides, np.dtype(f"<u{size}"), reach)
