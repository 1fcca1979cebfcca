"""Shared by formats with a table of values: floats (bit patterns) and codebooks (indices)."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.numerics import CHUNK, Rounding, half_even, like, rounding


class TableFormat:
    """A format with a table of values: codes start at 0, none is excluded, and there is no zero point."""

    qmin: ClassVar[int] = 0
    narrow: ClassVar[bool] = False
    has_zero_point: ClassVar[bool] = False
    middle: ClassVar[int] = 0

    @property
    def table(self) -> Tensor:
        """The value of every code, float32, (available,)."""
        raise NotImplementedError

    @property
    def available(self) -> int:
        """The number of codes, including NaN and infinity."""
        raise NotImplementedError

    @property
    def max(self) -> float:
        """The largest finite magnitude, to which scales map the largest magnitude of a block."""
        raise NotImplementedError

    @property
    def qmax(self) -> int:
        """The highest code."""
        return self.available - 1

    @property
    def dtype(self) -> torch.dtype:
        """The smallest of uint8, int16, int32 that holds every code."""
        return torch.uint8 if self.qmax < 1 << 8 else torch.int16 if self.qmax < 1 << 15 else torch.int32

    @property
    def symmetric_max(self) -> float:
        """The value to which a symmetric scale maps max|x|."""
        return self.max

    @property
    def symmetric_max_exponent(self) -> int:
        """The exponent of the largest power of two up to `symmetric_max`."""
        return math.frexp(self.max)[1] - 1

    def encode(self, x: Any, rule: str = "half_even") -> Tensor:
        """Return the codes of x, float32 of any shape, in the format's dtype; ``rule``: as in `rounding`.

        Raises:
            QuantError: the rounding is unknown.
        """
        rounds = rounding(rule)
        x = torch.as_tensor(x, dtype=torch.float32)
        codes = torch.empty(x.shape, dtype=self.dtype, device=x.device)
        values, parts = x.reshape(-1), codes.view(-1)
        for start in range(0, x.numel(), CHUNK):  # pieces that fit the cache
            piece = slice(start, start + CHUNK)
            self.encode_(values[piece].clone(), parts[piece], rounds)
        return codes

    def encode_(self, work: Tensor, out: Tensor, rule: Rounding = half_even) -> Tensor:
        """Write the codes of ``work``, float32 and contiguous, into ``out``; ``work`` may be overwritten.

        Makes temporaries of the size of ``work``, which should therefore fit the cache.
        """
        raise NotImplementedError

    def decode(self, codes: Any) -> Tensor:
        """Return the values of codes, float32 of their shape.

        Raises:
            QuantError: a code is not an integer, or outside the format.
        """
        codes = torch.as_tensor(codes)
        if codes.is_floating_point() or codes.is_complex() or codes.dtype == torch.bool:
            raise QuantError(f"Codes must be integers, not {codes.dtype}; give an integer tensor.")
        if codes.numel() and not (int(codes.min()) >= 0 and int(codes.max()) <= self.qmax):
            name = getattr(self, "name", str(self)) or f"a codebook of {self.available} values"
            raise QuantError(
                f"Codes of {name} must be 0..{self.qmax}, not {int(codes.min())}..{int(codes.max())}."
            )
        return self.decode_(codes, torch.empty(codes.shape, device=codes.device))

    def decode_(self, codes: Tensor, out: Tensor) -> Tensor:
        """Write the values of codes into ``out``, float32 and contiguous, of the same shape."""
        # with 32-bit indices, index_select is torch's fastest look-up (measured against take, [], embedding)
        places = like(codes, "places", torch.int32).copy_(codes).view(-1)
        torch.index_select(self.table.to(codes.device), 0, places, out=out.view(-1))
        return out

    def round_value(self, x: float, rule: str = "half_even") -> float:
        """Return the value that a number rounds to."""
        return float(self.decode(self.encode(x, rule)))
