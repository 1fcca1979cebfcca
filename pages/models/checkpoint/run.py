"""Long work on a checkpoint: it waits its turn, shows its progress, can be stopped, and resumes where it left off.

Results are kept for all visitors, by the content of the checkpoint.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import streamlit as st
import torch
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.models.checkpoint.controls import Shown
from pages.models.opening import Partner
from pages.serving.work import memory
from pages.shared.computing import cache, turn
from pages.shared.state.selection import Tensor
from quantcore.analysis import MapData, in_tensor, joined, map_data, step_of, value_data
from quantcore.checkpoints import CheckpointTensor, RowLoss, Window, row_loss
from quantcore.quantization import Quantized

BAND = 1 << 21  # elements read at once
_NEED = 16.0  # memory of a band, in multiples of half its elements as float32
_TRIM = 16  # bands; the little that is kept of each pins the freed memory below it on the heap
_PATIENCE = 0.4  # seconds; progress is shown only after this long
_STOPPED = "_ck_stopped"


@dataclass
class Sums:
    """Of the elements seen: their number, the sums of squares and of squared errors, and the largest |error|.

    ``worst``: row and column of the largest |error|; ``row``: with the largest squared error, ``row_noise``.
    """

    count: int = 0
    signal: float = 0.0
    noise: float = 0.0
    largest: float = -1.0
    worst: tuple[int, int] = (0, 0)
    row: int = 0
    row_noise: float = -1.0

    def add(self, x: torch.Tensor, values: torch.Tensor, row: int) -> None:
        """Add some rows of a plane, the first of which is ``row``."""
        error = x - values
        self.count += x.numel()
        self.signal += float(torch.linalg.vector_norm(x, dtype=torch.float64)) ** 2
        rows = torch.linalg.vector_norm(error, dim=1, dtype=torch.float64).square_()
        self.noise += float(rows.sum())
        lossy = int(rows.argmax())  # NaN counts as the largest
        if not (self.row_noise >= float(rows[lossy]) or math.isnan(self.row_noise)):
            self.row, self.row_noise = row + lossy, float(rows[lossy])
        place = int(error.abs_().argmax())  # NaN counts as the largest
        largest = float(error.view(-1)[place])
        if not (self.largest >= largest or math.isnan(self.largest)):
            self.largest, width = largest, x.shape[1]
            self.worst = (row + place // width, place % width)

    @property
    def sqnr(self) -> float:
        """In dB."""
        return float(qc.analysis.sqnr_of(self.signal, self.noise))


@dataclass(frozen=True)
class Maps:
    """What the maps of a part of a tensor need.

    ``format_of``: one row of it, for its format and how its codes are dequantized; None if there are no codes.
    ``sums``: None without an original; ``why``: what the row with the largest error lost, None if nothing is lost.
    """

    data: MapData
    format_of: Quantized | None
    sums: Sums | None
    why: RowLoss | None = None


@dataclass
class _Parts:
    """The finished bands of rows, by their first row."""

    bands: dict[int, MapData] = field(default_factory=dict)
    sums: Sums = field(default_factory=Sums)


def maps(
    tensor: CheckpointTensor, original: Partner | None, shown: Shown, key: str, place: DeltaGenerator
) -> Maps | None:
    """Return the maps of the part shown, read in bands of rows; None if the visitor has stopped the reading.

    Args:
        key: identifies the contents of tensor and original.
        place: for the progress and the button that continues.

    Raises:
        QuantError: the tensor can't be read.
    """
    record, what = work(tensor, shown, key)
    if st.session_state.get(_STOPPED) == record.key + what:
        place.button("Continue reading", type="primary", on_click=_stop, args=("",))
        return None
    make = partial(_read, tensor, original, shown, record, what, place)
    return cache.cached_small(record, what, make, _NEED)


def work(tensor: CheckpointTensor, shown: Shown, key: str) -> tuple[Tensor, str]:
    """Identify the reading of a part: a record for the cache, with the size of a band, and a name for the part."""
    elements = (shown.rows[1] - shown.rows[0]) * (shown.columns[1] - shown.columns[0])
    record = record_of(f"{key} {tensor.name}", min(elements, BAND // 2), tensor.name)
    return record, f"maps {shown.at} {shown.rows} {shown.columns}"


def record_of(key: str, elements: int = 1, title: str = "") -> Tensor:
    """A record for the cache and the gate: a key, and a size in floats."""
    return Tensor(key, title or key, (max(1, elements),), _not_kept)


def _not_kept() -> np.ndarray:
    raise AssertionError("windows of a checkpoint are read by their rows")


def _stop(what: str) -> None:
    st.session_state[_STOPPED] = what


def _read(
    tensor: CheckpointTensor,
    original: Partner | None,
    shown: Shown,
    record: Tensor,
    what: str,
    place: DeltaGenerator,
) -> Maps:
    parts = cache.cached_small(record, f"parts of {what}", _Parts)
    (first, last), step = shown.rows, step_of(shown.rows, shown.columns)
    progress = Progress(place, partial(_stop, record.key + what))
    with cache.turn_of(record, _NEED) as own:
        for start, stop in _bands(shown, step[0]):
            if start not in parts.bands:
                progress((start - first) / (last - first), f"Reading row {start:,} of {shown.height:,}")
                window = tensor.window((start, stop), shown.at)
                if original is not None:
                    window = window.against(original.rows(start, stop))
                parts.bands[start] = _map(window, shown, (start, stop), step)
                if window.original is not None:
                    # as the library returns them; the maps show them before that rounding
                    dtype, values = tensor.layout.dtype, window.values
                    values = values.to(dtype).float() if dtype.is_floating_point else values
                    parts.sums.add(window.original, values, window.row)
                del window
                if len(parts.bands) % _TRIM == 0:
                    memory.give_back()
                if stop < last:
                    turn.rerun_for_others(own)
    progress.end()
    done = [parts.bands.pop(start) for start in sorted(parts.bands)]
    row = tensor.window((first, first + 1), shown.at).result
    data = joined(done) if len(done) > 1 else done[0]
    if original is None:
        return Maps(data, row, None)
    return Maps(data, row, parts.sums, _why(tensor, original, shown, parts.sums))


def _why(tensor: CheckpointTensor, original: Partner, shown: Shown, sums: Sums) -> RowLoss | None:
    """What the row with the largest error lost; None if nothing is lost, or it is not finite."""
    if not 0 < sums.noise < math.inf:
        return None
    span = sums.row, sums.row + 1
    window = tensor.window(span, shown.at).against(original.rows(*span))
    return row_loss(window, sums.signal, sums.noise)


def _bands(shown: Shown, multiple: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of the rows to read at once: a multiple of the rows of a cell."""
    width = max(1, shown.shape[-1] if shown.shape else 1)
    most = BAND if len(shown.shape) < 3 else 8 * BAND  # some stacks are read by whole experts
    rows = max(1, most // (width * multiple)) * multiple
    for start in range(*shown.rows, rows):
        yield start, min(start + rows, shown.rows[1])


def _map(window: Window, shown: Shown, rows: tuple[int, int], step: tuple[int, int]) -> MapData:
    if window.result is None:
        return value_data(window.values, window.original, window.row, None, shown.columns, step)
    view = qc.views.View(columns=shown.columns)
    data = map_data(window.result, view, step=step)
    return in_tensor(data, window.row, window.block, window.original is not None)


class Progress:
    """A progress bar and a Stop button, once the work takes a while; ends the run if it was replaced."""

    def __init__(self, place: DeltaGenerator, stop: Callable[[], None], patience: float = _PATIENCE) -> None:
        self._place, self._stop, self._patience = place, stop, patience
        self._since, self._updated = time.monotonic(), 0.0
        self._bar: DeltaGenerator | None = None

    def __call__(self, done: float, text: str) -> None:
        """Show the fraction that is done, 0 to 1."""
        turn.check()
        now = time.monotonic()
        if now - self._since < self._patience or now - self._updated < 0.1:
            return
        self._updated = now
        if self._bar is None:
            row = self._place.container(horizontal=True, vertical_alignment="center")
            self._bar = row.progress(0.0)
            row.button("Stop", on_click=self._stop, key="_ck_stop")
        self._bar.progress(min(1.0, done), text)

    def end(self) -> None:
        """Remove bar and button."""
        if self._bar is not None:
            self._place.empty()
