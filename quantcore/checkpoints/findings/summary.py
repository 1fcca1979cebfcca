"""What a weight is compared with its siblings by: its spread, mean and largest values and scales."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from quantcore.checkpoints.findings.record import CheckpointFinding, error, finding_of
from quantcore.checkpoints.findings.stored import TINY, Flat, of_dtype, scale_boxes
from quantcore.checkpoints.findings.structure import is_matrix
from quantcore.checkpoints.findings.walk import Box, walk
from quantcore.checkpoints.protocol.fields import Field
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.release import AsStored
from quantcore.checkpoints.rows import boxes

SAMPLE = 1 << 16  # elements that the spread is computed from
PLACES = 8  # runs of rows that a sample of a quantized weight is taken from
TRIMMED = 1e-3  # the largest values of a sample, which belong to `largest`


@dataclass
class Largest:
    """The two largest numbers over boxes of rows, 0 if there are none, and the index of the first."""

    first: float = 0.0
    second: float = 0.0
    at: tuple[int, ...] = ()

    def add(self, magnitudes: Tensor, first_row: int) -> None:
        """Add the magnitudes of a box."""
        if not magnitudes.numel():
            return
        ((first, second, at),) = two_largest(magnitudes.reshape(1, -1))
        if first > self.first:
            row, *rest = _place(at, magnitudes.shape) or (0,)
            self.at = (row + first_row, *rest)
        _, self.second, self.first = sorted([self.first, self.second, first, second])[-3:]


def two_largest(magnitudes: Tensor) -> Iterator[tuple[float, float, int]]:
    """Yield the two largest numbers of each row, 0 where there is but one, and the index of the first."""
    first, place = magnitudes.max(1, keepdim=True)
    second = magnitudes.scatter(1, place, 0.0).amax(1)
    yield from zip(first[:, 0].tolist(), second.tolist(), place[:, 0].tolist(), strict=True)


def largest_of(first: float, second: float, at: int, shape: tuple[int, ...]) -> Largest:
    """Return the largest of a weight from its `two_largest`."""
    return Largest(first, second, _place(at, shape) if first else ())


def _place(at: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(at, shape))


@dataclass(frozen=True)
class Summary:
    """What a weight is compared with its siblings by.

    ``spread``, ``mean``: the RMS and the mean of a sample without its largest values; ``largest``: the
    largest finite |w|, of a quantized weight those of the sample; ``scales``: the largest scales, by their
    places in the grid of blocks. ``zero_scales``, ``some_zero_scales``: whether every scale is 0, or one.
    ``equal_scales``: how many scales there are, if all are one number, else 0.
    ``damaged``: whether an error was found in the weight alone. ``flat``: rows and columns of one number.
    """

    name: str
    storage: str
    shape: tuple[int, ...]
    spread: float
    largest: Largest
    mean: float = 0.0
    scales: Largest = field(default_factory=Largest)
    zero_scales: bool = False
    some_zero_scales: bool = False
    equal_scales: int = 0
    damaged: bool = False
    flat: tuple[Flat, ...] = ()

    @property
    def zero(self) -> bool:
        """Whether every value is 0."""
        return not self.largest.first


class Extremes:
    """The summary of a weight whose values arrive in boxes of rows; every ``step``-th one is sampled."""

    def __init__(self, layout: Layout, step: int | None = None) -> None:
        self.layout, self.largest, self.nonfinite = layout, Largest(), 0
        self._step = max(1, math.prod(layout.shape) // SAMPLE) if step is None else step
        self._sample: list[Tensor] = []

    def add(self, box: Box) -> None:
        """Add the values of some rows."""
        self.nonfinite += int((~box.values.isfinite()).sum())
        self.largest.add(box.values.abs().nan_to_num_(0.0, 0.0, 0.0), box.rows.start)
        self._sample.append(box.values.reshape(-1)[:: self._step].nan_to_num(0.0, 0.0, 0.0))

    def found(self) -> Iterator[CheckpointFinding]:
        """Yield the findings on values that are not finite, or not scaled."""
        yield from of_values(self.layout, self.layout.dtype, self.largest, self.nonfinite)

    def summary(self) -> Summary:
        """Return what has been added."""
        spread, mean = moments(torch.cat(self._sample)[None])
        layout = self.layout
        return Summary(layout.name, layout.storage, layout.shape, float(spread), self.largest, float(mean))


def moments(samples: Tensor) -> tuple[Tensor, Tensor]:
    """Return the RMS and the mean of each row, without its largest values."""
    samples = samples.to(torch.float64)
    count = samples.shape[1]
    order = samples.abs().argsort(dim=1, stable=True)[:, : max(1, count - 1 - int(TRIMMED * count))]
    kept = samples.gather(1, order)
    return kept.square().mean(1).sqrt(), kept.mean(1)


def of_values(
    subject: Layout | AsStored, dtype: torch.dtype, largest: Largest, nonfinite: int
) -> Iterator[CheckpointFinding]:
    """Yield the findings on the values of a plain weight that are not finite, or not scaled."""
    name = subject.name
    if nonfinite:
        words = "{contains} {values:NaN or infinite value}."
        yield error(name, "value_nonfinite", words, values=nonfinite)
    end = torch.finfo(dtype).max
    if dtype.itemsize == 1 and is_matrix(subject.shape) and largest.first > end / 2:
        words = (
            "{has} values up to {value}, where {format} ends at {end}, as codes have that a scale should "
            "multiply; no stored tensor is known as {its} scale, so {its} values are the unscaled codes."
        )
        if "scale" not in name.rpartition(".")[2]:
            said = str(dtype).removeprefix("torch.")
            yield error(name, "unscaled", words, value=largest.first, format=said, end=float(end))


def of_bits(subject: Layout | AsStored, field: Field, summary: Summary) -> Iterator[CheckpointFinding]:
    """Yield the finding that values have the bits of another dtype."""
    if 0 < summary.spread < TINY and is_matrix(subject.shape):
        for said in of_dtype(field, "values"):
            yield finding_of(said.severity, subject.name, said.kind, said.words, **said.facts)


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
    scales, total, zeros, least = Largest(), 0, 0, math.inf
    for start, scale in scale_boxes(layout):
        total += scale.numel()
        zeros += int((scale == 0).sum())
        scales.add(scale.abs().nan_to_num(0.0, 0.0, 0.0), start)
        least = min(least, float(scale.abs().min())) if scale.numel() else least
    dead = total > 0 and not scales.first
    equal = total if least == scales.first and not dead else 0
    some = zeros > 0
    return replace(
        extremes.summary(), scales=scales, zero_scales=dead, some_zero_scales=some, equal_scales=equal
    )


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
