"""The squared error of each block under a range, measured by quantizing as the scheme does."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from quantcore.conventions import KERNELS
from quantcore.formats import IntFormat
from quantcore.numerics import like, rounding
from quantcore.qparams.coding import SCALED, Dequantizer, decode, factor, fit
from quantcore.qparams.mse_search import Coding, search
from quantcore.qparams.scale import parameters
from quantcore.range_setting import Range, parts
from quantcore.scheme import Scheme


class Parts(NamedTuple):
    """For every block: the squared error of clipped and of other elements, float64, and how many are clipped."""

    clipping: Tensor
    rounding: Tensor
    clipped: Tensor


class BlockErrors:
    """The `range_setting.protocol.SquaredError` of blocks, float32 of shape (blocks, elements per block).

    ``convention``: the convention for the scheme's granularity. ``dequantizer``: how it dequantizes.
    Scales stay float32 even if the scheme quantizes them, since that needs the scales of all blocks.
    """

    def __init__(self, blocks: Tensor, scheme: Scheme) -> None:
        self.blocks, self.scheme = blocks, scheme
        self.convention = scheme.rules
        self.dequantizer = Dequantizer("shifted") if self.convention.zero_point.is_min else SCALED

    def __call__(self, low: Tensor, high: Tensor) -> Tensor:
        """Return the summed squared error of every block, float64, inf instead of NaN."""
        return self.sums(self.coding(low, high)).nan_to_num_(nan=math.inf, posinf=math.inf)

    def search(self, low: Tensor, high: Tensor, anchor: Tensor, fractions: Tensor) -> Range:
        """Return, for every block, the first range anchor + (bound - anchor)·fraction with the least error.

        ``fractions``: descending from 1, where the range is exactly (low, high).
        """
        return search(self, low, high, anchor, fractions)

    def of(self, rows: Tensor | slice) -> "BlockErrors":
        """Some of the blocks."""
        some = self.blocks[rows] if isinstance(rows, slice) else self.blocks.index_select(0, rows)
        return BlockErrors(some, self.scheme)

    def split(self, low: Tensor, high: Tensor) -> Parts:
        """Return the squared error of the clipped elements and of the others, as `Report` defines them."""
        coding = self.coding(low, high)
        least, most = self.scheme.format.bounds
        clipping, rounding_ = (low.new_zeros(len(low), dtype=torch.float64) for _ in range(2))
        clipped = torch.zeros_like(clipping, dtype=torch.int64)
        for rows, part in parts(self.blocks):
            own = coding.at(rows).with_element_axis()
            values = self._unclamped(part, own)
            outside = (values < least) | (values > most)
            square = self._error(values, part, own).double().square_()
            rounding_[rows] += square.masked_fill(outside, 0.0).sum(-1)
            clipping[rows] += square.masked_fill_(~outside, 0.0).sum(-1)
            clipped[rows] += outside.sum(-1)
        return Parts(clipping, rounding_, clipped)

    def norms(self, coding: Coding) -> Tensor:
        """Return √(squared error) of the blocks, each computed in one piece, float32."""
        norm = torch.empty(len(self.blocks), device=self.blocks.device)
        for rows, part in parts(self.blocks):
            own = coding.at(rows).with_element_axis()
            norm[rows] = torch.linalg.vector_norm(self._error(self._unclamped(part, own), part, own), dim=-1)
        return norm

    def sums(self, coding: Coding, least: Tensor | None = None) -> Tensor:
        """Return the squared error of the blocks, float64; partial sums where they exceed ``least``."""
        total = torch.zeros(len(self.blocks), dtype=torch.float64, device=self.blocks.device)
        for rows, part in parts(self.blocks):
            if least is not None and bool((total[rows] > least[rows]).all()):
                continue  # the rest can only add to it
            own = coding.at(rows).with_element_axis()
            total[rows] += self._error(self._unclamped(part, own), part, own).double().square_().sum(-1)
        return total

    def coding(self, low: Tensor, high: Tensor) -> Coding:
        """Return the parameters that code the blocks under these ranges, of any shape."""
        p = parameters(low, high, self.scheme.symmetric, self.scheme.format, self.convention)
        shift = p.zero_point.to(torch.float32) if bool(p.zero_point.any()) else None
        return Coding(factor(p.scale, p.inverse, self.convention), p.scale, shift)

    def _unclamped(self, part: Tensor, coding: Coding) -> Tensor:
        """Return the kernel's unclamped values, valid until the next call."""
        integer = self.scheme.format.has_zero_point
        round_ = rounding(self.convention.coding.rounding) if integer else None
        return KERNELS[self.convention.coding.kernel].run(
            part, coding.s, coding.shift, like(part, "unclamped"), round_
        )

    def _error(self, work: Tensor, part: Tensor, coding: Coding) -> Tensor:
        """Return x - x̂, written over the values of `_unclamped`."""
        fmt = self.scheme.format
        if isinstance(fmt, IntFormat):
            codes = fit(work, self.scheme)
        else:
            codes = torch.empty(part.shape, dtype=fmt.dtype, device=part.device)
            fmt.encode_(work, codes, rounding(self.convention.coding.rounding))
        return torch.sub(
            part, decode(codes, coding.scale, coding.shift, work, fmt, self.dequantizer), out=work
        )
