"""The dtype of a tensor: what converting to it changes, and its values where NumPy has no such dtype."""

import math
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.wording import count

# The dtypes in which libraries quantize; a tensor from elsewhere is float32
DTYPES = {name: getattr(torch, name) for name in ("float32", "bfloat16", "float16", "float64")}
HALF = ("bfloat16", "float16")
_CHUNK = 1 << 18  # elements converted at a time: 1 MB of float32 stays in the cache


@dataclass(frozen=True)
class Conversion:
    """What converting a tensor to a dtype changes.

    Attributes:
        changed: how many elements have another value, infinite ones included.
        largest: the largest change of those that stay finite.
        beyond: how many finite elements became infinite.
    """

    dtype: str
    elements: int
    changed: int = 0
    largest: float = 0.0
    beyond: int = 0

    @property
    def rounding(self) -> str:
        """What rounding changes; empty if nothing.

        >>> rounded_to(torch.tensor([0.5, 8.31]).numpy(), "bfloat16")[1].rounding
        'rounded to bfloat16: 1 of 2 values changed, by at most 0.0025'
        """
        finite = self.changed - self.beyond
        if not finite:
            return ""
        return (
            f"rounded to {self.dtype}: {finite:,} of {count(self.elements, 'value')} changed, "
            f"by at most {self.largest:.3g}"
        )

    @property
    def overflow(self) -> str:
        """What is beyond the dtype, and what to do; empty if nothing is.

        >>> rounded_to(torch.tensor([0.5, 70000]).numpy(), "float16")[1].overflow.partition(";")[0]
        '1 of 2 values is beyond float16, whose largest is 65504, and became ±∞'
        """
        if not self.beyond:
            return ""
        one = self.beyond == 1
        other = "bfloat16" if self.dtype == "float16" else "float32"
        return (
            f"{self.beyond:,} of {count(self.elements, 'value')} {'is' if one else 'are'} beyond "
            f"{self.dtype}, whose largest is {torch.finfo(DTYPES[self.dtype]).max:.6g}, and became ±∞; "
            f"choose {other}, or scale the tensor down."
        )


def rounded_to(x: npt.NDArray[Any], dtype: str) -> tuple[Tensor, Conversion]:
    """Return the values of x in a dtype of `DTYPES`, rounded half to even, and what that changed.

    Values in half precision are float32 numbers. Numbers from halfway beyond the largest of the dtype become
    infinite, as in torch. x is not copied if nothing is rounded.
    """
    source = torch.from_numpy(x if x.flags.writeable else x.copy())
    wanted = DTYPES[dtype]
    if wanted == source.dtype or wanted == torch.float64:
        return source.to(wanted), Conversion(dtype, x.size)
    result = torch.empty(source.shape, dtype=torch.float32)
    narrow, buffer = torch.empty(_CHUNK, dtype=wanted), torch.empty(_CHUNK, dtype=source.dtype)
    changed, beyond, largest = 0, 0, 0.0
    for piece, out in zip(
        torch.split(source.reshape(-1), _CHUNK), torch.split(result.view(-1), _CHUNK), strict=True
    ):
        out.copy_(narrow[: len(piece)].copy_(piece))
        change = torch.sub(out, piece, out=buffer[: len(piece)]).abs_()
        worst = float(change.max())
        if not math.isfinite(worst):  # NaN - NaN and ∞ - ∞ are NaN, ∞ minus a number is ∞
            beyond += int((change == math.inf).sum())
            changed += int((change == math.inf).sum())
            worst = float(change.nan_to_num_(0.0, 0.0, 0.0).max())
        changed += int(change.count_nonzero())
        largest = max(largest, worst)
    return result, Conversion(dtype, x.size, changed, largest, beyond)


def as_numpy(x: Tensor) -> npt.NDArray[Any]:
    """Return the values of a tensor as an array; half precision exactly as float32: NumPy has no bfloat16."""
    found: npt.NDArray[Any] = (x.float() if x.is_floating_point() and x.itemsize == 2 else x).cpu().numpy()
    return found
