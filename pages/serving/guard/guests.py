"""What a guest can be asked: from the server (`GuestHost`), JSON and bytes to JSON and arrays.

They run in a child process only. What they are given is untrusted, and so is what they return.
"""

import dataclasses
import io
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import quantcore as qc
from pages.serving.guard.channel import Bytes
from pages.serving.guard.host import GuestHost
from quantcore import pasted, tensors
from quantcore.checkpoints import ByteSource, Folder, assemble, headers, read_headers

Found = tuple[Any, list[npt.NDArray[Any]]]


class _HostSource(ByteSource):
    """A file of the server."""

    def __init__(self, host: GuestHost, name: str, size: int, is_remote: bool, gap: int) -> None:
        super().__init__(name, size)
        self._host, self.is_remote, self.gap = host, is_remote, gap

    def _read(self, offset: int, size: int) -> memoryview:
        return memoryview(self._host.call("read", self.name, offset, size)[1])

    def read_each(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Return as `read` the bytes of each (offset, size), in one step."""
        if not ranges:
            return []
        data = memoryview(self._host.call("read_each", self.name, ranges)[1])
        ends = list(itertools.accumulate(size for _, size in ranges))
        return [data[end - size : end] for end, (_, size) in zip(ends, ranges, strict=True)]


class _HostFolder(Folder):
    """A folder of the server."""

    def __init__(self, host: GuestHost, is_near: bool) -> None:
        super().__init__()
        self._host, self.is_near = host, is_near

    def _list(self) -> list[str]:
        return list(self._host.call("names")[0])

    def present(self, names: Iterable[str]) -> set[str]:
        """Return which of the given files exist, as the server's folder does."""
        return set(self._host.call("present", sorted(set(names)))[0])

    def _open(self, name: str) -> ByteSource:
        return _HostSource(self._host, name, *self._host.call("open", name)[0])


def checkpoint(host: GuestHost, value: Any) -> Found:
    """Read the headers of a checkpoint, and assemble it once: the server does only what has been tried."""
    name, is_near = value
    folder = _HostFolder(host, is_near)
    found = read_headers(folder, name, progress=lambda done, of: (host.call("progress", done, of), None)[1])
    assemble(found, folder.counter).as_matrices()
    return headers.to_json(found), []


def list_tensors(host: GuestHost, value: Any, data: Bytes) -> Found:
    """List the tensors of a file."""
    name, limit = value
    listed = tensors.list_tensors(memoryview(data), name, limit)
    return [dataclasses.astuple(info) for info in listed], []


def read_tensor(host: GuestHost, value: Any, data: Bytes) -> Found:
    """Read one tensor of a file, float32."""
    name, tensor, limit = value
    return None, [tensors.read_tensor(memoryview(data), name, tensor, limit)]


def read_code(host: GuestHost, value: Any) -> Found:
    """Name the mistakes in pasted code."""
    text, shape = value
    return pasted.reading_to_plain(qc.read_code(text, shape if shape is None else tuple(shape))), []


def show_code(host: GuestHost, value: Any, data: Bytes) -> Found:
    """Evaluate pasted code on a tensor; its arrays come in the order of their names."""
    text, read_shape, place, shape, element, handed = value
    x = np.frombuffer(data, np.float32).reshape(shape)
    reading = qc.read_code(text, read_shape if read_shape is None else tuple(read_shape))
    shown = pasted.show_code(reading, place, x, tuple(element), handed if handed is None else tuple(handed))
    plain, arrays = pasted.shown_to_plain(shown)
    return [plain, list(arrays)], [tensor.numpy() for tensor in arrays.values()]


GUESTS: dict[str, Callable[..., Found]] = {
    "checkpoint": checkpoint,
    "list_tensors": list_tensors,
    "read_tensor": read_tensor,
    "read_code": read_code,
    "show_code": show_code,
}


def prepare() -> None:
    """Import and warm what guests use, on one thread: a process with several must not fork."""
    import torch

    torch.set_num_threads(1)
    qc.read_code("s = x.abs().max() / 127\nq = torch.round(x / s).clamp(-128, 127).to(torch.int8)")
    packed = io.BytesIO()
    np.savez_compressed(packed, x=np.zeros((2, 2), np.float32))
    tensors.read_tensor(packed.getvalue(), "x.npz", "x")
    from PIL import Image

    for kind, extension in itertools.product(("PNG", "JPEG", "WEBP"), ("",)):
        image = io.BytesIO()
        Image.new("L", (2, 2)).save(image, kind)
        tensors.read_tensor(image.getvalue(), f"x.{kind.lower()}{extension}")
