"""What formats whose codes stand in a table have in common: bit patterns of floats, places in codebooks."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.numerics import CHUNK, like


class TableFormat:
    """What is known of every such format: its codes begin at 0, and none is left out."""

    @property
    def qmin(self) -> int:
        """The lowest code, 0."""
        return 0

    @property
    def narrow(self) -> bool:
        """No code is left out."""
        return False

    @property
    def middle(self) -> int:
        """The zero_point that there is not."""
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
        QuantError: a code is no whole number, or not from 0 to ``qmax``.
    """
    codes: Tensor = torch.as_tensor(given)
    if codes.is_floating_point() or codes.is_complex() or codes.dtype == torch.bool:
        raise QuantError(f"Codes are whole numbers, not {codes.dtype}; give an integer tensor.")
    if codes.numel() and not (int(codes.min()) >= 0 and int(codes.max()) <= qmax):
        raise QuantError(f"Codes of {name} are 0..{qmax}, but {int(codes.min())}..{int(codes.max())} came.")
    return codes


def decode_(codes: Tensor, table: Tensor, out: Tensor) -> Tensor:
    """Write ``table[codes]`` into ``out``, float32 and contiguous, of the shape of the codes."""
    # with 32-bit places, index_select is the fastest look-up that torch has (measured against take, [], embedding)
    places = like(codes, "places", torch.int32).copy_(codes).view(-1)
    torch.index_select(table.to(codes.device), 0, places, out=out.view(-1))
    return out
