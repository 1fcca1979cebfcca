"""Maps of part of a tensor too large for memory: numbered by the tensor's own rows, and joined from parts."""

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import torch
from torch import Tensor

from quantcore.analysis.cell_boxes import Span, extreme_of
from quantcore.analysis.views import MAPS, Cells, MapData, borders_of, span_of, step_of


def in_tensor(data: MapData, row: int, block: Span, has_original: bool) -> MapData:
    """Return the maps of some rows of a plane, with the row numbers of the plane.

    Args:
        row: the plane's row that is row 0 of ``data``.
        block: extent of a block of the whole plane (down, across), for borders and outlines.
        has_original: if false, there is nothing to compare with, and only codes and values are shown.
    """

    def moved(cells: Cells) -> Cells:
        return replace(cells, row=cells.row + np.int32(row))

    largest = moved(data.largest)
    differ = has_original and data.worst is not data.largest
    rows = (data.rows[0] + row, data.rows[1] + row)
    return replace(
        data,
        largest=largest,
        worst=moved(data.worst) if differ else largest,
        rows=rows,
        borders=borders_of(rows, data.columns, block),
        block=block,
        names=MAPS if has_original else MAPS[1:3],
        scales_at=(row, data.block),
    )


def joined(parts: Sequence[MapData]) -> MapData:
    """Return the maps of consecutive rows as one; each cell carries its own scale and zero point.

    The number of rows of every part but the last must be a multiple of the step.
    """

    def all_of(name: str) -> Cells:
        cells = [getattr(part, name) for part in parts]
        return Cells(**{f.name: np.concatenate([getattr(c, f.name) for c in cells]) for f in fields(Cells)})

    first, rows = parts[0], (parts[0].rows[0], parts[-1].rows[1])
    largest = all_of("largest")
    none = np.empty((0, 0), np.float32)
    return replace(
        first,
        largest=largest,
        worst=all_of("worst") if any(part.worst is not part.largest for part in parts) else largest,
        rows=rows,
        borders=borders_of(rows, first.columns, first.block),
        scales=none,
        zero_points=none,
    )


def value_data(
    values: Tensor,
    original: Tensor | None,
    row: int = 0,
    rows: Span | None = None,
    columns: Span | None = None,
    step: Span | None = None,
) -> MapData:
    """Return the map of values that have no codes; if the original is given, also its map and the error's.

    Args:
        values: some rows of a plane, float32.
        original: the same rows of the original.
        row: the plane's row at which ``values`` begins.
        rows: (start, stop) within ``values``; None for all. ``columns`` likewise.
        step: elements per cell (down, across).

    Raises:
        QuantError: there are no such rows or columns.
    """
    rows, columns = span_of(rows, len(values), "rows"), span_of(columns, values.shape[1], "columns")
    step = step or step_of(rows, columns)
    x = values if original is None else original

    def sizes(part: Span) -> tuple[Tensor, ...]:
        box = (slice(*part), slice(*columns))
        of_error = () if original is None else ((original[box] - values[box]).abs_(),)
        return x[box].abs(), *of_error

    places = extreme_of(sizes, rows, columns, step, values.device)
    largest = _cells(values, x, *places[0], row)
    worst = largest if original is None or step == (1, 1) else _cells(values, x, *places[1], row)
    shown = (rows[0] + row, rows[1] + row)
    names = ("dequantized",) if original is None else ("x", "dequantized", "error")
    none = np.empty((0, 0), np.float32)
    return MapData(largest, worst, shown, columns, step, ((), ()), none, none, (1, 1), names=names)


def output_data(y: Tensor, y_hat: Tensor, title: str = "y") -> MapData:
    """Return the maps of an output y, float32 [tokens, out], and of its error ŷ − y; ``title``: of y's."""
    data = value_data(y_hat, y)
    largest = replace(data.largest, error=-data.largest.error)
    worst = largest if data.worst is data.largest else replace(data.worst, error=-data.worst.error)
    symbols = ("y", "ŷ", "ŷ − y")
    shown = replace(data, names=("x", "error"), symbols=symbols, titles=(title, symbols[2]), after=True)
    return replace(shown, largest=largest, worst=worst)


def _cells(values: Tensor, x: Tensor, row: Tensor, column: Tensor, first: int) -> Cells:
    """Return the elements at these places, without codes and scales."""
    here, was = values[row, column].numpy(), x[row, column].numpy()
    none = np.zeros(here.shape, np.int32)
    place = [(i + shift).to(torch.int32).numpy() for i, shift in ((row, first), (column, 0))]
    error = np.zeros_like(here) if x is values else was - here
    return Cells(was, none, here, here, error, np.ones_like(here), none, *place)
