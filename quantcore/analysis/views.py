"""What a map shows, as arrays: all or part of a plane of the tensor, exact or reduced.

A map shows at most `MAX_CELLS` cells per side. In a larger plane each cell represents a box of elements and
shows one of them: the maps of the original, codes and dequantized values show the element with the largest
|x|, which does not depend on the scheme, and the error map shows the one with the largest |error|, so that
the worst error is always visible. All numbers given for a cell belong to the element that its map shows.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.analysis.planes import (
    Plane,
    Span,
    View,
    axes_of,
    drawn_plane,
    element,
    extreme,
    extreme_difference,
    place,
    span_of,
)
from quantcore.errors import QuantError
from quantcore.granularity import PerFlatGroup, Shape, as_boxes
from quantcore.quantization import Quantized

# This module is the public `qc.views`
__all__ = [
    "MAPS", "MAX_CELLS", "Cells", "MapData", "View", "borders_of", "box_of_blocks", "element", "map_data", "place", "step_of",
]  # fmt: skip

MAX_CELLS = 256
MAPS = ("x", "codes", "dequantized", "error")
MAX_BORDERS = 64  # lines along one axis; more would blur to grey


@dataclass(frozen=True, eq=False)
class Cells:
    """One element per cell: 2-D arrays of the same shape, float32, int32 for codes and zero points.

    ``values``: the values of the codes before zero_point and scale; for integers, the codes themselves.
    ``row``, ``column``: the element's place in the plane.
    """

    x: npt.NDArray[np.float32]
    codes: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    dequantized: npt.NDArray[np.float32]
    error: npt.NDArray[np.float32]
    scale: npt.NDArray[np.float32]
    zero_point: npt.NDArray[np.int32 | np.float32]
    row: npt.NDArray[np.int32]
    column: npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class MapData:
    """The cells of the four maps.

    ``largest``: the element with the largest |x| in each cell; ``worst``: the one with the largest |error|.
    If a cell is one element, both are the same object. ``rows``, ``columns``: (start, stop); ``step``:
    elements per cell (down, across); ``borders``: rows and columns where a new block begins. ``scales``,
    ``zero_points``: those of the plane's blocks, in block form, or empty if each cell carries its own;
    ``block``: elements per block (down, across). ``other``: if two results are compared, the other's x̂ at
    the elements of ``worst``, which are then those whose errors differ most. ``names``: the maps that exist;
    "codes" and "dequantized" if there is no original. ``scales_at``: the row where ``scales`` begins, and the
    elements per scale (down, across); None means row 0 and ``block``.
    """

    largest: Cells
    worst: Cells
    rows: Span
    columns: Span
    step: Span
    borders: tuple[tuple[int, ...], tuple[int, ...]]
    scales: npt.NDArray[np.float32]
    zero_points: npt.NDArray[np.int32 | np.float32]
    block: Span
    other: npt.NDArray[np.float32] | None = None
    names: tuple[str, ...] = MAPS
    scales_at: tuple[int, Span] | None = None

    @property
    def error_difference(self) -> npt.NDArray[np.float32]:
        """|error| - |error of the other result|: negative where this result is closer to x."""
        assert self.other is not None
        difference: npt.NDArray[np.float32] = np.abs(self.worst.error) - np.abs(self.worst.x - self.other)
        return difference

    def of(self, name: str) -> Cells:
        """Return the elements shown by the map ``name``: "x", "codes", "dequantized" or "error"."""
        return self.worst if name == "error" else self.largest

    def map(self, name: str) -> npt.NDArray[Any]:
        """Return what the map ``name`` draws."""
        if name == "error" and self.other is not None:
            return self.error_difference
        drawn: npt.NDArray[Any] = getattr(self.of(name), name)
        return drawn

    @property
    def legend(self) -> str:
        """What a cell shows, in one sentence; empty if every cell is one element."""
        if self.step == (1, 1):
            return ""
        down, across = self.step
        if "error" not in self.names:
            return f"Each cell stands for {down} × {across} elements and shows the one with the largest |value|."
        worst = (
            "in the error map, the one with the largest |error|"
            if self.other is None
            else "in the last map, the one whose errors differ most"
        )
        return f"Each cell stands for {down} × {across} elements and shows the one with the largest |x|; {worst}."


def map_data(
    result: Quantized, view: View | None = None, against: Quantized | None = None, step: Span | None = None
) -> MapData:
    """Return the cells of the four maps.

    Args:
        against: another result of the same x; the error map then shows |error| - |its error|.
        step: elements per cell (down, across); by default just enough to keep each side within `MAX_CELLS`.

    Raises:
        QuantError: the view does not fit the tensor.
    """
    view = view or View()
    plane = _plane(result, view)
    height, width = plane.x.shape
    rows, columns = span_of(view.rows, height, "rows"), span_of(view.columns, width, "columns")
    step = step or step_of(rows, columns)
    if step == (1, 1):
        places = (torch.arange(*span, device=plane.x.device) for span in (rows, columns))
        largest = worst = _cells(plane, *torch.meshgrid(*places, indexing="ij"))
    else:
        largest, worst = (_cells(plane, *places) for places in extreme(plane, rows, columns, step))
    other = None
    if against is not None:
        plane_of_other = _plane(against, view)
        if step != (1, 1):
            worst = _cells(plane, *extreme_difference(plane, plane_of_other, rows, columns, step))
        row, column = (torch.from_numpy(i).to(plane.x.device, torch.int64) for i in (worst.row, worst.column))
        other = _cells(plane_of_other, row, column).dequantized
    parameters = (plane.scale.cpu().numpy(), plane.zero_point.cpu().numpy())
    borders = borders_of(rows, columns, plane.block)
    return MapData(largest, worst, rows, columns, step, borders, *parameters, plane.block, other)


def step_of(rows: Span, columns: Span) -> Span:
    """Return the fewest elements per cell (down, across) that keep each side within `MAX_CELLS` cells."""
    return -(-(rows[1] - rows[0]) // MAX_CELLS), -(-(columns[1] - columns[0]) // MAX_CELLS)


def borders_of(rows: Span, columns: Span, block: Span) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the rows and columns where a new block begins; none along an axis that would have too many."""
    down, across = (
        tuple(range(-(-start // b) * b or b, stop, b)) if (stop - start) // b <= MAX_BORDERS else ()
        for (start, stop), b in zip((rows, columns), block, strict=True)
    )
    return down, across


def _cells(plane: Plane, row: Tensor, column: Tensor) -> Cells:
    """Return the elements at these places of the plane."""
    block = (row // plane.block[0], column // plane.block[1])
    x, codes = plane.x[row, column], plane.codes[row, column].to(torch.int32)
    x_hat = plane.dequantized(codes, lambda parameters: parameters[block])
    arrays = {
        "x": x,
        "codes": codes,
        "values": plane.values(codes),
        "dequantized": x_hat,
        "error": x - x_hat,
        "scale": plane.scale[block],
        "zero_point": plane.zero_point[block],
        "row": row.to(torch.int32),
        "column": column.to(torch.int32),
    }
    return Cells(**{name: np.ascontiguousarray(array.cpu().numpy()) for name, array in arrays.items()})


def box_of_blocks(result: Quantized) -> Shape:
    """Return the extent of a block along each axis of x; 1 along every axis if groups cross rows."""
    if isinstance(result.scheme.granularity, PerFlatGroup):
        return as_boxes((), result.block[0], tuple(result.x.shape))[1]
    return result.block


def _plane(result: Quantized, view: View) -> Plane:
    x, codes, scale, zero_point = result.x, result.codes, result.scale, result.params.zero_point
    shape, block = tuple(x.shape), result.block
    number = (
        scale if result.dequantizer.number is None else result.dequantizer.number
    )  # or a placeholder that is not read
    if isinstance(result.scheme.granularity, PerFlatGroup):
        (scale, zero_point, number), block = as_boxes((scale, zero_point, number), block[0], shape)
    tensors = [x, codes, scale, zero_point, number]
    if x.dim() < 2:
        return drawn_plane([t.reshape(1, -1) for t in tensors], (1, block[0] if block else 1), result)
    down, across = axes_of(view, x.dim())
    others = [i for i in range(x.dim()) if i not in (down, across)]
    index = view.index or (0,) * len(others)
    if len(index) != len(others) or any(not 0 <= n < shape[i] for n, i in zip(index, others, strict=True)):
        raise QuantError(
            f"The view's index {index} is not on the axes {others} of a tensor of shape {shape}."
        )
    at: dict[int, int] = dict(zip(others, index, strict=True))
    cut = tuple(at.get(i, slice(None)) for i in range(x.dim()))
    cut_grid = tuple(at[i] // block[i] if i in at else slice(None) for i in range(x.dim()))
    parts = [t[cut if t is x or t is codes else cut_grid] for t in tensors]
    return drawn_plane([p.T for p in parts] if down > across else parts, (block[down], block[across]), result)
