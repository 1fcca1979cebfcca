"""Two codes of 4 bits in a byte: whether a field holds them so, and its bytes, for a look-up of both at once."""

import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.packing import dense, high_first
from quantcore.checkpoints.protocol.fields import Field
from quantcore.checkpoints.protocol.packed import Packed
from quantcore.checkpoints.protocol.views import Reshaped, viewed

LOW_FIRST, HIGH_FIRST = dense(4, 8), high_first(4, 8)


def first_is_low(codes: Field) -> bool | None:
    """Whether the first of two 4-bit codes in a byte is in its lower bits; None if bytes don't hold two codes in order."""
    base = codes.field if isinstance(codes, Reshaped) else codes
    if not isinstance(base, Packed) or base.transposed or base.axis % len(base.shape) != len(base.shape) - 1:
        return None
    if base.order not in (LOW_FIRST, HIGH_FIRST) or (len(base.shape) > 1 and base.shape[-1] % 2):
        return None
    return base.order == LOW_FIRST


def bytes_of(piece: StoredTensor, span: slice) -> Tensor:
    """Return some bytes of a stored tensor."""
    return torch.from_numpy(viewed(piece, "U8", (piece.num_bytes,)).bits((span,)))
