"""For many blocks at once, the range of a grid that leaves the least squared error, without measuring them all.

The ranges of a block grow narrower, and two things keep most of them from being measured exactly. What lies beyond
the values of all codes only moves farther away: where that alone is a larger error than another range left, the
block is done. And an error is first found in float32 and in units of the scale, which takes the fewest passes;
where the rounding of that could decide, it is measured again, in float64.
"""

import math

import torch
from torch import Tensor

from quantcore.numerics import CHUNK, KERNELS
from quantcore.qparams.mse_bounds import Ends, Errors, trials_of
from quantcore.range_setting import Range

_TOGETHER = 8  # ranges whose scales are found at a time: small calls cost more than what they compute
_FEWER = 0.9  # the blocks that still search are copied where these are fewer of all
_KEPT = 1 << 21  # errors of ranges and blocks that are kept at a time


def search(errors: Errors, low: Tensor, high: Tensor, still: Tensor, shares: Tensor) -> Range:
    """`range_task.SquaredError.search` of these blocks."""
    found = low.clone(), high.clone()
    rows = max(1, _KEPT // len(shares))
    for start in range(0, len(low), rows):
        part = slice(start, start + rows)
        share = shares[_best(errors.of(part), low[part], high[part], still[part], shares)]
        for whole, end in zip(found, (low, high), strict=True):
            whole[part] = _shrunk(end[part], still[part], share)
    return found


def _best(errors: Errors, low: Tensor, high: Tensor, still: Tensor, shares: Tensor) -> Tensor:
    """The index of each block's best share."""
    first = errors(low, high)
    norms, at_most = _norms(errors, first, low, high, still, shares)
    k, row = (norms <= at_most).nonzero().unbind(1)
    error = torch.zeros(len(k), dtype=torch.float64, device=low.device)
    unsure = (torch.bincount(row, minlength=len(low))[row] > 1).nonzero().reshape(-1)
    # the fused kernel takes one scale
    together = (
        1 if KERNELS[errors.convention.coding.kernel].fused else max(1, CHUNK // errors.blocks.shape[1])
    )
    for pairs in torch.split(unsure, together) if len(unsure) else ():
        at, share = row[pairs], shares[k[pairs]]
        error[pairs] = errors.of(at)(*(_shrunk(end[at], still[at], share) for end in (low, high)))
    lowest = torch.full_like(first, math.inf).scatter_reduce_(0, row, error, "amin")
    best = error == lowest[row]
    none = torch.full((len(low),), len(shares), device=low.device)
    return none.scatter_reduce_(0, row[best], k[best], "amin")


def _norms(
    errors: Errors, first: Tensor, low: Tensor, high: Tensor, still: Tensor, shares: Tensor
) -> tuple[Tensor, Tensor]:
    """√(squared error) of every share and block, float32, and what a block's least is at most in there.

    NaN: not the least. 0: float32 can't say.
    """
    norms = torch.full((len(shares), len(low)), math.nan, device=low.device)
    norms[0] = first.sqrt()
    at_most = torch.zeros_like(low)
    rows = (first > 0).nonzero().reshape(-1)
    trials = trials_of(errors, Ends(low, high, still), norms[0], shares[-1:]).of(rows)
    for start in range(1, len(shares), _TOGETHER):
        if not len(rows):
            break
        coding = trials.coding(shares[start : start + _TOGETHER, None])
        left = ~(trials.beyond_codes(coding.at(0)) > trials.least)
        if int(left.sum()) <= _FEWER * len(rows):
            at_most[rows] = trials.at_most
            kept = left.nonzero().reshape(-1)
            rows, trials, coding = rows[kept], trials.of(kept), coding.at((slice(None), kept))
        norms[start : start + _TOGETHER].index_copy_(1, rows, trials.measure(coding))
    at_most[rows] = trials.at_most
    return norms, at_most


def _shrunk(end: Tensor, still: Tensor, share: Tensor) -> Tensor:
    return torch.where(share == 1, end, still + (end - still) * share)
