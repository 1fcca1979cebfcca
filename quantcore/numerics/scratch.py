"""Reusable memory for temporaries: allocating new memory for every piece of a tensor can cost more than the
arithmetic, since each new page causes a page fault."""

import threading

import torch
from torch import Tensor

_LARGEST = 1 << 20  # elements; larger buffers are not kept


class _Buffers(threading.local):
    def __init__(self) -> None:
        self.buffers: dict[str, Tensor] = {}


_of_this_thread = _Buffers()


def like(values: Tensor, place: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return an uninitialized contiguous tensor of the shape of ``values``.

    It is valid until this thread asks for the same ``place`` again.

    Args:
        dtype: with 4 or 2 bytes per element.
    """
    n = values.numel()
    if n > _LARGEST or values.device.type != "cpu":
        return torch.empty(values.shape, dtype=dtype, device=values.device)
    buffer = _of_this_thread.buffers.get(place)
    if buffer is None or buffer.numel() < n:
        buffer = _of_this_thread.buffers[place] = torch.empty(n)
    return buffer.view(dtype)[:n].view(values.shape)


def round_to(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Round float32 numbers in place to numbers that ``dtype``, of 4 or 2 bytes, can represent."""
    return values if dtype == torch.float32 else values.copy_(like(values, "rounded", dtype).copy_(values))
