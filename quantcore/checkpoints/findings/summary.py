"""What a weight is compared with its siblings by: how widely its values spread, its largest value, its largest scale."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from quantcore.checkpoints.findings.flat import Flat
from quantcore.checkpoints.findings.parameters import scale_boxes
from quantcore.checkpoints.findings.record import CheckpointFinding, error
from quantcore.checkpoints.findings.walk import Box, walk
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.rows import boxes

SAMPLE = 1 << 16  # elements that the spread is computed from
PLACES = 8  # runs of rows that a sample of a quantized weight is taken from
TRIMMED = 1e-3  # the largest values of a sample, which belong to `largest`


@dataclass(frozen=True)
class Summary:
    """What a weight is compared with its siblings by.

    ``spread``, ``mean``: the RMS and the mean of a sample without its largest values; ``largest``: the largest finite |w|, of a quantized
    weight that of the sample; ``at``: its index; ``largest_scale``: 0 without scales; ``scale_at``: its place in the
    grid of blocks; ``next_largest``, ``next_scale``: the second largest of each. ``zero``: whether every value is 0; ``zero_scales``,
    ``some_zero_scales``: whether every scale is, or one.
    ``damaged``: whether an error was found in the weight alone. ``flat``: rows and columns of one number.
    """

    name: str
    storage: str
    shape: tuple[int, ...]
    spread: float
    largest: float
    at: tuple[int, ...] = ()
    largest_scale: float = 0.0
    scale_at: tuple[int, ...] = ()
    zero: bool = False
    zero_scales: bool = False
    some_zero_scales: bool = False
    next_largest: float = 0.0
    next_scale: float = 0.0
    damaged: bool = False
    flat: tuple[Flat, ...] = ()
    mean: float = 0.0


class _Largest:
    """The two largest numbers over boxes of rows, and the place of the first."""

    def __init__(self) -> None:
        self.first, self.second = 0.0, 0.0
        self.at: tuple[int, ...] = ()

    def add(self, magnitudes: Tensor, first_row: int) -> None:
        """Add the magnitudes of a box."""
        if not magnitudes.numel():
            return
        top = magnitudes.reshape(-1).topk(min(2, magnitudes.numel()))
        found = [float(value) for value in top.values]
        if found[0] > self.first:
            place = np.unravel_index(int(top.indices[0]), magnitudes.shape)
            row, *rest = [int(i) for i in place] or [0]
            self.at = (row + first_row, *rest)
        _, self.second, self.first = sorted([self.first, self.second, *found])[-3:]


class Extremes:
    """The summary of a weight whose values arrive in boxes of rows; ``step``: every how many elements one is sampled."""

    def __init__(self, layout: Layout, step: int | None = None) -> None:
        self.layout, self.largest, self.nonfinite = layout, _Largest(), 0
        self._step = max(1, math.prod(layout.shape) // SAMPLE) if step is None else step
        self._sample: list[Tensor] = []

    def add(self, box: Box) -> None:
        """Add the values of some rows."""
        self.nonfinite += int((~box.values.isfinite()).sum())
        self.largest.add(box.values.abs().nan_to_num_(0.0, 0.0, 0.0), box.start)
        self._sample.append(box.values.reshape(-1)[:: self._step].nan_to_num(0.0, 0.0, 0.0))

    def found(self) -> Iterator[CheckpointFinding]:
        """Yield the finding on values that are not finite."""
        if self.nonfinite:
            words = "{contains} {values:NaN or infinite value}."
            yield error(self.layout, "value_nonfinite", words, values=self.nonfinite)

    def summary(self) -> Summary:
        """Return what has been added."""
        sample = torch.cat(self._sample).to(torch.float64)
        kept = sample[sample.abs().argsort()[: max(1, sample.numel() - 1 - int(TRIMMED * sample.numel()))]]
        spread = float(kept.square().mean().sqrt())
        layout, largest = self.layout, self.largest
        return Summary(
            layout.name, layout.storage, layout.shape, spread, largest.first, largest.at,
            zero=not largest.first, next_largest=largest.second, mean=float(kept.mean()),
        )  # fmt: skip


def of_quantized(layout: Layout) -> Summary:
    """Return the summary of a quantized weight: a sample of its values, and all of its scales."""
    extremes = Extremes(layout, 1)
    for rows in _sampled(layout):
        extremes.add(Box(layout, rows))
    if not extremes.largest.first:  # perhaps only where the sample is
        for box in walk(layout):
            extremes.add(box)
            if extremes.largest.first:
                break
    scales, total, zeros = _Largest(), 0, 0
    for start, scale in scale_boxes(layout):
        total += scale.numel()
        zeros += int((scale == 0).sum())
        scales.add(scale.abs().nan_to_num(0.0, 0.0, 0.0), start)
    return replace(
        extremes.summary(), largest_scale=scales.first, next_scale=scales.second, scale_at=scales.at,
        zero_scales=total > 0 and not scales.first, some_zero_scales=zeros > 0,
    )  # fmt: skip


def _sampled(layout: Layout) -> Iterator[slice]:
    """Yield a few runs of rows, spread over the weight, that have about `SAMPLE` elements together."""
    rows = layout.shape[0]
    wanted = -(-SAMPLE * rows // math.prod(layout.shape))
    if wanted >= rows:
        yield from boxes(layout)
        return
    each = max(1, wanted // PLACES)
    places = min(PLACES, wanted)
    for i in range(places):
        start = i * (rows - each) // (places - 1) if places > 1 else 0
        yield slice(start, start + each)
