"""What strangers gave, read and evaluated in a process of its own while this run waits: files, headers, code."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import quantcore as qc
from pages.serving import guard
from pages.serving.settings import upload_limit
from pages.serving.work import memory
from pages.shared.computing import turn
from quantcore import pasted, tensors
from quantcore.checkpoints import OPENERS, Checkpoint, Folder, assemble, headers
from quantcore.wording import printable

_SECONDS = 2.0  # of processor time for headers, or for a small file
# Bytes that every reader of tensors does in a second, on a machine of a third of the speed: text, and what is unpacked
_TEXT_A_SECOND, _UNPACKED_A_SECOND = 7_000_000, 70_000_000
_MOST_SECONDS = 20.0  # for the headers of a release with hundreds of shards
_MEMORY = 512_000_000  # headers, which the server keeps in 300 MB at most, and as JSON
_CODE_SECONDS, _CODE_MEMORY = 1.4, 300_000_000  # the interpreter stops by itself after less
_RAW = (".npy", ".safetensors")  # of which a header is read, and ranges of bytes as they are


def list_tensors(data: bytes, name: str) -> tuple[tensors.TensorInfo, ...]:
    """Return as `tensors.list_tensors` the tensors of a file that was uploaded."""
    if name.lower().endswith(_RAW):
        return tuple(tensors.list_tensors(data, name, upload_limit()))
    found = _of_file("list_tensors", [name, upload_limit()], data, name, 0)
    return tuple(
        tensors.TensorInfo(str(n), tuple(map(int, shape)), str(dtype), int(size), str(how))
        for n, shape, dtype, size, how in found.value
    )


def read_tensor(data: bytes, name: str, info: tensors.TensorInfo) -> npt.NDArray[np.float32]:
    """Return as `tensors.read_tensor` one tensor of a file that was uploaded."""
    if name.lower().endswith(_RAW):
        return tensors.read_tensor(data, name, info.name, upload_limit())
    found = _of_file("read_tensor", [name, info.name, upload_limit()], data, name, info.nbytes)
    return np.asarray(found.arrays[0], np.float32)


def _of_file(guest: str, value: Any, data: bytes, name: str, unpacked: int) -> guard.Answer:
    most = upload_limit()
    seconds = _SECONDS + len(data) / _TEXT_A_SECOND + min(unpacked, most) / _UNPACKED_A_SECOND
    # the file itself, what is unpacked, its values as float32 and as they were
    limits = guard.Limits(seconds, _room(len(data) + 4 * min(max(unpacked, len(data)), most) + (1 << 28)), most)
    subject, remedy = f"Reading {printable(name, 80)}", "save the tensor as .npy and upload that"
    return guard.ask(guest, value, [data], subject=subject, remedy=remedy, limits=limits, check=turn.check)


def open_checkpoint(folder: Folder, name: str | None, progress: Callable[[int, int], None]) -> Checkpoint:
    """Return as `quantcore.checkpoints.open_checkpoint` a checkpoint; its headers are read by a guest.

    Raises:
        QuantError: as there, or reading the headers takes too much time or memory.
    """
    files = 1 if name is not None else sum(each.lower().endswith(tuple(OPENERS)) for each in folder.names)
    limits = guard.Limits(min(_SECONDS * max(files, 1), _MOST_SECONDS), _room(_MEMORY))

    def show(done: int, of: int) -> tuple[None, tuple[()]]:
        progress(done, of)
        return None, ()

    def opened(file: str) -> tuple[list[Any], tuple[()]]:
        source = folder.open(file)
        return [source.size, source.is_remote, source.gap], ()

    answer = guard.ask(
        "checkpoint",
        [name, folder.is_near],
        subject="Reading the headers",
        remedy="open fewer files at once, or check that the file is not damaged",
        limits=limits,
        serve={
            "progress": show,
            "names": lambda: (list(folder.names), ()),
            "present": lambda names: (sorted(folder.present(names)), ()),
            "open": opened,
            "read": lambda file, offset, size: (None, [folder.open(file).read(offset, size)]),
        },
        aside=frozenset() if folder.is_near else frozenset(("present", "open", "read")),
        check=turn.check,
    )
    return assemble(headers.from_json(answer.value, folder.open), folder.counter)


def read_code(text: str, shape: tuple[int, ...] | None = None) -> qc.CodeReading:
    """Return as `quantcore.read_code` what is found in pasted code."""
    return pasted.reading_from_plain(_of_code("read_code", [text, shape]).value)


def show_code(
    text: str,
    read_shape: tuple[int, ...] | None,
    place: int,
    x: object,
    element: tuple[int, ...],
    handed: tuple[float, int] | None,
) -> pasted.Shown:
    """Return as `quantcore.pasted.show_code` what the code at ``place`` does to a tensor.

    Args:
        text, read_shape: as `read_code` was given them.
    """
    block, at = pasted.sample(x, element)
    value = [text, read_shape, place, list(block.shape), at, handed]
    answer = _of_code("show_code", value, block.numpy().data)
    plain, names = answer.value
    arrays = map(torch.from_numpy, answer.arrays)
    return pasted.shown_from_plain(plain, dict(zip(names, arrays, strict=True)))


def _of_code(guest: str, value: Any, *blobs: memoryview) -> guard.Answer:
    limits = guard.Limits(_CODE_SECONDS, _room(_CODE_MEMORY), _CODE_MEMORY)
    remedy = "paste only the lines that quantize"
    subject = "Evaluating this code"
    return guard.ask(guest, value, blobs, subject=subject, remedy=remedy, limits=limits, check=turn.check)


def _room(wanted: int) -> int:
    """Return the bytes that a guest may take: what it needs, but never most of a small machine."""
    return min(wanted, memory.usable() // 3)
