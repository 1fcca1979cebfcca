"""The maps of a part of a checkpoint's tensor, read in bands of rows; kept for all visitors, by content."""

import math
from collections.abc import Generator
from dataclasses import dataclass, field

import numpy as np
import torch
from streamlit.delta_generator import DeltaGenerator

from pages.models.checkpoint.controls import ShownPart
from pages.models.opening import OpenCheckpoint, Partner, compared
from pages.serving.work import memory
from pages.shared.computing import cache
from pages.shared.computing.long_work import LongWork, WorkStep
from quantcore.analysis import (
    MapData,
    Sums,
    View,
    element,
    in_tensor,
    joined,
    map_data,
    sqnr_of,
    step_of,
    sums_of,
    value_data,
)
from quantcore.checkpoints import CheckpointTensor, RowLoss, plane_shape, row_loss
from quantcore.checkpoints.comparison import sqnr_of_cells
from quantcore.quantization import Quantized

BAND = 1 << 21  # elements read at once
_NEED = 16.0  # memory of a band, in multiples of half its elements as float32
_EDGE = 0.02  # the share of values at each end that the colors do not tell apart
_TRIM = 16  # bands; the little that is kept of each pins the freed memory below it on the heap


@dataclass
class _FinishedBands:
    """The finished bands of rows, by their first row; their sums, and the row with the largest squared error,
    ``row_noise``.
    """

    bands: dict[int, MapData] = field(default_factory=dict)
    sums: Sums = field(default_factory=Sums)
    width: int = 1
    row: int = 0
    row_noise: float = -1.0

    def add(self, x: torch.Tensor, values: torch.Tensor, row: int) -> None:
        """Add some rows of a plane, the first of which is ``row``."""
        self.width = x.shape[1]
        found = sums_of(x, values, row * self.width)
        self.sums.merge(found.sums)
        rows = found.ee.sum(1)
        lossy = int(rows.argmax())  # NaN counts as the largest
        if not (self.row_noise >= rows[lossy] or math.isnan(self.row_noise)):
            self.row, self.row_noise = row + lossy, float(rows[lossy])


@dataclass(frozen=True)
class Maps:
    """What the maps of a part of a tensor need.

    ``key``: identifies the contents; ``format_of``: one row of them, for the format and how codes are
    dequantized, None if there are no codes; ``errors``: None without an original; ``worst``: the element with
    the largest |error|; ``why``: what the row with the largest error lost, None if that is 0 or not finite.
    """

    key: str
    data: MapData
    format_of: Quantized | None
    errors: Sums | None = None
    worst: tuple[int, ...] = ()
    why: RowLoss | None = None


def maps(
    opened: OpenCheckpoint,
    tensor: CheckpointTensor,
    original: Partner | None,
    shown: ShownPart,
    place: DeltaGenerator,
) -> Maps | None:
    """Return the maps of the part shown, read in bands of rows; None if the visitor has stopped the reading.

    Args:
        place: for the progress and the button that continues.

    Raises:
        QuantError: the tensor can't be read.
    """
    elements = (shown.rows[1] - shown.rows[0]) * (shown.columns[1] - shown.columns[0])
    key = f"{opened.key} {'' if original is None else original.key} {tensor.name}"
    content = cache.CacheKey(key, max(1, min(elements, BAND // 2)))
    what = f"maps {shown.at} {shown.rows} {shown.columns}"
    work = LongWork("_ck_maps", f"{content.key} {what}", quick=True)
    if not work.starts(place, "Continue reading"):
        return None

    def make() -> Maps:
        parts = cache.cached_small(content, f"parts of {what}", _FinishedBands)
        work.run(place, lambda: _read(tensor, original, shown, parts), content, _NEED, short=True)
        done = [parts.bands.pop(start) for start in sorted(parts.bands)]
        row = tensor.window((shown.rows[0], shown.rows[0] + 1), shown.at).result
        data = joined(done) if len(done) > 1 else done[0]
        if original is None:
            return Maps(key, data, row)
        sums, why = parts.sums, None
        worst = element(View(index=shown.at), shown.shape, *divmod(sums.worst_at, parts.width))
        if 0 < sums.ee < math.inf:
            span = parts.row, parts.row + 1
            lossy = tensor.window(span, shown.at).against(original.rows(*span))
            why = row_loss(lossy, sums.xx, sums.ee)
        return Maps(key, data, row, sums, worst, why)

    return cache.cached_small(content, what, make, _NEED)


def _read(
    tensor: CheckpointTensor, original: Partner | None, shown: ShownPart, parts: _FinishedBands
) -> Generator[WorkStep, None, None]:
    """Read the bands of rows that are missing."""
    (first, last), step = shown.rows, step_of(shown.rows, shown.columns)
    width = max(1, shown.shape[-1] if shown.shape else 1)
    most = BAND if len(shown.shape) < 3 else 8 * BAND  # some stacks are read by whole experts
    rows = max(1, most // (width * step[0])) * step[0]  # a multiple of the rows of a cell
    for start in range(first, last, rows):
        stop = min(start + rows, last)
        if start in parts.bands:
            continue
        window = tensor.window((start, stop), shown.at)
        if original is not None:
            window = window.against(original.rows(start, stop))
        if window.result is None:
            data = value_data(window.values, window.original, window.row, None, shown.columns, step)
        else:
            data = map_data(window.result, View(columns=shown.columns), step=step)
            data = in_tensor(data, window.row, window.block, window.original is not None)
        parts.bands[start] = data
        if window.original is not None:
            # as the library returns them; the maps show them before that rounding
            dtype, values = tensor.layout.dtype, window.values
            values = values.to(dtype).float() if dtype.is_floating_point else values
            parts.add(window.original, values, window.row)
        del window
        if len(parts.bands) % _TRIM == 0:
            memory.give_back()
        said = f"Reading row {stop:,} of {plane_shape(shown.shape)[0]:,}"
        yield WorkStep((stop - first) / (last - first), said)


@dataclass(frozen=True)
class Lost:
    """What each tensor compared so far has lost, by name.

    ``sqnr``: its SQNR (dB); ``cells``: that of each part of it, of its rows down and its columns across.
    """

    sqnr: dict[str, float]
    cells: dict[str, np.ndarray]

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Between which values most of the tensors and of the cells are; None if all are exact."""
        every = np.concatenate([[*self.sqnr.values()], *(cells.ravel() for cells in self.cells.values())])
        some = every[np.isfinite(every)]
        return (float(np.quantile(some, _EDGE)), float(np.quantile(some, 1 - _EDGE))) if some.size else None


def lost(opened: OpenCheckpoint, original: OpenCheckpoint, place: DeltaGenerator) -> Lost:
    """Return what has been compared so far; compare the rest if quick or asked for.

    The SQNR of a tensor that is compared in parts, such as a stack of experts, is that of all its parts.
    """
    found = compared.between(original, opened)
    compared.proceed(found, place)
    sums: dict[str, np.ndarray] = {}
    for result in found.results:
        if not result.problem:
            own = np.array([result.power, result.squared_error, result.elements])
            sums[result.other_tensor] = sums.get(result.other_tensor, 0) + own
    sqnr = {name: float(sqnr_of(signal, noise)) for name, (signal, noise, _) in sums.items()}
    maps = found.comparison.error_maps(found.state)
    power = {name: signal / max(1, elements) for name, (signal, _, elements) in sums.items()}
    return Lost(sqnr, {name: sqnr_of_cells(cells, power[name]) for name, cells in maps.items()})
