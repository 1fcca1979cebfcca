"""How the error of a scheme depends on its range: clipping on one side, rounding on the other.

Blocks are gathered by their size, since a short last one is a block too. Of more than `MAX_ELEMENTS` elements
every few are measured, whole blocks where there are many, and always the extremes.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.granularity import (
    PerChannel,
    block_bounds,
    block_shape,
    grid_shape,
    laid_shape,
    regions,
    to_blocks,
)
from quantcore.inputs import CHUNK, as_float32, refuse_nonfinite
from quantcore.notation import write_call
from quantcore.quantize import apply_quietly
from quantcore.range_entropy import Entropy
from quantcore.range_half_quadratic import HalfQuadratic
from quantcore.range_methods import AbsMean, MeanStd, MinMse
from quantcore.range_setting import Given, MinMax, Percentile, RangeSetting
from quantcore.range_task import Task
from quantcore.refusal import refusal, refuse
from quantcore.scales import parameters
from quantcore.scheme import Scheme
from quantcore.squared_error import BlockErrors

Array = npt.NDArray[Any]
MAX_ELEMENTS = 1 << 20
MAX_SHARE, STEPS = 1.25, 50  # the widest range tried, in parts of min-max, and how many up to min-max
MAX_ENTROPY = 1 << 25  # bins, times thresholds, times blocks: what the pages wait for


@dataclass(frozen=True)
class RangeCurve:
    """The mean squared error of ranges that are min-max shrunk or stretched, as `MinMse` shrinks it.

    ``shares``: of the min-max range; 1 is among them. ``widths``: the mean width of the blocks' ranges as the
    convention has them; of symmetric ones half of it, the largest |x| that is not clipped. ``clipping`` and
    ``rounding`` add up to the error. ``measured`` of ``elements`` elements count.
    """

    shares: Array
    widths: Array
    clipping: Array
    rounding: Array
    measured: int
    elements: int
    blocks: int

    @property
    def mse(self) -> Array:
        """The mean squared error, its two parts together."""
        total: Array = self.clipping + self.rounding
        return total

    @property
    def least(self) -> int:
        """The place of the least error; of equals the widest."""
        mse = np.nan_to_num(self.mse, nan=math.inf)
        return int(np.flatnonzero(mse == mse.min())[-1])


@dataclass(frozen=True)
class RangeMark:
    """What a range setting finds: the mean ends and width of the blocks' ranges, and its mean squared error."""

    setting: RangeSetting
    low: float
    high: float
    width: float
    mse: float

    @property
    def name(self) -> str:
        """Its text form."""
        return write_call(self.setting)


def range_curve(x: Any, scheme: Scheme, block: tuple[int, ...] | None = None) -> RangeCurve:
    """Measure the ranges from 1/50 to 5/4 of min-max; the scheme's own range setting does not count.

    Args:
        block: position in the grid of blocks; by default all blocks, each with its own range.

    Raises:
        QuantError: the scheme does not fit x, x holds NaN or infinity, or there is no such block.
    """
    scheme = dataclasses.replace(scheme, range_setting=MinMax())
    piles = _piles(x, scheme, block)
    shares = np.arange(1, round(MAX_SHARE * STEPS) + 1) / STEPS
    widths, clipping, rounding = (np.zeros(len(shares)) for _ in range(3))
    for pile in piles.blocks:
        low, high = pile.amin(-1), pile.amax(-1)
        still = torch.zeros_like(low) if scheme.symmetric else torch.zeros_like(low).clamp(low, high)
        measure = BlockErrors(pile, scheme)
        for i, share in enumerate(shares):
            ends = [end if share == 1 else still + (end - still) * float(share) for end in (low, high)]
            parts = measure.split(ends[0], ends[1])
            clipping[i] += float(parts[0].sum())
            rounding[i] += float(parts[1].sum())
            widths[i] += float(_widths(ends[0], ends[1], scheme).sum())
    n = piles.measured
    return RangeCurve(
        shares, widths / piles.counted, clipping / n, rounding / n, n, piles.elements, piles.count
    )


def range_marks(x: Any, scheme: Scheme, block: tuple[int, ...] | None = None) -> tuple[RangeMark, ...]:
    """Return what every range setting finds, those left out that the scheme's library has not or that take long.

    The scheme's own comes first, unless its parameters are given by hand.

    Raises:
        QuantError: as `range_curve`.
    """
    piles = _piles(x, scheme, block)
    settings = [
        scheme.range_setting,
        MinMax(),
        MinMse(),
        Percentile(99),
        Percentile(99.9),
        MeanStd(3),
        AbsMean(),
    ]
    bins = next((b for b in (2048, 1024, 512, 256) if _entropy_work(b) * piles.counted <= MAX_ENTROPY), None)
    settings += [Entropy(bins)] if bins else []
    settings += [HalfQuadratic()]
    marks = {}
    for setting in settings:
        one = dataclasses.replace(scheme, range_setting=setting)
        if isinstance(setting, Given) or write_call(setting) in marks or refusal(one, piles.shape):
            continue
        marks[write_call(setting)] = _mark(setting, one, piles)
    return tuple(marks.values())


@dataclass(frozen=True)
class _Piles:
    """The blocks that are measured, gathered by size; how many ``elements`` and blocks (``count``) there are."""

    blocks: list[Tensor]
    shape: tuple[int, ...]
    elements: int
    count: int

    @property
    def measured(self) -> int:
        return sum(pile.numel() for pile in self.blocks)

    @property
    def counted(self) -> int:
        return sum(len(pile) for pile in self.blocks)


def _piles(x: Any, scheme: Scheme, position: tuple[int, ...] | None) -> _Piles:
    x = as_float32(x)
    refuse(scheme, tuple(x.shape))
    refuse_nonfinite(x, "a curve of errors")
    shape = laid_shape(scheme.granularity, tuple(x.shape))
    block = block_shape(scheme.granularity, tuple(x.shape))
    laid, grid = x.reshape(shape), grid_shape(shape, block)
    if position is not None:
        if len(position) != len(grid) or any(not 0 <= p < g for p, g in zip(position, grid, strict=True)):
            raise QuantError(f"There is no block {position}: the blocks form a grid of {grid}.")
        box = tuple(slice(*bounds) for bounds in block_bounds(shape, block, position))
        part = laid[box].reshape(1, -1)
        return _Piles([_thinned(part, part.numel())], tuple(x.shape), part.numel(), 1)
    boxes = regions(shape, block, CHUNK, whole_blocks=True)
    piles = [_thinned(to_blocks(laid[box.elements], box.block), laid.numel()) for box in boxes]
    return _Piles(_joined(piles), tuple(x.shape), laid.numel(), math.prod(grid))


def _thinned(blocks: Tensor, elements: int) -> Tensor:
    """Every few of the blocks, or of their elements and their extremes."""
    step = -(-elements // MAX_ELEMENTS)
    if step == 1:
        return blocks
    if len(blocks) >= step:
        return blocks[::step].contiguous()
    # an odd step meets the columns of most tensors in turn
    ends = (blocks.amin(-1, keepdim=True), blocks.amax(-1, keepdim=True))
    return torch.cat([blocks[:, :: step | 1], *ends], -1)


def _joined(piles: list[Tensor]) -> list[Tensor]:
    sizes = dict.fromkeys(pile.shape[1] for pile in piles)
    return [torch.cat([pile for pile in piles if pile.shape[1] == size]) for size in sizes]


def _entropy_work(bins: int) -> int:
    return bins * (bins // 2 - Entropy().num_quantized_bins // 2 + 1)


def _widths(low: Tensor, high: Tensor, scheme: Scheme) -> Tensor:
    found = parameters(low, high, scheme.symmetric, scheme.format, scheme.convention.at(scheme.granularity))
    if scheme.symmetric:
        return torch.maximum(found.low.abs(), found.high.abs()).double()
    return found.high.double() - found.low.double()


def _mark(setting: RangeSetting, scheme: Scheme, piles: _Piles) -> RangeMark:
    convention = scheme.convention.at(scheme.granularity)
    total, lows, highs, widths = 0.0, 0.0, 0.0, 0.0
    for pile in piles.blocks:
        measure = BlockErrors(pile, scheme)
        low, high = setting(pile, Task(scheme.format, scheme.symmetric, measure, len(pile)))  # type: ignore[operator]
        if isinstance(setting, HalfQuadratic):  # it moves the zero_point, which a range alone does not tell
            rows = dataclasses.replace(scheme, granularity=PerChannel(0))
            total += float(apply_quietly(pile, rows).error.double().square_().sum())
        else:
            total += float(measure(low, high).sum())
        found = parameters(low, high, scheme.symmetric, scheme.format, convention)
        lows += float(found.low.double().sum())
        highs += float(found.high.double().sum())
        widths += float(_widths(low, high, scheme).sum())
    n = piles.counted
    return RangeMark(setting, lows / n, highs / n, widths / n, total / piles.measured)
