"""The range whose histogram loses the least information: Kullback-Leibler calibration."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.range_setting.protocol import Control, Range, RangeSetting, Task

Array = npt.NDArray[Any]
MAX_BINS = 8192
MAX_WORK = 1 << 28  # bins, times thresholds, times blocks: some 10 seconds
_QUICK, _FEWER_BINS = 1 << 25, (2048, 1024, 512, 256)  # the same: about a second, and the bins that are tried
_EPSILON = 0.0001  # what onnxruntime assigns to an empty bin
_TOGETHER = 1 << 20  # bins that are processed at a time, over all blocks
_USUAL = 100  # exponent: magnitudes farther from 1 are rescaled, so that bins have a nonzero width


@dataclass(frozen=True)
class Entropy(RangeSetting):
    """±T within min-max, where T is the edge of the histogram that loses the least information.

    The histogram has ``num_bins`` bins over ±max|x|. For each T, two distributions are compared by the
    Kullback-Leibler divergence Σ p·log(p/q): p has the counts inside ±T, with all others added to its
    outermost bins; q has the counts inside ±T merged into ``num_quantized_bins`` bins. Arithmetic and
    defaults are those of onnxruntime 1.31, bit for bit. Its 128 bins leave only the widest T to try, so
    clipping needs more bins; TensorRT uses 2048.

    Migacz 2017, "8-bit Inference with TensorRT", GTC talk S7310; onnxruntime/quantization/calibrate.py,
    HistogramCollector.get_entropy_threshold.

    Raises:
        QuantError: not 2 <= num_quantized_bins <= num_bins <= 8192, or, when called, so many bins and blocks
            that it would take minutes.
    """

    option = "entropy"
    about = "the least information loss (Kullback-Leibler)"
    usual = ((2048,),)
    controls = (
        Control(
            "bins", "num_bins", "Bins", 2048, low=128, high=MAX_BINS,
            help="Bins of the histogram. With 128, only the widest threshold is left to try; "
            "TensorRT uses 2048.",
        ),
    )  # fmt: skip

    num_bins: int = 128
    num_quantized_bins: int = 128

    @property
    def title(self) -> str:
        """``entropy, 2048 bins``, and to how many they are merged if that is unusual."""
        merged = f" to {self.num_quantized_bins}" * (self.num_quantized_bins != Entropy().num_quantized_bins)
        return f"entropy, {self.num_bins} bins{merged}"

    def __post_init__(self) -> None:
        notation.read_numbers(self)
        bins, quantized = self.num_bins, self.num_quantized_bins
        if not 2 <= quantized <= bins <= MAX_BINS:
            raise QuantError(
                f"Entropy needs 2 <= num_quantized_bins <= num_bins <= {MAX_BINS}, not {quantized} and "
                f"{bins}."
            )

    @property
    def thresholds(self) -> int:
        """How many are tried in each block."""
        return self.num_bins // 2 - self.num_quantized_bins // 2 + 1

    def quicker(self, blocks: int) -> "Entropy | None":
        """Return the one with the most bins that takes about a second for so many blocks; at most its own."""
        bins = [
            self.num_bins,
            *(bins for bins in _FEWER_BINS if self.num_quantized_bins <= bins < self.num_bins),
        ]
        each = (replace(self, num_bins=number) for number in bins)
        return next((e for e in each if e.num_bins * e.thresholds * blocks <= _QUICK), None)

    def __call__(self, blocks: Tensor, task: Task) -> Range:
        """Return (low, high), one number per block."""
        count = max(task.blocks, len(blocks))
        if self.thresholds > 1 and self.thresholds * self.num_bins * count > MAX_WORK:
            raise QuantError(
                f"Entropy would try {self.thresholds:,} thresholds in each of {count:,} blocks, which takes "
                "minutes; choose fewer bins or larger blocks."
            )
        x = blocks.cpu().numpy()
        low, high = x.min(-1), x.max(-1)
        found = [np.empty_like(low), np.empty_like(high)]
        rows = max(1, _TOGETHER // max(self.num_bins, x.shape[1]))
        for start in range(0, len(x), rows):
            part = slice(start, start + rows)
            for every, bounds in zip(found, self._thresholds(x[part], low[part], high[part]), strict=True):
                every[part] = bounds
        return torch.from_numpy(found[0]).to(blocks.device), torch.from_numpy(found[1]).to(blocks.device)

    def _thresholds(self, x: Array, low: Array, high: Array) -> tuple[Array, Array]:
        largest = np.maximum(np.abs(low), np.abs(high))
        exponent = np.where(largest == 0, 0, np.frexp(largest)[1])
        exponent = np.where(np.abs(exponent) > _USUAL, exponent, 0)
        if exponent.any():
            x = np.ldexp(x, -exponent[:, None])
            largest = np.ldexp(largest, -exponent)
        edges = histogram_edges(largest, self.num_bins)
        counts = histogram_counts(x, edges)
        place = least_divergence(counts, self.num_quantized_bins)
        middle, n = self.num_bins // 2, np.arange(len(x))
        bounds = edges[n, middle - place], edges[n, np.minimum(middle + place + 1, self.num_bins)]
        lowest, highest = (np.ldexp(e, exponent) for e in bounds)
        return np.maximum(lowest, low), np.minimum(highest, high)


def histogram_edges(largest: Array, bins: int) -> Array:
    """Return edges of equal bins over ±``largest``, or ±0.5 where that is 0: float32, one row per block."""
    reach = np.where(largest == 0, np.float32(0.5), largest)
    return np.linspace(-reach, reach, bins + 1, dtype=np.float32, axis=-1)


def histogram_counts(x: Array, edges: Array) -> Array:
    """Count the elements of each block in each bin, with its lower edge; the last bin has both edges."""
    blocks, bins = len(edges), edges.shape[1] - 1
    counts = np.zeros((blocks, bins), np.int64)
    for start in range(0, x.shape[1], _TOGETHER):
        part = x[:, start : start + _TOGETHER]
        first, width = edges[:, :1], edges[:, -1:] - edges[:, :1]
        place = np.clip(((part - first) / width * bins).astype(np.int64), 0, bins - 1)
        # the rounded quotient may point to a neighboring bin
        place -= part < np.take_along_axis(edges, place, 1)
        place += (part >= np.take_along_axis(edges, place + 1, 1)) & (place < bins - 1)
        flat = (place + np.arange(blocks)[:, None] * bins).reshape(-1)
        counts += np.bincount(flat, minlength=blocks * bins).reshape(blocks, bins)
    return counts


def least_divergence(counts: Array, quantized_bins: int) -> Array:
    """Return, for every row of counts, the bins on each side of the middle with the least divergence."""
    middle, bins = counts.shape[1] // 2, counts.shape[1]
    until = np.concatenate([np.zeros((len(counts), 1), np.int64), counts.cumsum(1)], 1)
    first = quantized_bins // 2
    least = np.full(len(counts), np.inf, np.float32)
    place = np.full(len(counts), first)
    for i in range(first, middle + 1):
        start, stop = middle - i, min(middle + i + 1, bins)
        outside = until[:, start], until[:, -1] - until[:, stop]
        found = _divergence(counts[:, start:stop], outside, quantized_bins)
        better = found < least
        least[better], place[better] = found[better], i
    return place


def _divergence(inside: Array, outside: tuple[Array, Array], quantized_bins: int) -> Array:
    """Return Σ p·log(p/q) of every row, float32; infinite where q is 0 everywhere."""
    p = inside.copy()
    p[:, 0] += outside[0]
    p[:, -1] += outside[1]
    merged = inside.shape[1] // quantized_bins
    upto = quantized_bins * merged
    shape = (len(inside), quantized_bins, merged)
    sums = inside[:, :upto].reshape(shape).sum(-1)
    sums[:, -1] += inside[:, upto:].sum(-1)
    filled = (p[:, :upto] != 0).reshape(shape).sum(-1)
    q = np.zeros_like(p)
    # onnxruntime's q is an array of integers: a mean count below 1 becomes 0
    q[:, :upto] = np.repeat(sums // np.maximum(filled, 1) * (filled > 0), merged, 1)
    empty = ~q.any(1)
    p, q = (_smooth(d) for d in (p, q))
    p, q = (1.0 * d / np.sum(d, axis=1, keepdims=True) for d in (p, q))
    divergence = np.sum(p * np.log(p / q), axis=1)
    return np.where(empty, np.float32(np.inf), divergence)


def _smooth(counts: Array) -> Array:
    """Return counts as float32, with empty bins raised slightly and the others lowered to compensate."""
    empty = counts == 0
    n = empty.sum(1, keepdims=True)
    taken = _EPSILON * n / np.maximum(counts.shape[1] - n, 1)
    return counts.astype(np.float32) + np.where(empty, np.float32(_EPSILON), (-taken).astype(np.float32))
