"""Reusable memory for temporaries: allocating new memory for every piece of a tensor can cost more than the
arithmetic, since each new page causes a page fault."""

import math
import threading

import torch
from torch import Tensor

_LARGEST = 1 << 22  # bytes; larger buffers are not kept
_CPU = torch.device("cpu")


class _Buffers(threading.local):
    def __init__(self) -> None:
        self.buffers: dict[str, Tensor] = {}


_of_this_thread = _Buffers()


def scratch(
    place: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: torch.device = _CPU
) -> Tensor:
    """Return an uninitialized contiguous tensor.

    It is valid until this thread asks for the same ``place`` again.
    """
    size = math.prod(shape) * dtype.itemsize
    if size > _LARGEST or device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    buffer = _of_this_thread.buffers.get(place)
    if buffer is None or buffer.numel() < size:
        buffer = _of_this_thread.buffers[place] = torch.empty(size, dtype=torch.uint8)
    return buffer[:size].view(dtype).view(shape)


def like(values: Tensor, place: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return `scratch` of the shape of ``values``, on its device."""
    return scratch(place, values.shape, dtype, values.device)


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of memory for numbers of a dtype: float32 for those of 16 bits, else itself."""
    return torch.float32 if dtype.itemsize == 2 else dtype


def widened(values: Tensor) -> Tensor:
    """Return numbers of 16 bits as float32 numbers of the same value, valid until this thread's next call."""
    return like(values, "widened").copy_(values) if values.itemsize == 2 else values


def round_to(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Round float32 numbers in place to numbers that ``dtype``, of 4 or 2 bytes, can represent."""
    return values if dtype == torch.float32 else values.copy_(like(values, "rounded", dtype).copy_(values))
