"""What HQQ stores with a weight: numbers and strings, each a tensor of its own, read on first access.

HQQ's own loader evaluates the strings; here they are looked up.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from quantcore.checkpoints.containers.stored import TORCH_DTYPES, StoredTensor
from quantcore.checkpoints.packing import Order, high_first, padded, parts
from quantcore.checkpoints.problem import named
from quantcore.errors import QuantError
from quantcore.granularity import Shape
from quantcore.wording import short

BITS = (8, 6, 5, 4, 3, 2, 1)  # 1.58 bits are packed as 2
# packing -> dtype of a word, and bits per code; None: as nbits says
PACKINGS = {
    "8bit_u8": ("U8", None),
    "4bit_u8": ("U8", 4),
    "3bit_32": ("I32", 3),
    "2bit_u8": ("U8", 2),
    "1bit_u8": ("U8", 1),
}
COMPUTE = {
    "torch.float16": torch.float16,
    "torch.bfloat16": torch.bfloat16,
    "torch.float32": torch.float32,
}


@dataclass(frozen=True)
class Description:
    """The small tensors stored with a weight, read on first access."""

    pieces: Mapping[str, StoredTensor]

    def _refuse(self, name: str, what: str) -> QuantError:
        return QuantError(f"{named(self.pieces[name].name)} {what}; the file is damaged.")

    def number(self, name: str, default: float = 0.0) -> float:
        """Return a number that is stored as a tensor of one element, or the default if it is absent."""
        piece = self.pieces.get(name)
        if piece is None:
            return default
        if math.prod(piece.shape) != 1 or piece.dtype not in TORCH_DTYPES:
            raise self._refuse(name, f"is {piece.dtype} of shape {piece.shape}, not one number")
        return float(piece.numbers().reshape(()))

    def word(self, name: str, allowed: Mapping[str, Any], default: str) -> Any:
        """Return what a stored string stands for; it is never evaluated."""
        piece = self.pieces.get(name)
        if piece is None:
            return allowed[default]
        if piece.dtype != "U8" or piece.num_bytes > 64:
            raise self._refuse(name, f"is {piece.dtype} of shape {piece.shape}, not a short string")
        found = bytes(piece.bytes()).decode("latin-1")
        if found not in allowed:
            raise self._refuse(name, f"says {short(found)}, which is not one of {', '.join(allowed)}")
        return allowed[found]

    def shape(self) -> Shape:
        """The shape of the weight."""
        found = tuple(int(n) for n in self.pieces["shape"].numbers())
        if any(not 0 < n < 2**40 for n in found):
            raise self._refuse("shape", f"says {found}, which is not a shape")
        return found

    def dtype(self) -> torch.dtype:
        """The dtype that HQQ computes in."""
        return self.word("compute_dtype", COMPUTE, "torch.float16")  # type: ignore[no-any-return]

    @cached_property
    def bits(self) -> int:
        """Bits of a code, as packed."""
        nbits = self.number("nbits")
        bits = 2 if abs(nbits - 1.58) < 0.01 else nbits
        packed = self.word("packing", PACKINGS, "4bit_u8")[1]
        if bits not in BITS or (packed or bits) != bits or (packed is None and bits < 5):
            raise self._refuse("nbits", f"says {nbits:g}, which does not fit its packing")
        return int(bits)

    @cached_property
    def order(self) -> Order:
        """The order of codes in words."""
        word = 32 if self.bits == 3 else 8
        return padded(self.bits, 8) if self.bits > 4 else parts(high_first(self.bits, word))

    @cached_property
    def group_size(self) -> int | None:
        """Elements per group; None if scales are per row, per column or one for all."""
        size = self.number("group_size")
        if not 0 <= size < 2**40 or size != int(size):
            raise self._refuse("group_size", f"says {size:g}, which is not a group size")
        return int(size) or None if self.number("channel_wise", 1) else None

    @cached_property
    def axis(self) -> int:
        """The axis of the reshaped weight along which groups run."""
        axis = self.number("axis")
        if axis not in (0, 1):
            raise self._refuse("axis", f"says {axis:g}, not 0 or 1")
        return int(axis)
