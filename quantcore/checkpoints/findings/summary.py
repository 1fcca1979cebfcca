"""What a weight is compared with its siblings by: spread, largest value, largest scale, and rows and columns that are flat.

In a flat row or column every number is the same: what the end of a file that was never written leaves. Codes are compared,
since scales differ along a row; of a plain weight, the values. A row or column of 0 may be sound (one that was pruned, or
that error feedback took for dead), unless several lie side by side; another number throughout is not. Either is wrong only
where siblings have none: structured pruning leaves them in every layer.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from quantcore.checkpoints.findings.parameters import scale_boxes
from quantcore.checkpoints.findings.record import CheckpointFinding, error
from quantcore.checkpoints.findings.walk import Box, walk
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.rows import boxes

LONG = 32  # numbers in a row or column; fewer may be the same by chance
SIDE_BY_SIDE = 8  # rows or columns of 0
SIBLINGS = 4  # that have none
_LOOKS = 8  # numbers of a row or column that are compared first
SAMPLE = 1 << 16  # elements that the spread is computed from
PLACES = 8  # runs of rows that a sample of a quantized weight is taken from
TRIMMED = 1e-3  # the largest values of a sample, which belong to `largest`


@dataclass(frozen=True)
class Flat:
    """The rows or columns of a weight that are flat.

    ``axis``: "row" or "column"; ``total``: how many, of ``of``; ``longest``: of them side by side, from ``first`` on;
    ``zero``: whether those are 0; ``numbers``: what was compared.
    """

    axis: str
    total: int
    of: int
    longest: int
    first: int
    zero: bool
    numbers: str

    @property
    def is_damage(self) -> bool:
        """Whether no sound weight has it, if its siblings have none."""
        return not self.zero or self.longest >= SIDE_BY_SIDE


class FlatLines:
    """Looks for flat rows and columns in boxes of rows."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._rows: list[Tensor] = []
        self._first: Tensor | None = None
        self._columns = torch.zeros(0, dtype=torch.int64)  # that may be flat

    def add(self, rows: Box) -> None:
        """Add the codes of some rows, or the values where there are none."""
        numbers = rows.values if self.layout.holds_values else rows.codes
        if numbers.dim() < 2 or not numbers.numel():
            return
        box = numbers.reshape(len(numbers), -1)
        if self._first is None:
            self._first, self._columns = box[0].clone(), torch.arange(box.shape[1])
        if box.shape[1] >= LONG:
            some = box[:, :: -(-box.shape[1] // _LOOKS)]
            alike = (some == box[:, :1]).all(1).nonzero()[:, 0]
            self._rows.append(alike[(box[alike] == box[alike, :1]).all(1)] + rows.start)
        for lines in (box[:: -(-len(box) // _LOOKS)], box):
            if len(self._columns):
                same = (lines[:, self._columns] == self._first[self._columns]).all(0)
                self._columns = self._columns[same]

    def found(self) -> tuple[Flat, ...]:
        """Return what has been added."""
        rows, *inner = self.layout.shape
        found = []
        if self._rows and len(flat := torch.cat(self._rows)):
            found.append(self._of("row", flat, rows))
        if rows >= LONG and len(self._columns):
            found.append(self._of("column", self._columns, math.prod(inner)))
        return tuple(found)

    def _of(self, axis: str, places: Tensor, of: int) -> Flat:
        ends = torch.cat([torch.tensor([0]), (places.diff() != 1).nonzero()[:, 0] + 1, torch.tensor([len(places)])])
        lengths = ends.diff()
        start = int(ends[lengths.argmax()])
        first, longest = int(places[start]), int(lengths.max())
        row = first if axis == "row" else 0
        values = self.layout.values(slice(row, row + 1)).reshape(-1)
        zero = not bool((values if axis == "row" else values[first : first + longest]).any())
        return Flat(axis, len(places), of, longest, first, zero, "value" if self.layout.is_plain else "code")


def of_flat(of_role: Mapping[str, Sequence[Flat]]) -> Iterator[CheckpointFinding]:
    """Yield what is wrong with the weights of one role, from what is flat in each, by name."""
    for name, found in of_role.items():
        for lines in (each for each in found if each.is_damage):
            others = [theirs for other, theirs in of_role.items() if other != name]
            alive = sum(all(each.axis != lines.axis for each in theirs) for theirs in others)
            if alive < max(SIBLINGS, 0.75 * len(others)):
                continue
            what = "are 0" if lines.zero else f"have one {lines.numbers} throughout"
            words = (
                f"{{has}} {{lines:{lines.axis}}} of {{of}} that {what}, {{side_by_side}} of them side by side from {lines.axis} "
                "{first} on, where {alive} of the {siblings} in other layers have none; download the release again."
            )
            yield error(
                name,
                f"flat_{lines.axis}s",
                words,
                lines=lines.total,
                of=lines.of,
                first=lines.first,
                side_by_side=lines.longest,
                alive=alive,
                siblings=len(others),
            )
            break  # a weight of one number has flat rows and columns


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
