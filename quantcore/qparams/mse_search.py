"""Grid search for the range of least squared error, for many blocks at once, without measuring every range.

The ranges of a block are tried from wide to narrow, and two things avoid most exact measurements. Elements beyond
all codes only get farther away: once their error alone exceeds that of an earlier range, the block is done. And
errors are first estimated in float32 and in units of the scale, which takes the fewest passes; only where rounding
could decide are they measured again, in float64.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from quantcore.conventions import KERNELS, Convention
from quantcore.formats import IntFormat
from quantcore.numerics import CHUNK, NEAREST, like
from quantcore.qparams.coding import Dequantizer, decode
from quantcore.range_setting import Range, parts
from quantcore.scheme import Scheme

_SHORT = 4096  # elements: longer sums round too much in float32 to rank ranges
# elements are read only if a few elements as far out as the farthest would end the search in enough blocks
_FEW, _WORTH = 4**0.5, 0.1
_LEAST = 2.0**-50  # smaller norms come from squares that underflow in float32
_TOGETHER = 8  # ranges whose scales are computed at a time: small calls cost more than their arithmetic
_FEWER = 0.9  # the remaining blocks are copied once they are a smaller fraction than this
_KEPT = 1 << 21  # errors (ranges times blocks) in memory at a time


class Coding(NamedTuple):
    """The parameters that code a block: the kernel's factor, scale, and zero_point (None: all are 0)."""

    s: Tensor
    scale: Tensor
    shift: Tensor | None

    def at(self, index: object) -> "Coding":
        """Return the parameters of some blocks."""
        return Coding(*(None if t is None else t[index] for t in self))  # type: ignore[index, arg-type]

    def with_element_axis(self) -> "Coding":
        """Add an axis, to broadcast with the elements of each block."""
        return self.at((slice(None), None))


class Errors(Protocol):
    """What the search needs of `squared_error.BlockErrors`."""

    # ruff: noqa: D102 (described there)
    blocks: Tensor
    scheme: Scheme
    convention: Convention
    dequantizer: Dequantizer

    def __call__(self, low: Tensor, high: Tensor) -> Tensor: ...
    def of(self, rows: Tensor | slice) -> "Errors": ...
    def coding(self, low: Tensor, high: Tensor) -> Coding: ...
    def sums(self, coding: Coding, least: Tensor | None = None) -> Tensor: ...
    def norms(self, coding: Coding) -> Tensor: ...


class Bounds(NamedTuple):
    """Ranges of blocks, and the points that they are shrunk towards."""

    low: Tensor
    high: Tensor
    anchor: Tensor

    def shrunk(self, fraction: Tensor) -> Range:
        """Return the ranges shrunk to this fraction."""
        low, high, anchor = self
        return anchor + (low - anchor) * fraction, anchor + (high - anchor) * fraction


@dataclass
class Trials:
    """The blocks whose search continues.

    ``least``: an upper bound of √(squared error) of the best range so far. ``margin``: the absolute error of
    `measure`, in addition to the slack. ``shrinks``: whether the codes of narrower ranges reach less far.
    """

    errors: Errors
    bounds: Bounds
    margin: Tensor
    shrinks: Tensor
    least: Tensor

    def of(self, rows: Tensor) -> "Trials":
        """Return some of the blocks."""
        bounds = Bounds(*(bound[rows] for bound in self.bounds))
        some = (t[rows] for t in (self.margin, self.shrinks, self.least))
        return Trials(self.errors.of(rows), bounds, *some)

    def coding(self, fraction: Tensor) -> Coding:
        """Return the parameters of the blocks for several fractions of their range, (fractions, blocks)."""
        return self.errors.coding(*self.bounds.shrunk(fraction))

    @property
    def at_most(self) -> Tensor:
        """An upper bound of the measured error of the best range."""
        return (self.least + self.margin) * (1 + 2 * _slack(self.errors))

    def measure(self, coding: Coding) -> Tensor:
        """Return √(squared error) of several fractions, as in `_norms`; updates ``least``."""
        if _takes_steps(self.errors):
            found = self._in_steps(coding)
        else:
            found = torch.stack([self._norm(coding.at(k)) for k in range(len(coding.scale))])
        self.least = torch.fmin(self.least, _upper(found, self.errors, self.margin).amin(0))
        return found.masked_fill_(found.isinf(), 0.0)

    def beyond_codes(self, coding: Coding) -> Tensor:
        """Return a lower bound of √(squared error), here and for narrower ranges: the part from clipped elements."""
        low, high = _reach(coding, self.errors)
        if coding.shift is not None or self.errors.convention.scale.symmetric_scale == "signed_amax":
            # if the zero_point rounds differently or the sign flips, a narrower range can reach one step farther
            low, high = low - coding.scale.abs(), high + coding.scale.abs()
        farthest = torch.maximum(low - self.bounds.low, self.bounds.high - high)
        if float((_FEW * farthest > self.least).float().mean()) < _WORTH:
            return torch.zeros_like(farthest)
        blocks = self.errors.blocks
        kind = torch.float32 if blocks.shape[1] <= _SHORT else torch.float64
        norm = torch.zeros(len(blocks), dtype=kind, device=blocks.device)
        for rows, part in parts(blocks):
            beyond = torch.maximum(part, low[rows, None], out=like(part, "beyond"))
            torch.sub(part, torch.minimum(beyond, high[rows, None], out=beyond), out=beyond)
            norm[rows] = torch.hypot(norm[rows], torch.linalg.vector_norm(beyond, dim=-1, dtype=kind))
        # squares that overflow float32 say nothing
        return norm.float().nan_to_num_(0.0, 0.0).mul_(1 - 2 * _slack(self.errors)).mul_(self.shrinks)

    def _norm(self, coding: Coding) -> Tensor:
        """Return √(squared error), float32; NaN where it exceeds ``least``, infinite where it is NaN."""
        if self.errors.blocks.shape[1] > _SHORT:
            norm = self.errors.sums(coding, self.least.double().square()).sqrt()
            return torch.where(norm > self.least, math.nan, norm.nan_to_num(nan=math.inf)).float()
        return self.errors.norms(coding).nan_to_num_(nan=math.inf, posinf=math.inf)

    def _in_steps(self, coding: Coding) -> Tensor:
        """Return the result of `measure`, from x/s and the nearest code, in units of the scale."""
        fmt, blocks = self.errors.scheme.format, self.errors.blocks
        norms, inverse = torch.empty_like(coding.scale), torch.reciprocal(coding.scale)
        together = max(1, 2 * CHUNK // (len(norms) * blocks.shape[1]))
        for start in range(0, len(blocks), together):
            rows = slice(start, start + together)
            part, factors = blocks[rows].expand(len(norms), -1, -1), inverse[:, rows, None]
            codes = torch.mul(part, factors, out=like(part, "steps")).round_()
            if coding.shift is None:
                codes.clamp_(fmt.qmin, fmt.qmax)
            else:  # codes minus the zero_point, which then need not be added
                shift = coding.shift[:, rows, None]
                torch.maximum(codes, fmt.qmin - shift, out=codes)
                torch.minimum(codes, fmt.qmax - shift, out=codes)
            norms[:, rows] = codes.addcmul_(part, factors, value=-1.0).square_().sum(-1)
        return norms.sqrt_().mul_(coding.scale.abs()).nan_to_num_(nan=math.inf, posinf=math.inf)


def trials_of(errors: Errors, bounds: Bounds, norm: Tensor, last: Tensor) -> Trials:
    """Return the trials of all blocks; ``norm``: √(squared error) of their range, ``last``: the smallest fraction."""
    first, narrow = errors.coding(bounds.low, bounds.high), bounds.shrunk(last)
    # a scale that is bounded below or replaced does not follow the range
    wide = _width(bounds.low, bounds.high)
    follows = errors.coding(*narrow).scale.abs() * wide <= 4 * _width(*narrow) * first.scale.abs()
    margin = torch.zeros_like(norm)
    if _takes_steps(errors):
        margin = torch.linalg.vector_norm(errors.blocks, dim=-1)
        if first.shift is not None:
            fmt = errors.scheme.format
            shift = first.scale.abs() * max(abs(fmt.qmin), abs(fmt.qmax)) + wide
            margin += math.sqrt(errors.blocks.shape[1]) * shift
        # x/s, x̂ and their difference each round by 2^-24 of x, here and in the kernel, x/s + z by 2^-24 of z;
        # and an element that rounding moves across a tie counts twice
        margin *= 2.0**-20
    return Trials(errors, bounds, margin, follows, _upper(norm, errors, margin))


def _takes_steps(errors: Errors) -> bool:
    """Whether x̂ is (code - z)·s with the code nearest to x/s + z, whatever the order of operations."""
    c = errors.convention
    return (
        errors.blocks.shape[1] <= _SHORT
        and errors.scheme.format.has_zero_point
        and c.coding.overflow == "saturate"
        and c.coding.rounding in NEAREST
        and c.zero_point.zero_point_form in ("integer", "float_rounded")
        and not (c.storage.e8m0_min_as or c.storage.min_divisor)
    )


def _slack(errors: Errors) -> float:
    """Return the relative error of a norm: every square and sum rounds by 2^-24 at most."""
    size = errors.blocks.shape[1]
    return 2.0**-22 + (size * 2.0**-24 if size <= _SHORT else 0)


def _upper(norm: Tensor, errors: Errors, margin: Tensor) -> Tensor:
    upper = norm.clamp(min=_LEAST) * (1 + _slack(errors)) + margin
    return upper.nan_to_num_(nan=math.inf, posinf=math.inf)


def _width(low: Tensor, high: Tensor) -> Tensor:
    return torch.maximum(high - low, torch.maximum(high.abs(), low.abs()))


def _reach(coding: Coding, errors: Errors) -> Range:
    """Return the lowest and the highest value of a code."""
    fmt = errors.scheme.format
    codes = [fmt.qmin, fmt.qmax]
    if not isinstance(fmt, IntFormat):
        table = torch.nan_to_num(fmt.table, nan=0.0, posinf=0.0, neginf=0.0)
        codes = [int(table.argmin()), int(table.argmax())]
    bounds = [
        decode(
            torch.tensor(c).expand_as(coding.scale),
            *coding[1:],
            torch.empty_like(coding.scale),
            fmt,
            errors.dequantizer,
        )
        for c in codes
    ]
    return torch.minimum(*bounds), torch.maximum(*bounds)


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
