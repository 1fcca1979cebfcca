"""The squared error of each block under a range, measured by quantizing as the scheme does; the best range.

The ranges of a block are tried from wide to narrow, and two things avoid most exact measurements. Elements
beyond all codes only get farther away: once their error alone exceeds that of an earlier range, the block is
done. And errors are first estimated in float32 and in units of the scale, which takes the fewest passes; only
where rounding could decide are they measured again, in float64.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from quantcore.conventions import KERNELS
from quantcore.formats import IntFormat
from quantcore.numerics import CHUNK, NEAREST, like, rounding
from quantcore.programs import code_program, factor_of, range_program
from quantcore.qparams.coding import decode, dequantizer_of, fit
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

    errors: "BlockErrors"
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
        """Return a lower bound of √(squared error), for this and narrower ranges: of clipped elements."""
        low, high = _reach(coding, self.errors)
        if coding.shift is not None or self.errors.convention.scale.symmetric_scale == "signed_amax":
            # where the zero_point or the sign changes, a narrower range can reach one step farther
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


def trials_of(errors: "BlockErrors", bounds: Bounds, norm: Tensor, last: Tensor) -> Trials:
    """Return all trials; ``norm``: √(squared error) of their range; ``last``: the least fraction."""
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


def _takes_steps(errors: "BlockErrors") -> bool:
    """Whether x̂ is (code - z)·s with the code nearest to x/s + z, whatever the order of operations."""
    c = errors.convention
    return (
        errors.blocks.shape[1] <= _SHORT
        and errors.scheme.format.has_zero_point
        and c.coding.overflow == "saturate"
        and c.coding.rounding in NEAREST
        and c.zero_point.zero_point_form in ("integer", "float_rounded")
        and not (c.storage.e8m0_min_as or c.storage.min_divisor or c.coding.clamp_min)
        and c.scale.divisor == 1
    )


def _slack(errors: "BlockErrors") -> float:
    """Return the relative error of a norm: every square and sum rounds by 2^-24 at most."""
    size = errors.blocks.shape[1]
    return 2.0**-22 + (size * 2.0**-24 if size <= _SHORT else 0)


def _upper(norm: Tensor, errors: "BlockErrors", margin: Tensor) -> Tensor:
    upper = norm.clamp(min=_LEAST) * (1 + _slack(errors)) + margin
    return upper.nan_to_num_(nan=math.inf, posinf=math.inf)


def _width(low: Tensor, high: Tensor) -> Tensor:
    return torch.maximum(high - low, torch.maximum(high.abs(), low.abs()))


def _reach(coding: Coding, errors: "BlockErrors") -> Range:
    """Return the lowest and the highest value of a code."""
    fmt = errors.scheme.format
    codes = [fmt.qmin, fmt.qmax]
    if not isinstance(fmt, IntFormat):
        table = torch.nan_to_num(fmt.table, nan=0.0, posinf=0.0, neginf=0.0)
        codes = [int(table.argmin()), int(table.argmax())]
    each = (torch.tensor(code).expand_as(coding.scale) for code in codes)
    bounds = [decode(c, *coding[1:], torch.empty_like(coding.scale), fmt, errors.dequantizer) for c in each]
    return torch.minimum(*bounds), torch.maximum(*bounds)


def _best(errors: "BlockErrors", low: Tensor, high: Tensor, anchor: Tensor, fractions: Tensor) -> Tensor:
    """Return the index of each block's best fraction."""
    first = errors(low, high)
    norms, at_most = _norms(errors, first, low, high, anchor, fractions)
    k, row = (norms <= at_most).nonzero().unbind(1)
    error = torch.zeros(len(k), dtype=torch.float64, device=low.device)
    unsure = (torch.bincount(row, minlength=len(low))[row] > 1).nonzero().reshape(-1)
    # the fused kernel takes one scale
    fused = KERNELS[errors.convention.coding.kernel].fused
    together = 1 if fused else max(1, CHUNK // errors.blocks.shape[1])
    for pairs in torch.split(unsure, together) if len(unsure) else ():
        at, fraction = row[pairs], fractions[k[pairs]]
        error[pairs] = errors.of(at)(*(_shrunk(bound[at], anchor[at], fraction) for bound in (low, high)))
    lowest = torch.full_like(first, math.inf).scatter_reduce_(0, row, error, "amin")
    best = error == lowest[row]
    none = torch.full((len(low),), len(fractions), device=low.device)
    return none.scatter_reduce_(0, row[best], k[best], "amin")


def _norms(
    errors: "BlockErrors", first: Tensor, low: Tensor, high: Tensor, anchor: Tensor, fractions: Tensor
) -> tuple[Tensor, Tensor]:
    """Return √(squared error) of every fraction and block, float32, and a bound of each block's smallest.

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


class Parts(NamedTuple):
    """For every block: the squared error of clipped and other elements, float64, and how many are clipped."""

    clipping: Tensor
    rounding: Tensor
    clipped: Tensor


class BlockErrors:
    """The squared error of blocks, float32 of shape (blocks, elements per block), under ranges.

    ``convention``: the convention for the scheme's granularity. ``dequantizer``: how it dequantizes.
    Scales stay float32 even if the scheme quantizes them, since that needs the scales of all blocks.
    """

    def __init__(self, blocks: Tensor, scheme: Scheme) -> None:
        self.blocks, self.scheme = blocks, scheme
        self.convention = scheme.rules
        self.dequantizer = dequantizer_of(None, scheme.format, self.convention)
        round_ = rounding(self.convention.coding.rounding)
        self.program = code_program(scheme.format, self.convention, round_=round_)
        self.factor = factor_of(self.program)

    def __call__(self, low: Tensor, high: Tensor) -> Tensor:
        """Return the summed squared error of every block, float64, inf instead of NaN."""
        return self.sums(self.coding(low, high)).nan_to_num_(nan=math.inf, posinf=math.inf)

    def search(self, low: Tensor, high: Tensor, anchor: Tensor, fractions: Tensor) -> Range:
        """Return, for every block, the first range anchor + (bound - anchor)·fraction with the least error.

        ``fractions``: descending from 1, where the range is exactly (low, high).
        """
        found = low.clone(), high.clone()
        rows = max(1, _KEPT // len(fractions))
        for start in range(0, len(low), rows):
            part = slice(start, start + rows)
            fraction = fractions[_best(self.of(part), low[part], high[part], anchor[part], fractions)]
            for whole, bound in zip(found, (low, high), strict=True):
                whole[part] = _shrunk(bound[part], anchor[part], fraction)
        return found

    def of(self, rows: Tensor | slice) -> "BlockErrors":
        """Return some of the blocks."""
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
        scale, z, inverse = range_program(self.scheme).run(("s", "z", "1/s"), {"low": low, "high": high})
        shift = None
        if isinstance(z, Tensor):
            matters = self.convention.zero_point.is_middle or bool(z.any())
            shift = z.to(torch.float32) if matters else None
        elif z:
            shift = torch.full_like(scale, z)
        numbers = {"s": scale} if inverse is None else {"s": scale, "1/s": inverse}
        return Coding(self.program.write(self.factor, numbers), scale, shift)

    def _unclamped(self, part: Tensor, coding: Coding) -> Tensor:
        """Return the kernel's unclamped values, valid until the next call."""
        name = "v" if self.scheme.format.has_zero_point else "u"
        numbers = {"x": part, self.factor: coding.s, "z": coding.shift, "mean": None}  # already subtracted
        found: Tensor = self.program.write(name, numbers, like(part, "unclamped"))
        return found

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
