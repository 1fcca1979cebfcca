"""What a weight is compared with its siblings by: how widely its values spread, its largest value, its largest scale."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.checkpoints.findings.parameters import scale_boxes
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.rows import boxes

SAMPLE = 1 << 16  # elements that the spread is computed from
PLACES = 8  # runs of rows that a sample of a quantized weight is taken from
TRIMMED = 1e-3  # the largest values of a sample, which belong to `largest`


@dataclass(frozen=True)
class Summary:
    """A weight in four numbers.

    ``spread``: the RMS of a sample without its largest values; ``largest``: the largest finite |w|, of a quantized
    weight that of the sample; ``at``: its index; ``largest_scale``: 0 without scales; ``scale_at``: its place in the
    grid of blocks. ``zero``: whether every value is 0; ``zero_scales``: whether every scale is.
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


class Extremes:
    """The summary of a weight whose values arrive in boxes of rows."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.largest, self.at = 0.0, ()
        self._step = max(1, math.prod(layout.shape) // SAMPLE)
        self._sample: list[Tensor] = []

    def add(self, values: Tensor, first_row: int) -> None:
        """Add some rows, of which ``first_row`` is the first."""
        magnitudes = values.abs().nan_to_num_(0.0, 0.0, 0.0).reshape(-1)
        if not magnitudes.numel():
            return
        at = int(magnitudes.argmax())
        if float(magnitudes[at]) > self.largest:
            self.largest = float(magnitudes[at])
            place = torch.unravel_index(torch.tensor(at), values.shape)
            row, *rest = (int(i) for i in place)
            self.at = (row + first_row, *rest)
        self._sample.append(magnitudes[:: self._step].clone())

    def summary(self) -> Summary:
        """Return what has been added."""
        sample = torch.cat(self._sample).to(torch.float64)
        kept = sample.sort().values[: max(1, sample.numel() - 1 - int(TRIMMED * sample.numel()))]
        spread = float(kept.square().mean().sqrt())
        layout = self.layout
        return Summary(
            layout.name, layout.storage, layout.shape, spread, self.largest, self.at, zero=not self.largest
        )


def of_quantized(layout: Layout) -> Summary:
    """Return the summary of a quantized weight: a sample of its values, and all of its scales."""
    extremes = Extremes(layout)
    extremes._step = 1
    for box in _sampled(layout):
        extremes.add(layout.values(box), box.start)
    if not extremes.largest:  # perhaps only where the sample is
        for box in boxes(layout):
            extremes.add(layout.values(box), box.start)
            if extremes.largest:
                break
    found = extremes.summary()
    largest, at, scales = 0.0, (), 0
    for start, scale in scale_boxes(layout):
        magnitudes = scale.abs().nan_to_num(0.0, 0.0, 0.0)
        scales += scale.numel()
        if scale.numel() and float(magnitudes.max()) > largest:
            largest = float(magnitudes.max())
            row, *rest = (magnitudes == largest).nonzero()[0].tolist() or [0]
            at = (row + start, *rest)
    return Summary(
        found.name, found.storage, found.shape, found.spread, found.largest, found.at, largest, at, found.zero,
        zero_scales=scales > 0 and not largest,
    )  # fmt: skip


def _sampled(layout: Layout) -> Iterator[slice]:
    """Yield a few runs of rows, spread over the weight, that have about `SAMPLE` elements together."""
    rows = layout.shape[0]
    wanted = max(1, -(-SAMPLE * rows // max(1, math.prod(layout.shape))))
    if wanted >= rows:
        yield from boxes(layout)
        return
    each = max(1, wanted // PLACES)
    places = min(PLACES, wanted)
    for i in range(places):
        start = i * (rows - each) // max(1, places - 1) if places > 1 else 0
        yield slice(start, start + each)
