"""What a map shows, as arrays: all or part of a plane of the tensor, exact or reduced.

A map shows at most `MAX_CELLS` cells per side. In a larger plane each cell represents a box of elements and
shows one of them: the maps of the original, codes and dequantized values show the element with the largest
|x|, which does not depend on the scheme, and the error map shows the one with the largest |error|, so that
the worst error is always visible. All numbers given for a cell belong to the element that its map shows.
Where a cell stands for many, their largest errors are much alike: the error map can show their RMS instead.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.analysis.cell_boxes import Span, extreme_of, mean_square
from quantcore.errors import QuantError
from quantcore.granularity import PerFlatGroup, Shape, as_boxes
from quantcore.qparams import Dequantizer, unscale
from quantcore.quantization import Quantized

# This module is the public `qc.views`
__all__ = [
    "MAPS", "MAX_CELLS", "Cells", "MapData", "View", "borders_of", "box_of_blocks", "element", "map_data",
    "place", "step_of", "steps",
]  # fmt: skip

Place = TypeVar("Place", int, str)
MAX_CELLS = 256
MAPS = ("x", "codes", "dequantized", "error")
MAX_BORDERS = 64  # lines along one axis; more would blur to grey


@dataclass(frozen=True)
class View:
    """The part of a tensor that is shown.

    ``axes``: the axes drawn downward and across, by default the last two; ``index``: the plane's index along
    the other axes, in order; ``rows``, ``columns``: (start, stop) of the part shown, None for all. A tensor
    of rank 1 is drawn as one row, of rank 0 as one cell.
    """

    axes: Span | None = None
    index: tuple[int, ...] = ()
    rows: Span | None = None
    columns: Span | None = None


@dataclass(frozen=True)
class Plane:
    """Two axes of a result: views of its tensors, parameters per block, and the extent of a block."""

    x: Tensor
    codes: Tensor
    scale: Tensor
    zero_point: Tensor
    block: Span
    table: Tensor | None
    kept: Dequantizer

    def values(self, codes: Tensor) -> Tensor:
        """Return the values of codes before zero_point and scale, float32."""
        return codes.to(torch.float32) if self.table is None else self.table[codes.to(torch.int64)]

    def dequantized(self, codes: Tensor, pick: Callable[[Tensor], Tensor]) -> Tensor:
        """x̂ for some codes; ``pick`` selects their parameters from block form."""
        zero_point = pick(self.zero_point.to(torch.float32))
        return unscale(self.values(codes), pick(self.scale), zero_point, self.kept.at(pick))


def element(view: View, shape: tuple[int, ...], row: Place, column: Place) -> tuple[int | Place, ...]:
    """Return the index in the tensor of the element at (row, column) of the plane.

    >>> element(View(index=(5,)), (8, 16, 16), "row", "column")
    (5, 'row', 'column')
    """
    if len(shape) < 2:
        return (column,)[: len(shape)]
    down, across = axes_of(view, len(shape))
    others = iter(view.index or (0,) * (len(shape) - 2))
    return tuple(row if i == down else column if i == across else next(others) for i in range(len(shape)))


def place(view: View, index: tuple[int, ...]) -> Span | None:
    """Return (row, column) of an element in the plane, or None if it is in another plane."""
    if len(index) < 2:
        return (0, index[0] if index else 0)
    down, across = axes_of(view, len(index))
    row, column = index[down], index[across]
    return (row, column) if element(view, index, row, column) == index else None


def axes_of(view: View, rank: int) -> Span:
    """Return the axes drawn downward and across.

    Raises:
        QuantError: they are not two different axes of the tensor.
    """
    down, across = view.axes or (rank - 2, rank - 1)
    if not (0 <= down < rank and 0 <= across < rank and down != across):
        raise QuantError(
            f"The view's axes {(down, across)} are not two different axes of a tensor of rank {rank}."
        )
    return down, across


def span_of(span: Span | None, length: int, what: str) -> Span:
    """Return (start, stop) of the part shown: all of ``length`` if ``span`` is None.

    Raises:
        QuantError: the span is empty or not within ``length``.
    """
    if span is None:
        return 0, length
    start, stop = span
    if not 0 <= start < stop <= length:
        raise QuantError(
            f"The {what} {start}:{stop} are not within 0:{length}; give a start below a stop, both inside."
        )
    return start, stop


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


SYMBOLS = ("x", "x̂", "error")


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
    elements per scale (down, across); None means row 0 and ``block``. ``rms``: √(mean error²) of each cell's
    elements, float32, if the error map shows that. ``symbols``: of the original, the dequantized and the
    error; ``titles``: of the maps in ``names``, if not the usual ones; ``after``: whether the error is the
    dequantized minus the original.
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
    rms: npt.NDArray[np.float32] | None = None
    symbols: tuple[str, str, str] = SYMBOLS
    titles: tuple[str, ...] = ()
    after: bool = False

    def of(self, name: str) -> Cells:
        """Return the elements shown by the map ``name``: "x", "codes", "dequantized" or "error"."""
        return self.worst if name == "error" else self.largest

    def map(self, name: str) -> npt.NDArray[Any]:
        """Return what the map ``name`` draws: its elements, |error| - |error of the other result|, or RMS."""
        if name == "error" and self.rms is not None:
            return self.rms
        drawn: npt.NDArray[Any] = getattr(self.of(name), name)
        if name == "error" and self.other is not None:  # negative where this result is closer to x
            drawn = np.abs(drawn) - np.abs(self.worst.x - self.other)
        return drawn

    @property
    def legend(self) -> str:
        """What a cell shows, in one sentence; empty if every cell is one element."""
        if self.step == (1, 1):
            return ""
        down, across = self.step
        cell = f"Each cell stands for {down} × {across} elements and shows the one"
        if "error" not in self.names:
            return f"{cell} with the largest |{'value' if self.symbols == SYMBOLS else self.symbols[0]}|."
        worst = "in the error map, the one with the largest |error|"
        if self.rms is not None:
            worst = "the last map shows the RMS of all their errors"
        elif self.other is not None:
            worst = "in the last map, the one whose errors differ most"
        return f"{cell} with the largest |{self.symbols[0]}|; {worst}."


def map_data(
    result: Quantized,
    view: View | None = None,
    against: Quantized | None = None,
    step: Span | None = None,
    *,
    rms: bool = False,
) -> MapData:
    """Return the cells of the four maps.

    Args:
        rms: if cells stand for several elements and there is no ``against``, the error map shows the RMS.
        against: another result of the same x; the error map then shows |error| - |its error|.
        step: elements per cell (down, across); by default just enough to keep each side within `MAX_CELLS`.

    >>> import quantcore as qc
    >>> result = qc.apply(torch.arange(600.0).view(1, 600), qc.Scheme(qc.INT4))
    >>> data = map_data(result)  # 600 columns do not fit into a window
    >>> data.step, data.legend.partition(" and ")[0]
    ((1, 3), 'Each cell stands for 1 × 3 elements')

    Raises:
        QuantError: the view does not fit the tensor.
    """
    view = view or View()
    plane = _plane(result, view)
    height, width = plane.x.shape
    rows, columns = span_of(view.rows, height, "rows"), span_of(view.columns, width, "columns")
    step = step or step_of(rows, columns)
    sums: list[Tensor] = []
    if step == (1, 1):
        every = (torch.arange(*span, device=plane.x.device) for span in (rows, columns))
        largest = worst = _cells(plane, *torch.meshgrid(*every, indexing="ij"))
    else:

        def both(part: Span) -> tuple[Tensor, Tensor]:
            error = _error_size(plane, part, columns)
            if rms and against is None:
                sums.append(mean_square(error, step))
            return plane.x[slice(*part), slice(*columns)].abs(), error

        places = extreme_of(both, rows, columns, step, plane.x.device)
        largest, worst = (_cells(plane, *at) for at in places)
    other = None
    if against is not None:
        worst, other = _compared(worst, plane, _plane(against, view), (rows, columns), step)
    parameters = (plane.scale.cpu().numpy(), plane.zero_point.cpu().numpy())
    borders = borders_of(rows, columns, plane.block)
    drawn = MapData(largest, worst, rows, columns, step, borders, *parameters, plane.block, other)
    return replace(drawn, rms=torch.cat(sums).sqrt_().cpu().numpy()) if sums else drawn


def _compared(
    worst: Cells, plane: Plane, of_other: Plane, spans: tuple[Span, Span], step: Span
) -> tuple[Cells, npt.NDArray[np.float32]]:
    """Return the elements whose errors in two planes differ most, and their x̂ in the other."""
    rows, columns = spans
    device = plane.x.device

    def difference(part: Span) -> tuple[Tensor]:
        return ((_error_size(plane, part, columns) - _error_size(of_other, part, columns)).abs_(),)

    if step != (1, 1):
        (farthest,) = extreme_of(difference, rows, columns, step, device)
        worst = _cells(plane, *farthest)
    row, column = (torch.from_numpy(i).to(device, torch.int64) for i in (worst.row, worst.column))
    return worst, _cells(of_other, row, column).dequantized


def step_of(rows: Span, columns: Span) -> Span:
    """Return the fewest elements per cell (down, across) that keep each side within `MAX_CELLS` cells.

    >>> step_of(rows=(0, 1000), columns=(0, 10))
    (4, 1)
    """
    return -(-(rows[1] - rows[0]) // MAX_CELLS), -(-(columns[1] - columns[0]) // MAX_CELLS)


def steps(shape: tuple[int, ...], view: View) -> Span:
    """Return the elements per cell (down, across) of the maps of a tensor.

    >>> steps((2, 1000, 10), View())
    (4, 1)

    Raises:
        QuantError: the view does not fit the tensor.
    """
    height, width = (1, 1, *shape)[-2:]
    if len(shape) > 1:
        height, width = (shape[axis] for axis in axes_of(view, len(shape)))
    return step_of(span_of(view.rows, height, "rows"), span_of(view.columns, width, "columns"))


def borders_of(rows: Span, columns: Span, block: Span) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the rows and columns where a new block begins; none along an axis that would have too many.

    >>> borders_of(rows=(0, 4), columns=(0, 8), block=(2, 4))
    ((2,), (4,))
    """
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
    shape, block, dequantizer = tuple(x.shape), result.block, result.dequantizer
    number = scale if dequantizer.number is None else dequantizer.number  # or a placeholder that is not read
    if isinstance(result.scheme.granularity, PerFlatGroup):
        (scale, zero_point, number), block = as_boxes((scale, zero_point, number), block[0], shape)
    tensors = [x, codes, scale, zero_point, number]
    if x.dim() < 2:
        parts, extent = [t.reshape(1, -1) for t in tensors], (1, block[0] if block else 1)
    else:
        down, across = axes_of(view, x.dim())
        others = [i for i in range(x.dim()) if i not in (down, across)]
        index = view.index or (0,) * len(others)
        inside = (0 <= n < shape[i] for n, i in zip(index, others, strict=True))
        if len(index) != len(others) or not all(inside):
            raise QuantError(
                f"The view's index {index} is not on the axes {others} of a tensor of shape {shape}."
            )
        at: dict[int, int] = dict(zip(others, index, strict=True))
        cut = tuple(at.get(i, slice(None)) for i in range(x.dim()))
        cut_grid = tuple(at[i] // block[i] if i in at else slice(None) for i in range(x.dim()))
        parts = [t[cut if t is x or t is codes else cut_grid] for t in tensors]
        parts, extent = [p.T for p in parts] if down > across else parts, (block[down], block[across])
    x, codes, scale, zero_point, number = parts
    kept = dequantizer.at(lambda _: number)
    return Plane(x, codes, scale, zero_point, extent, result.scheme.format.table, kept)


def _error_size(plane: Plane, rows: Span, columns: Span) -> Tensor:
    """|x - x̂| in a part of the plane."""
    box = (slice(*rows), slice(*columns))
    row = torch.arange(*rows, device=plane.x.device) // plane.block[0]
    column = torch.arange(*columns, device=plane.x.device) // plane.block[1]

    def gathered(parameters: Tensor) -> Tensor:
        # an axis with a single block broadcasts; gathering for every element is expensive
        part = parameters.index_select(0, row) if parameters.shape[0] > 1 else parameters
        return part.index_select(1, column) if part.shape[1] > 1 else part

    return plane.dequantized(plane.codes[box], gathered).sub_(plane.x[box]).abs_()
