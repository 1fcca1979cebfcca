"""What error a range leaves in each block, found by quantizing the blocks as the scheme does.

A search tries many ranges, so a block sits out a trial that can't be its best: where its lowest and highest
element alone, which no code reaches, have a larger error than another range left. The errors of a search are
summed in float32, and again in float64 wherever the rounding of those sums could decide.
"""

import math
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from quantcore.coding import decode, ends, factor, fit
from quantcore.formats import IntFormat
from quantcore.inputs import CHUNK
from quantcore.kernels import KERNELS
from quantcore.range_task import Range, parts
from quantcore.rounding import rounding, unrounded
from quantcore.scales import parameters
from quantcore.scheme import Scheme

_SHORT = 4096  # elements: sums of more round too much in float32 to tell ranges apart
_LEAST = 2.0**-50  # a norm below it comes from squares that float32 may not hold
_TOGETHER = 8  # ranges whose scales are found at a time: small calls cost more than what they compute
_KEPT = 1 << 20  # errors of ranges and blocks that are kept at a time
_FEWER = 0.8  # the blocks that still search are copied where these are fewer of all


class _Coding(NamedTuple):
    """What codes a block: its factor for the kernel, its scale, and its zero_point (None: all are 0)."""

    s: Tensor
    scale: Tensor
    shift: Tensor | None

    def at(self, index: object) -> "_Coding":
        return _Coding(*(None if t is None else t[index] for t in self))  # type: ignore[index, arg-type]

    def beside_elements(self) -> "_Coding":
        return self.at((slice(None), None))


class Parts(NamedTuple):
    """Of every block the squared error of its clipped elements and of the others, float64, and how many are clipped."""

    clipping: Tensor
    rounding: Tensor
    clipped: Tensor


class BlockErrors:
    """The `range_task.SquaredError` of some blocks, float32 of shape (number of blocks, elements of a block).

    Scales are taken as float32 also where the scheme quantizes them, for that needs the scales of all blocks.
    """

    def __init__(self, blocks: Tensor, scheme: Scheme) -> None:
        self._blocks, self._scheme = blocks, scheme
        self._convention = scheme.convention.at(scheme.granularity)

    def __call__(self, low: Tensor, high: Tensor) -> Tensor:
        """Return the sum of the squared error of every block, float64, inf where that is NaN."""
        return self._sums(self._blocks, self._coding(low, high)).nan_to_num_(nan=math.inf, posinf=math.inf)

    def search(self, low: Tensor, high: Tensor, still: Tensor, shares: Tensor) -> Range:
        """Return, for every block, the first of the ranges still + (end - still)·share with the least error.

        ``shares`` begin with 1, which stands for (low, high) as they are.
        """
        found = low.clone(), high.clone()
        rows = max(1, _KEPT // len(shares))
        for start in range(0, len(low), rows):
            part = slice(start, start + rows)
            own = BlockErrors(self._blocks[part], self._scheme)
            share = shares[own._best(low[part], high[part], still[part], shares)]
            for whole, end in zip(found, (low, high), strict=True):
                whole[part] = _shrunk(end[part], still[part], share)
        return found

    def split(self, low: Tensor, high: Tensor) -> Parts:
        """Return the squared error of the clipped elements and that of the others, as `Report` parts them."""
        coding = self._coding(low, high)
        least, most = ends(self._scheme.format)
        clipping, rounding_ = (low.new_zeros(len(low), dtype=torch.float64) for _ in range(2))
        clipped = torch.zeros_like(clipping, dtype=torch.int64)
        for rows, part in parts(self._blocks):
            own = coding.at(rows).beside_elements()
            values = self._unclamped(part, own)
            outside = (values < least) | (values > most)
            square = self._error(values, part, own).double().square_()
            rounding_[rows] += square.masked_fill(outside, 0.0).sum(-1)
            clipping[rows] += square.masked_fill_(~outside, 0.0).sum(-1)
            clipped[rows] += outside.sum(-1)
        return Parts(clipping, rounding_, clipped)

    def _best(self, low: Tensor, high: Tensor, still: Tensor, shares: Tensor) -> Tensor:
        """The index of each block's best share."""
        first = self(low, high)
        norms, least = self._norms(first, low, high, still, shares)
        k, row = (norms <= least * (1 + 2 * self._slack)).nonzero().unbind(1)
        error = torch.zeros(len(k), dtype=torch.float64)
        unsure = (torch.bincount(row, minlength=len(low))[row] > 1).nonzero().reshape(-1)
        for pairs in torch.split(unsure, max(1, CHUNK // self._blocks.shape[1])):
            at, share = row[pairs], shares[k[pairs]]
            trial = (_shrunk(end[at], still[at], share) for end in (low, high))
            error[pairs] = BlockErrors(self._blocks[at], self._scheme)(*trial)
        lowest = torch.full_like(first, math.inf).scatter_reduce_(0, row, error, "amin")
        best = error == lowest[row]
        none = torch.full((len(low),), len(shares), device=low.device)
        found = none.scatter_reduce_(0, row[best], k[best], "amin")
        return found.where(first > 0, 0)

    def _norms(
        self, first: Tensor, low: Tensor, high: Tensor, still: Tensor, shares: Tensor
    ) -> tuple[Tensor, Tensor]:
        """√(squared error) of every share and block, float32, and what is sure to be over the least of a block.

        NaN: not the least. 0: float32 can't say.
        """
        norms = torch.full((len(shares), len(low)), math.nan, device=low.device)
        norms[0] = first.sqrt()
        least = torch.where(first > 0, _upper(norms[0], self._slack), 0.0)
        for start in range(1, len(shares), _TOGETHER):
            share = shares[start : start + _TOGETHER, None]
            coding = self._coding(*(still + (end - still) * share for end in (low, high)))
            needed = (~(self._bounds(coding) > least)).any(0) & (first > 0)
            rows: Any = needed.nonzero().reshape(-1)
            if not len(rows):
                continue
            if len(rows) > _FEWER * len(low):
                rows, blocks = slice(None), self._blocks
            else:
                blocks, coding = self._blocks.index_select(0, rows), coding.at((slice(None), rows))
            found = torch.stack([self._norm(blocks, coding.at(k), least[rows]) for k in range(len(share))])
            least[rows] = torch.fmin(
                least[rows], _upper(found, self._slack).nan_to_num_(nan=math.inf, posinf=math.inf).amin(0)
            )
            norms[start : start + _TOGETHER, rows] = found.masked_fill_(found.isinf(), 0.0)
        return norms, least

    @property
    def _slack(self) -> float:
        """By how much a norm may be off, relative to itself: every square and sum rounds by 2^-24 at most."""
        size = self._blocks.shape[1]
        return 2.0**-22 + (size * 2.0**-24 if size <= _SHORT else 0)

    def _norm(self, blocks: Tensor, coding: _Coding, least: Tensor) -> Tensor:
        """√(squared error) of some blocks, float32; NaN where it is over ``least``, infinite where it is NaN."""
        if blocks.shape[1] > _SHORT:
            norm = self._sums(blocks, coding, least.double().square()).sqrt()
            return torch.where(
                norm > least, math.nan, norm.nan_to_num_(nan=math.inf, posinf=math.inf)
            ).float()
        norm = torch.empty(len(blocks), device=blocks.device)
        for rows, part in parts(blocks):
            own = coding.at(rows).beside_elements()
            torch.linalg.vector_norm(
                self._error(self._unclamped(part, own), part, own), dim=-1, out=norm[rows]
            )
        return norm.nan_to_num_(nan=math.inf, posinf=math.inf)

    def _sums(self, blocks: Tensor, coding: _Coding, least: Tensor | None = None) -> Tensor:
        """The squared error of some blocks, float64, or of a part of them that is over ``least``."""
        total = torch.zeros(len(blocks), dtype=torch.float64, device=blocks.device)
        for rows, part in parts(blocks):
            if least is not None and bool((total[rows] > least[rows]).all()):
                continue  # what is left could only add to it
            own = coding.at(rows).beside_elements()
            total[rows] += self._error(self._unclamped(part, own), part, own).double().square_().sum(-1)
        return total

    def _coding(self, low: Tensor, high: Tensor) -> _Coding:
        p = parameters(low, high, self._scheme.symmetric, self._scheme.format, self._convention)
        shift = p.zero_point.to(torch.float32) if bool(p.zero_point.any()) else None
        return _Coding(factor(p.scale, p.inverse, self._convention), p.scale, shift)

    @cached_property
    def _extremes(self) -> Range:
        return self._blocks.amin(-1), self._blocks.amax(-1)

    @cached_property
    def _scratch(self) -> Tensor:
        return torch.empty(min(CHUNK, self._blocks.numel()), device=self._blocks.device)

    def _bounds(self, coding: _Coding) -> Tensor:
        """At most √(squared error) of the extremes, as far as they lie beyond every value of a code."""
        fmt = self._scheme.format
        codes = (fmt.qmin, fmt.qmax)
        if not isinstance(fmt, IntFormat):
            table = torch.nan_to_num(fmt.table, nan=0.0, posinf=0.0, neginf=0.0)
            codes = (int(table.argmin()), int(table.argmax()))
        grid = [
            decode(
                torch.tensor(code).expand_as(coding.scale),
                coding.scale,
                coding.shift,
                torch.empty_like(coding.scale),
                fmt,
            )
            for code in codes
        ]
        low, high = torch.minimum(*grid), torch.maximum(*grid)
        below, above = (low - self._extremes[0]).clamp_(min=0), (self._extremes[1] - high).clamp_(min=0)
        return torch.hypot(below, above).mul_(1 - 2.0**-20)

    def _unclamped(self, part: Tensor, coding: _Coding) -> Tensor:
        """What the kernel gives, in the scratch."""
        whole = isinstance(self._scheme.format, IntFormat)
        round_ = rounding(self._convention.rounding) if whole else unrounded
        work = self._scratch[: part.numel()].view(part.shape)
        return KERNELS[self._convention.kernel].run(part, coding.s, coding.shift, work, round_)

    def _error(self, work: Tensor, part: Tensor, coding: _Coding) -> Tensor:
        """x - x̂, in place of what `_unclamped` gave."""
        fmt = self._scheme.format
        if isinstance(fmt, IntFormat):
            codes = fit(work, self._scheme)
        else:
            codes = torch.empty(part.shape, dtype=fmt.dtype, device=part.device)
            fmt.encode_(work, codes, rounding(self._convention.rounding))
        return torch.sub(part, decode(codes, coding.scale, coding.shift, work, fmt), out=work)


def _shrunk(end: Tensor, still: Tensor, share: Tensor) -> Tensor:
    return torch.where(share == 1, end, still + (end - still) * share)


def _upper(norm: Tensor, slack: float) -> Tensor:
    return norm.clamp(min=_LEAST) * (1 + slack)
