"""What one row of a weight lost against its original, and why: its numbers decide the sentence."""

import math
from dataclasses import dataclass

import torch

from quantcore.analysis import decibels, sqnr_of
from quantcore.checkpoints.quantized import Window
from quantcore.formats import IntFormat
from quantcore.quantization import Quantized
from quantcore.wording import count

FAR = 3.0  # a scale this many times the row's median is named
MOVED = 0.05  # the fraction of codes that are not the nearest, from which it is said
MATTERS = 0.1  # the fraction of the row's squared error, from which clipping is said
HALF = 0.5 * (1 + 2**-10)  # of a step: an error beyond it is not that of rounding


@dataclass(frozen=True)
class Peak:
    """The block of a row with the largest scale.

    Attributes:
        columns: first and last.
        times: its scale over the median scale of the row.
        value, column: its value of the largest magnitude.
        zeroed: elements other than 0 that become 0.
    """

    columns: tuple[int, int]
    scale: float
    times: float
    value: float
    column: int
    zeroed: int

    @property
    def sentence(self) -> str:
        """What the scale does to the block."""
        first, last = self.columns
        size = last - first + 1
        many = f"all {size:,}" if self.zeroed == size else f"{self.zeroed:,} of their {size:,}"
        lost = f", and {many} elements become 0" if self.zeroed else ""
        return (
            f"In columns {first:,}–{last:,}, where the largest value is {self.value:.4g} (column "
            f"{self.column:,}), the scale is {self.scale:.4g}, "
            f"{self.times:.3g} times the median scale of the row{lost}."
        )


@dataclass(frozen=True)
class RowLoss:
    """What a row lost.

    Attributes:
        share: of the squared error of all rows, 0 to 1. sqnr_db, others_db: of the row, and of all rows.
        elements: in the row. moved: codes that are not the nearest to the original, although the nearest is
        in range. clipped: values beyond the last code of their block, if they matter for the error of the
        row. peak: the block with a scale far above those of the row; None if there is none, or blocks are not
        runs of columns.
    """

    row: int
    share: float
    sqnr_db: float
    others_db: float
    elements: int
    moved: int
    clipped: int
    peak: Peak | None

    @property
    def sentence(self) -> str:
        """What it lost and why."""
        own, whole = decibels(self.sqnr_db), decibels(self.others_db)
        said = [f"Row {self.row:,} has the largest squared error, {100 * self.share:.2g} % of the total."]
        if self.sqnr_db >= self.others_db:
            said.append(f"Its SQNR is {own}, no worse than the {whole} of all rows: its values are larger.")
            return " ".join(said)
        said.append(f"Its SQNR is {own}, that of all rows {whole}.")
        if self.peak is not None:
            said.append(self.peak.sentence)
        if self.clipped:
            verb, whose = ("is", "its") if self.clipped == 1 else ("are", "their")
            values = count(self.clipped, "value")
            said.append(f"{values} {verb} clipped: beyond the last code of {whose} block.")
        if self.moved >= MOVED * self.elements:
            said.append(
                f"{self.moved:,} of {self.elements:,} codes are not the nearest to the original: rounding to "
                "the nearest does not do that; methods such as GPTQ do, "
                "to make up for the errors of other columns."
            )
        return " ".join(said)


def row_loss(window: Window, signal: float, noise: float) -> RowLoss:
    """Return what the only row of a window lost.

    Args:
        window: one row, with its original and a result.
        signal, noise: the sums of squares and of squared errors of all rows.
    """
    assert window.original is not None
    x = window.original[0].double()
    error = x - window.values[0].double()
    own = float(error.square().sum())
    moved = clipped = 0
    peak = None
    if window.result is not None:
        held = window.result.params.scale.double().reshape(-1)
        width = -(-x.numel() // held.numel())  # columns of a block
        scale = held.repeat_interleave(width)[: x.numel()]
        moved, clipped = _counted(window.result, error, scale)
        peak = _peak(window, x, scale, width) if width > 1 else None
    return RowLoss(
        window.row,
        own / noise if noise else 0.0,
        float(sqnr_of(float(x.square().sum()), own)),
        float(sqnr_of(signal, noise)),
        x.numel(),
        moved,
        clipped,
        peak,
    )


def _counted(result: Quantized, error: torch.Tensor, scale: torch.Tensor) -> tuple[int, int]:
    """Count the codes that are not the nearest, and clipped values; only integers have steps of one size."""
    fmt = result.scheme.format
    if not isinstance(fmt, IntFormat):
        return 0, 0
    codes = result.codes[0].to(torch.int64)
    up = error * scale > 0  # a code one higher would be nearer to the original
    at_end = torch.where(up, codes >= fmt.qmax, codes <= fmt.qmin)
    far = error.abs() > HALF * scale.abs()
    clipped = far & at_end
    matters = error[clipped].square().sum() >= MATTERS * error.square().sum()
    return int((far & ~at_end).sum()), int(clipped.sum()) if matters else 0


def _peak(window: Window, x: torch.Tensor, scale: torch.Tensor, width: int) -> Peak | None:
    sizes = scale.abs()
    place = int(sizes.argmax())
    median = float(sizes[::width].median())
    times = float(sizes[place]) / median if median else math.inf
    if not math.isfinite(times) or times < FAR:
        return None
    first = place // width * width
    part = slice(first, min(first + width, x.numel()))
    column = first + int(x[part].abs().argmax())
    zeroed = int(((window.values[0][part] == 0) & (x[part] != 0)).sum())
    return Peak((first, part.stop - 1), float(scale[place]), times, float(x[column]), column, zeroed)
