"""How the error of a scheme depends on its range: clipping error against rounding error."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.analysis.range_curves.block_sample import measured_blocks
from quantcore.qparams import BlockErrors, parameters
from quantcore.range_setting import MinMax
from quantcore.scheme import Scheme

Array = npt.NDArray[Any]
MAX_FRACTION, STEPS = 1.25, 50  # the widest range as a fraction of min-max; steps up to min-max


@dataclass(frozen=True)
class RangeCurve:
    """The mean squared error for ranges that are fractions of min-max, scaled as `MinMse` does.

    ``fractions``: of the min-max range, including 1. ``widths``: the mean width of the blocks' ranges in the
    convention; for symmetric ranges half the width, which is the largest |x| that is not clipped.
    ``clipping`` and ``rounding`` add up to the error. ``clipped``: the fraction of clipped elements.
    ``measured``: how many of the ``elements`` were measured.
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
        """The mean squared error, clipping plus rounding."""
        total: Array = self.clipping + self.rounding
        return total

    @property
    def best(self) -> int:
        """The index of the smallest error; ties go to the widest range."""
        mse = np.nan_to_num(self.mse, nan=math.inf)
        return int(np.flatnonzero(mse == mse.min())[-1])


def range_curve(x: Any, scheme: Scheme, block: tuple[int, ...] | None = None) -> RangeCurve:
    """Measure ranges from 1/50 to 5/4 of min-max; the scheme's own range setting is ignored.

    Args:
        block: position in the grid of blocks; by default all blocks, each with its own range.

    Raises:
        QuantError: the scheme does not fit x, x contains NaN or infinity, or there is no such block.
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
    """Return the width of each block's range in the convention: high - low, or max |x| if symmetric."""
    low, high = parameters(low, high, scheme.symmetric, scheme.format, scheme.rules).ends
    if scheme.symmetric:
        return torch.maximum(low.abs(), high.abs()).double()
    return high.double() - low.double()
