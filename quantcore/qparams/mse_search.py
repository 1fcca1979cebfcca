"""Grid search for the range of least squared error, for many blocks at once, without measuring every range.

The ranges of a block are tried from wide to narrow, and two things avoid most exact measurements. Elements beyond
all codes only get farther away: once their error alone exceeds that of an earlier range, the block is done. And
errors are first estimated in float32 and in units of the scale, which takes the fewest passes; only where rounding
could decide are they measured again, in float64.
"""

import math

import torch
from torch import Tensor

from quantcore.conventions import KERNELS
from quantcore.numerics import CHUNK
from quantcore.qparams.mse_bounds import Bounds, Errors, trials_of
from quantcore.range_setting import Range

_TOGETHER = 8  # ranges whose scales are computed at a time: small calls cost more than their arithmetic
_FEWER = 0.9  # the remaining blocks are copied once they are a smaller fraction than this
_KEPT = 1 << 21  # errors (ranges times blocks) in memory at a time


def search(errors: Errors, low: Tensor, high: Tensor, anchor: Tensor, fractions: Tensor) -> Range:
    """`range_setting.protocol.SquaredError.search` for these blocks."""
    found = low.clone(), high.clone()
    rows = max(1, _KEPT // len(fractions))
    for start in range(0, len(low), rows):
        part = slice(start, start + rows)
        fraction = fractions[_best(errors.of(part), low[part], high[part], anchor[part], fractions)]
        for whole, bound in zip(found, (low, high), strict=True):
            whole[part] = _shrunk(bound[part], anchor[part], fraction)
    return found


def _best(errors: Errors, low: Tensor, high: Tensor, anchor: Tensor, fractions: Tensor) -> Tensor:
    """Return the index of each block's best fraction."""
    first = errors(low, high)
    norms, at_most = _norms(errors, first, low, high, anchor, fractions)
    k, row = (norms <= at_most).nonzero().unbind(1)
    error = torch.zeros(len(k), dtype=torch.float64, device=low.device)
    unsure = (torch.bincount(row, minlength=len(low))[row] > 1).nonzero().reshape(-1)
    # the fused kernel takes one scale
    together = (
        1 if KERNELS[errors.convention.coding.kernel].fused else max(1, CHUNK // errors.blocks.shape[1])
    )
    for pairs in torch.split(unsure, together) if len(unsure) else ():
        at, fraction = row[pairs], fractions[k[pairs]]
        error[pairs] = errors.of(at)(*(_shrunk(bound[at], anchor[at], fraction) for bound in (low, high)))
    lowest = torch.full_like(first, math.inf).scatter_reduce_(0, row, error, "amin")
    best = error == lowest[row]
    none = torch.full((len(low),), len(fractions), device=low.device)
    return none.scatter_reduce_(0, row[best], k[best], "amin")


def _norms(
    errors: Errors, first: Tensor, low: Tensor, high: Tensor, anchor: Tensor, fractions: Tensor
) -> tuple[Tensor, Tensor]:
    """Return √(squared error) of every fraction and block, float32, and an upper bound of each block's smallest.

    NaN: not the smallest. 0: float32 can't tell.
    """
    norms = torch.full((len(fractions), len(low)), math.nan, device=low.device)
    norms[0] = first.sqrt()
    at_most = torch.zeros_like(low)
    rows = (first > 0).nonzero().reshape(-1)
    trials = trials_of(errors, Bounds(low, high, anchor), norms[0], fractions[-1:]).of(rows)
    for start in range(1, len(fractions), _TOGETHER):
        if not len(rows):
            break
        coding = trials.coding(fractions[start : start + _TOGETHER, None])
        left = ~(trials.beyond_codes(coding.at(0)) > trials.least)
        if int(left.sum()) <= _FEWER * len(rows):
            at_most[rows] = trials.at_most
            kept = left.nonzero().reshape(-1)
            rows, trials, coding = rows[kept], trials.of(kept), coding.at((slice(None), kept))
        norms[start : start + _TOGETHER].index_copy_(1, rows, trials.measure(coding))
    at_most[rows] = trials.at_most
    return norms, at_most


def _shrunk(bound: Tensor, anchor: Tensor, fraction: Tensor) -> Tensor:
    return torch.where(fraction == 1, bound, anchor + (bound - anchor) * fraction)
