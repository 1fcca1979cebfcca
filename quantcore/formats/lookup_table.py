"""Shared by formats with a table of values: floats (bit patterns) and codebooks (indices)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.numerics import CHUNK, like


class TableFormat:
    """A format with a table of values: its codes start at 0, and none is excluded."""

    @property
    def qmin(self) -> int:
        """The lowest code, 0."""
        return 0

    @property
    def narrow(self) -> bool:
        """No code is excluded."""
        return False

    @property
    def has_zero_point(self) -> bool:
        """Codes are not numbers that could be offset."""
        return False

    @property
    def middle(self) -> int:
        """These formats have no zero_point."""
        return 0


def encode(x: Any, dtype: torch.dtype, encode_: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return the codes of x, of its shape; ``encode_`` gets copies of pieces that fit the cache."""
    x = torch.as_tensor(x, dtype=torch.float32)
    codes = torch.empty(x.shape, dtype=dtype, device=x.device)
    values, parts = x.reshape(-1), codes.view(-1)
    for start in range(0, x.numel(), CHUNK):
        piece = slice(start, start + CHUNK)
        encode_(values[piece].clone(), parts[piece])
    return codes


def checked(given: Any, qmax: int, name: str) -> Tensor:
    """Return codes as an integer tensor.

    Raises:
        QuantError: a code is not an integer, or not from 0 to ``qmax``.
    """
    codes: Tensor = torch.as_tensor(given)
    if codes.is_floating_point() or codes.is_complex() or codes.dtype == torch.bool:
        raise QuantError(f"Codes must be integers, not {codes.dtype}; give an integer tensor.")
    if codes.numel() and not (int(codes.min()) >= 0 and int(codes.max()) <= qmax):
        raise QuantError(f"Codes of {name} must be 0..{qmax}, not {int(codes.min())}..{int(codes.max())}.")
    return codes


def decode_(codes: Tensor, table: Tensor, out: Tensor) -> Tensor:
    """Write ``table[codes]`` into ``out``, float32 and contiguous, of the shape of the codes."""
    # with 32-bit indices, index_select is torch's fastest look-up (measured against take, [], embedding)
    places = like(codes, "places", torch.int32).copy_(codes).view(-1)
    torch.index_select(table.to(codes.device), 0, places, out=out.view(-1))
    return out
