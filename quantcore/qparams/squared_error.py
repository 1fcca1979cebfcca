"""What error a range leaves in each block, found by quantizing the blocks as the scheme does."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from quantcore.formats import IntFormat
from quantcore.numerics import KERNELS, like, rounding, unrounded
from quantcore.qparams.coding import SCALED, Dequantizer, decode, factor, fit
from quantcore.qparams.mse_bounds import Coding
from quantcore.qparams.mse_search import search
from quantcore.qparams.scale import parameters
from quantcore.range_setting import Range, parts
from quantcore.scheme import Scheme


class Parts(NamedTuple):
    """Of every block the squared error of its clipped elements and of the others, float64, and how many are clipped."""

    clipping: Tensor
    rounding: Tensor
    clipped: Tensor


class BlockErrors:
    """The `range_task.SquaredError` of some blocks, float32 of shape (number of blocks, elements of a block).

    ``convention``: that of the scheme's granularity. ``kept``: what it dequantizes with.
    Scales are taken as float32 also where the scheme quantizes them, for that needs the scales of all blocks.
    """

    def __init__(self, blocks: Tensor, scheme: Scheme) -> None:
        self.blocks, self.scheme = blocks, scheme
        self.convention = scheme.rules
        self.dequantizer = Dequantizer("shifted") if self.convention.zero_point.is_min else SCALED

    def __call__(self, low: Tensor, high: Tensor) -> Tensor:
        """Return the sum of the squared error of every block, float64, inf where that is NaN."""
        return self.sums(self.coding(low, high)).nan_to_num_(nan=math.inf, posinf=math.inf)

    def search(self, low: Tensor, high: Tensor, still: Tensor, shares: Tensor) -> Range:
        """Return, for every block, the first of the ranges still + (end - still)·share with the least error.

        ``shares`` fall, and begin with 1, which stands for (low, high) as they are.
        """
        return search(self, low, high, still, shares)

    def of(self, rows: Tensor | slice) -> "BlockErrors":
        """Some of the blocks."""
        some = self.blocks[rows] if isinstance(rows, slice) else self.blocks.index_select(0, rows)
        return BlockErrors(some, self.scheme)

    def split(self, low: Tensor, high: Tensor) -> Parts:
        """Return the squared error of the clipped elements and that of the others, as `Report` parts them."""
        coding = self.coding(low, high)
        least, most = self.scheme.format.bounds
        clipping, rounding_ = (low.new_zeros(len(low), dtype=torch.float64) for _ in range(2))
        clipped = torch.zeros_like(clipping, dtype=torch.int64)
        for rows, part in parts(self.blocks):
            own = coding.at(rows).beside_elements()
            values = self._unclamped(part, own)
            outside = (values < least) | (values > most)
            square = self._error(values, part, own).double().square_()
            rounding_[rows] += square.masked_fill(outside, 0.0).sum(-1)
            clipping[rows] += square.masked_fill_(~outside, 0.0).sum(-1)
            clipped[rows] += outside.sum(-1)
        return Parts(clipping, rounding_, clipped)

    def norms(self, coding: Coding) -> Tensor:
        """√(squared error) of the blocks, none of them cut, float32."""
        norm = torch.empty(len(self.blocks), device=self.blocks.device)
        for rows, part in parts(self.blocks):
            own = coding.at(rows).beside_elements()
            norm[rows] = torch.linalg.vector_norm(self._error(self._unclamped(part, own), part, own), dim=-1)
        return norm

    def sums(self, coding: Coding, least: Tensor | None = None) -> Tensor:
        """The squared error of some blocks, float64, or of a part of them that is over ``least``."""
        total = torch.zeros(len(self.blocks), dtype=torch.float64, device=self.blocks.device)
        for rows, part in parts(self.blocks):
            if least is not None and bool((total[rows] > least[rows]).all()):
                continue  # what is left could only add to it
            own = coding.at(rows).beside_elements()
            total[rows] += self._error(self._unclamped(part, own), part, own).double().square_().sum(-1)
        return total

    def coding(self, low: Tensor, high: Tensor) -> Coding:
        """Return what codes the blocks under these ranges, of any shape."""
        p = parameters(low, high, self.scheme.symmetric, self.scheme.format, self.convention)
        shift = p.zero_point.to(torch.float32) if bool(p.zero_point.any()) else None
        return Coding(factor(p.scale, p.inverse, self.convention), p.scale, shift)

    def _unclamped(self, part: Tensor, coding: Coding) -> Tensor:
        """What the kernel gives, until the next call."""
        whole = isinstance(self.scheme.format, IntFormat)
        round_ = rounding(self.convention.coding.rounding) if whole else unrounded
        return KERNELS[self.convention.coding.kernel].run(
            part, coding.s, coding.shift, like(part, "unclamped"), round_
        )

    def _error(self, work: Tensor, part: Tensor, coding: Coding) -> Tensor:
        """x - x̂, in place of what `_unclamped` gave."""
        fmt = self.scheme.format
        if isinstance(fmt, IntFormat):
            codes = fit(work, self.scheme)
        else:
            codes = torch.empty(part.shape, dtype=fmt.dtype, device=part.device)
            fmt.encode_(work, codes, rounding(self.convention.coding.rounding))
        return torch.sub(
            part, decode(codes, coding.scale, coding.shift, work, fmt, self.dequantizer), out=work
        )
