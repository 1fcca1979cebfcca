"""The range that each range setting chooses for a tensor, and the resulting error."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from quantcore.analysis.metrics import report
from quantcore.analysis.range_curves import MeasuredBlocks, measured_blocks, widths_of
from quantcore.analysis.sums import sqnr_of
from quantcore.granularity import PerChannel
from quantcore.notation import write_call
from quantcore.qparams import BlockErrors, parameters
from quantcore.quantization import Quantized, apply_quietly, check_result
from quantcore.range_setting import METHODS, MinMax, RangeSetting, Task
from quantcore.scheme import Scheme, as_scheme, received, unsupported_reason


@dataclass(frozen=True)
class RangeMark:
    """The result of a range setting: the mean bounds and width of the blocks' ranges, and the error.

    ``clipped``: the fraction of clipped elements.
    """

    setting: RangeSetting
    low: float
    high: float
    width: float
    mse: float
    sqnr_db: float
    clipped: float

    @property
    def name(self) -> str:
        """What a person would call the setting; its text form is that of schemes."""
        return self.setting.title


def range_marks(
    x: Any,
    scheme: Scheme | str,
    block: tuple[int, ...] | None = None,
    settings: tuple[RangeSetting, ...] = METHODS,
) -> tuple[RangeMark, ...]:
    """Return the result of each range setting; the scheme's own setting is ignored.

    Empty for a scheme with one of ggml's searches, which find scales, not ranges; see `search_curve`.

    Settings that the scheme's library does not support (`unsupported_reason` says why) and given parameters
    are left out. Entropy uses fewer bins if there are many blocks, and is left out if it would still take too
    long.

    >>> import quantcore as qc
    >>> x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    >>> for mark in qc.range_marks(x, qc.Scheme(qc.INT4), settings=(qc.MinMax(), qc.MinMse())):
    ...     print(f"{mark.setting}: {mark.low:.3f} to {mark.high:.3f}, MSE {mark.mse:.2g}")
    MinMax(): -4.101 to 4.101, MSE 0.028
    MinMse(candidates=100): -2.502 to 2.502, MSE 0.014

    Raises:
        QuantError: see `range_curve`.
    """
    scheme = as_scheme(scheme)
    if scheme.range_setting.searches_codes:
        return ()
    x, scheme, _ = received(x, scheme)
    blocks = measured_blocks(x, dataclasses.replace(scheme, range_setting=MinMax()), block)
    marks = {}
    for setting in settings:
        found = setting.quicker(blocks.blocks_measured)
        one = dataclasses.replace(scheme, range_setting=found or setting)
        if found is None or found.gives_parameters or unsupported_reason(one, blocks.shape):
            continue
        marks[write_call(found)] = _mark(found, one, blocks)
    return tuple(marks.values())


def range_in_use(result: Quantized, block: tuple[int, ...] | None = None) -> tuple[float, float]:
    """Return (low, high) of one block, or their means over all blocks.

    If the scales were given or the zero_point was moved, these are the lowest and highest representable
    values.

    >>> import quantcore as qc
    >>> qc.range_in_use(qc.apply([-1.0, 0.5, 2.0], qc.Scheme.parse("uint4 asymmetric")))
    (-1.0, 2.0)
    """
    check_result(result, "range_in_use")
    low, high = result.params.low, result.params.high
    if low is None or high is None or result.scheme.range_setting.moves_zero_point:
        low, high = (
            (value - result.params.zero_point.double()) * result.scale for value in _outermost(result)
        )
    bounds = (low, high) if block is None else (low[block], high[block])
    return float(bounds[0].double().mean()), float(bounds[1].double().mean())


def _outermost(result: Quantized) -> tuple[float, float]:
    """Return the lowest and highest values of the codes before zero_point and scale."""
    fmt = result.scheme.format
    if fmt.table is None:
        return fmt.qmin, fmt.qmax
    finite = fmt.table[fmt.table.isfinite()]
    return float(finite.min()), float(finite.max())


def _mark(setting: RangeSetting, scheme: Scheme, blocks: MeasuredBlocks) -> RangeMark:
    convention = scheme.rules
    total = clipped = lows = highs = widths = power = 0.0
    for group in blocks.block_groups:
        measure = BlockErrors(group, scheme)
        low, high = setting(group, Task(scheme.format, scheme.symmetric, measure.search, len(group)))
        if setting.moves_zero_point:  # moves the zero_point, which a range does not describe
            moved = report(apply_quietly(group, dataclasses.replace(scheme, granularity=PerChannel(0))))
            total, clipped = total + moved.sse, clipped + moved.clipped
        else:
            parts = measure.split(low, high)
            total += float(parts.clipping.sum() + parts.rounding.sum())
            clipped += float(parts.clipped.sum())
        bounds = parameters(low, high, scheme.symmetric, scheme.format, convention).ends
        lows += float(bounds[0].double().sum())
        highs += float(bounds[1].double().sum())
        widths += float(widths_of(low, high, scheme).sum())
        power += float(torch.linalg.vector_norm(group, dtype=torch.float64)) ** 2
    n, m = blocks.blocks_measured, blocks.elements_measured
    return RangeMark(setting, lows / n, highs / n, widths / n, total / m, sqnr_of(power, total), clipped / m)
