"""How the error of a scheme depends on its range: clipping on one side, rounding on the other."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.analysis.block_sample import measured_blocks
from quantcore.qparams import BlockErrors, parameters
from quantcore.range_setting import MinMax
from quantcore.scheme import Scheme

Array = npt.NDArray[Any]
MAX_FRACTION, STEPS = 1.25, 50  # the widest range tried, in parts of min-max, and how many up to min-max


@dataclass(frozen=True)
class RangeCurve:
    """The mean squared error of ranges that are min-max shrunk or stretched, as `MinMse` shrinks it.

    ``fractions``: of the min-max range; 1 is among them. ``widths``: the mean width of the blocks' ranges as the
    convention has them; of symmetric ones half of it, the largest |x| that is not clipped. ``clipping`` and
    ``rounding`` add up to the error. ``clipped``: the fraction of the elements. ``measured`` of ``elements`` elements
    count.
    """

    fractions: Array
    widths: Array
    clipping: Array
    rounding: Array
    clipped: Array
    measured: int
    elements: int
    blocks: int

    @property
    def mse(self) -> Array:
        """The mean squared error, its two parts together."""
        total: Array = self.clipping + self.rounding
        return total

    @property
    def best(self) -> int:
        """The place of the least error; of equals the widest."""
        mse = np.nan_to_num(self.mse, nan=math.inf)
        return int(np.flatnonzero(mse == mse.min())[-1])


def range_curve(x: Any, scheme: Scheme, block: tuple[int, ...] | None = None) -> RangeCurve:
    """Measure the ranges from 1/50 to 5/4 of min-max; the scheme's own range setting does not count.

    Args:
        block: position in the grid of blocks; by default all blocks, each with its own range.

    Raises:
        QuantError: the scheme does not fit x, x holds NaN or infinity, or there is no such block.
    """
    scheme = dataclasses.replace(scheme, range_setting=MinMax())
    blocks = measured_blocks(x, scheme, block)
    fractions = np.arange(1, round(MAX_FRACTION * STEPS) + 1) / STEPS
    widths, clipping, rounding, clipped = (np.zeros(len(fractions)) for _ in range(4))
    for group in blocks.block_groups:
        low, high = group.amin(-1), group.amax(-1)
        anchor = torch.zeros_like(low) if scheme.symmetric else torch.zeros_like(low).clamp(low, high)
        measure = BlockErrors(group, scheme)
        for i, fraction in enumerate(fractions):
            bounds = [
                bound if fraction == 1 else anchor + (bound - anchor) * float(fraction)
                for bound in (low, high)
            ]
            sums = [float(part.sum()) for part in measure.split(bounds[0], bounds[1])]
            for total, part in zip((clipping, rounding, clipped), sums, strict=True):
                total[i] += part
            widths[i] += float(widths_of(bounds[0], bounds[1], scheme).sum())
    n = blocks.elements_measured
    return RangeCurve(
        fractions,
        widths / blocks.blocks_measured,
        clipping / n,
        rounding / n,
        clipped / n,
        n,
        blocks.elements,
        blocks.blocks,
    )


def widths_of(low: Tensor, high: Tensor, scheme: Scheme) -> Tensor:
    """Return how wide the convention makes the range of every block: high - low, or max|x| where it is symmetric."""
    low, high = parameters(low, high, scheme.symmetric, scheme.format, scheme.rules).ends
    if scheme.symmetric:
        return torch.maximum(low.abs(), high.abs()).double()
    return high.double() - low.double()
