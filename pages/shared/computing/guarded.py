"""A file that a stranger gave, read in a process of its own while this run waits."""

from typing import Any

import numpy as np
import numpy.typing as npt

from pages.serving import guard
from pages.serving.settings import upload_limit
from pages.serving.work.memory import usable
from pages.shared.computing import turn
from quantcore import tensors
from quantcore.wording import printable

SECONDS = 2.0  # of processor time for what is small
# Bytes read in a second, on a machine of a third of the speed of ours: of text, and of what is unpacked
_TEXT_A_SECOND, _UNPACKED_A_SECOND = 7_000_000, 70_000_000
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


def _of_file(guest: str, value: Any, data: bytes, name: str, unpacked: int) -> guard.GuestAnswer:
    most = upload_limit()
    seconds = SECONDS + len(data) / _TEXT_A_SECOND + min(unpacked, most) / _UNPACKED_A_SECOND
    # the file itself, what is unpacked, its values as float32 and as they were
    memory = room(len(data) + 4 * min(max(unpacked, len(data)), most) + (1 << 28))
    subject, remedy = f"Reading {printable(name, 80)}", "save the tensor as .npy and upload that"
    work = guard.GuestWork(subject, remedy, seconds, memory, most)
    return guard.ask(guest, value, [data], work=work, check=turn.check)


def room(wanted: int) -> int:
    """Return the bytes that a guest may take: what it needs, but never most of a small machine."""
    return min(wanted, usable() // 3)
