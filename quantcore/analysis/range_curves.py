"""How the error depends on the range: curves over ranges, and the trials of one of ggml's searches.

A shorter last block counts as a block. If there are more than `MAX_ELEMENTS` elements, a regular sample is
measured: whole blocks if there are enough, otherwise elements of every block, including its extremes.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.analysis.blocks import elements_of
from quantcore.errors import QuantError
from quantcore.granularity import Blocks
from quantcore.notation import write_call
from quantcore.numerics import CHUNK, as_float32, refuse_nonfinite
from quantcore.qparams import BlockErrors, Groups, parameters
from quantcore.quantization import Quantized, check_result
from quantcore.range_setting import MinMax, Search, Trial
from quantcore.scheme import Scheme, as_scheme, check_supported, received

MAX_ELEMENTS = 1 << 19
Array = npt.NDArray[Any]
MAX_FRACTION, STEPS = 1.25, 50  # the widest range as a fraction of min-max; steps up to min-max
MAX_GROUPS = 1 << 13


@dataclass(frozen=True)
class MeasuredBlocks:
    """``block_groups``: for each block size, the measured blocks, of shape (blocks, elements per block).

    ``shape``: the tensor's; ``elements``, ``blocks``: how many there are, measured or not.
    """

    block_groups: list[Tensor]
    shape: tuple[int, ...]
    elements: int
    blocks: int

    @property
    def elements_measured(self) -> int:
        """How many elements are measured."""
        return sum(group.numel() for group in self.block_groups)

    @property
    def blocks_measured(self) -> int:
        """How many blocks are measured."""
        return sum(len(group) for group in self.block_groups)


def measured_blocks(x: Any, scheme: Scheme, position: tuple[int, ...] | None = None) -> MeasuredBlocks:
    """Return the blocks of x, or only the one at ``position`` in their grid.

    Raises:
        QuantError: the scheme does not fit x, x contains NaN or infinity, or there is no such block.
    """
    x = as_float32(x)
    check_supported(scheme, tuple(x.shape))
    refuse_nonfinite(x, "an error curve")
    if position is not None:
        part = elements_of(x, scheme.granularity, position).reshape(1, -1)
        return MeasuredBlocks([_thinned(part, part.numel())], tuple(x.shape), part.numel(), 1)
    blocks = Blocks.of(scheme.granularity, tuple(x.shape))
    every = [_thinned(rows, x.numel()) for _, rows in blocks.pieces(x, CHUNK)]
    sizes = dict.fromkeys(group.shape[1] for group in every)
    joined = [torch.cat([group for group in every if group.shape[1] == size]) for size in sizes]
    return MeasuredBlocks(joined, tuple(x.shape), x.numel(), blocks.count)


def _thinned(blocks: Tensor, elements: int) -> Tensor:
    """Return a regular sample of the blocks, or of the elements of every block with its extremes."""
    if elements <= MAX_ELEMENTS:
        return blocks
    step = -(-elements // MAX_ELEMENTS) | 1  # odd, so that the sample covers all columns of most tensors
    if len(blocks) >= step:
        return blocks[::step].contiguous()
    extremes = (blocks.amin(-1, keepdim=True), blocks.amax(-1, keepdim=True))
    return torch.cat([blocks[:, ::step], *extremes], -1)


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


def range_curve(x: Any, scheme: Scheme | str, block: tuple[int, ...] | None = None) -> RangeCurve:
    """Measure ranges from 1/50 to 5/4 of min-max; the scheme's own range setting is ignored.

    Args:
        block: position in the grid of blocks; by default all blocks, each with its own range.

    >>> import quantcore as qc
    >>> x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    >>> curve = qc.range_curve(x, qc.Scheme(qc.INT4))
    >>> f"{curve.fractions[curve.best]:.0%} of the min-max range has the least error"
    '60% of the min-max range has the least error'

    Raises:
        QuantError: the scheme does not fit x, x contains NaN or infinity, or there is no such block.
    """
    scheme = as_scheme(scheme)
    x, scheme, _ = received(x, dataclasses.replace(scheme, range_setting=MinMax()))
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


@dataclass(frozen=True)
class SearchCurve:
    """The result of each trial, in the order of the search.

    ``tried``: what a trial divides by `Search.DIVISOR` to get 1/s, in ggml's names; ``scales``: the magnitude
    of the trial's scale; ``errors``: Σ w·(x - x̂)² of a group, or Σ w·|x - x̂|, with float32 scales;
    ``best``: the number of groups whose search ended with the trial. Scales and errors are means over the
    ``measured`` groups, out of ``groups`` in all. ``weights``: the formula of w.
    """

    setting: Search
    tried: tuple[str, ...]
    weights: str
    scales: Array
    errors: Array
    best: npt.NDArray[np.int64]
    groups: int
    measured: int

    @property
    def name(self) -> str:
        """The search in its text form."""
        return write_call(self.setting)


def search_curve(result: Quantized, block: tuple[int, ...] | None = None) -> SearchCurve:
    """Return the trials of the group at ``block``, or their means over all (of many, a regular sample).

    >>> import quantcore as qc
    >>> x = torch.randn(1, 256, generator=torch.Generator().manual_seed(0))
    >>> curve = qc.search_curve(qc.apply(x, qc.PRESETS["gguf.Q4_K"]))
    >>> len(curve.tried), curve.groups, curve.weights  # trials, groups that searched, the formula of w
    (22, 8, '√(mean x²) + |x|')

    Raises:
        QuantError: the scheme's range setting is not a search.
    """
    check_result(result, "search_curve")
    setting, count = result.scheme.range_setting, result.blocks.count
    if not isinstance(setting, Search):
        raise QuantError(f"{write_call(setting)} is not a search; choose one such as make_qx.")
    step = -(-count // MAX_GROUPS)
    numbers = np.arange(0, count, step)
    if block is not None:
        numbers = np.array([np.ravel_multi_index(block, result.blocks.grid)])
    trials: list[Trial] = []
    Groups(result.x, result.scheme, result.blocks, result.importance).search(numbers, trials)
    taken = np.stack([trial.taken for trial in trials])
    last = len(trials) - 1 - taken[::-1].argmax(axis=0)
    best = np.bincount(last[taken.any(axis=0)], minlength=len(trials))
    errors, scales = (
        np.array([_mean(getattr(trial, name)) for trial in trials]) for name in ("error", "scale")
    )
    tried = tuple(trial.tried for trial in trials)
    return SearchCurve(setting, tried, setting.weight.formula, scales, errors, best, count, len(numbers))


def _mean(values: npt.NDArray[np.float32]) -> float:
    finite = values[np.isfinite(values)]
    return float(np.abs(finite.astype(np.float64)).mean()) if len(finite) else float("nan")
