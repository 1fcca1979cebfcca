"""What a map shows: a plane of the tensor, whole or in part, exact or reduced, as arrays.

A map shows at most `MAX_CELLS` cells a side. Of a larger plane each cell stands for a box of elements
and shows one of them, the one with the largest |error|, in all four maps: so the worst can't hide, and the
four maps tell of the same element.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.coding import Kept, unscale
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import PerFlatGroup, Shape, as_boxes
from quantcore.inputs import CHUNK
from quantcore.quantize import Quantized

MAX_CELLS = 256
MAX_BORDERS = 64  # lines along one axis; more would be a grey haze

Span = tuple[int, int]
Place = TypeVar("Place", int, str)


@dataclass(frozen=True)
class View:
    """Which part of a tensor is shown.

    ``axes``: the axes drawn downwards and across, by default the last two; ``index``: where the plane
    stands on the other axes, in order; ``rows``, ``columns``: (start, stop) of the part shown, None for all.
    Rank 1 is drawn as one row, rank 0 as one cell.
    """

    axes: Span | None = None
    index: tuple[int, ...] = ()
    rows: Span | None = None
    columns: Span | None = None


@dataclass(frozen=True, eq=False)
class MapData:
    """The cells of the four maps, 2-D arrays of one shape: float32, and int32 for codes and zero points.

    ``values``: what the codes stand for before zero_point and scale: the codes themselves, or of a float
    format its values. ``rows``, ``columns``: the first element and the one after the last; ``step``: how many elements (down,
    across) a cell stands for; ``row``, ``column``: where the element that a cell shows stands in the plane;
    ``borders``: rows and columns before which a new block begins.
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
    rows: Span
    columns: Span
    step: Span
    borders: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def legend(self) -> str:
        """What a cell stands for, in one sentence; empty where it is one element."""
        if self.step == (1, 1):
            return ""
        down, across = self.step
        return f"Each cell stands for {down} × {across} elements and shows the one with the largest |error|."


@dataclass(frozen=True)
class _Plane:
    """Two axes of a result: views of its tensors, parameters per block, and the block's extents."""

    x: Tensor
    codes: Tensor
    scale: Tensor
    zero_point: Tensor
    block: Span
    table: Tensor | None
    kept: Kept

    def values(self, codes: Tensor) -> Tensor:
        """What codes stand for before zero_point and scale, float32."""
        return codes.to(torch.float32) if self.table is None else self.table[codes.to(torch.int64)]

    def dequantized(self, codes: Tensor, pick: Callable[[Tensor], Tensor]) -> Tensor:
        """x̂ of some codes; ``pick`` finds what belongs to them in block form."""
        zero_point = pick(self.zero_point.to(torch.float32))
        return unscale(self.values(codes), pick(self.scale), zero_point, self.kept.at(pick))


def element(view: View, shape: tuple[int, ...], row: Place, column: Place) -> tuple[int | Place, ...]:
    """Return the index in the tensor of what stands at (row, column) of the plane.

    >>> element(View(index=(5,)), (8, 16, 16), "row", "column")
    (5, 'row', 'column')
    """
    if len(shape) < 2:
        return (column,)[: len(shape)]
    down, across = _axes(view, len(shape))
    others = iter(view.index or (0,) * (len(shape) - 2))
    return tuple(row if i == down else column if i == across else next(others) for i in range(len(shape)))


def place(view: View, index: tuple[int, ...]) -> Span | None:
    """Return (row, column) of an element in the plane, None where it stands in another plane."""
    if len(index) < 2:
        return (0, index[0] if index else 0)
    down, across = _axes(view, len(index))
    row, column = index[down], index[across]
    return (row, column) if element(view, index, row, column) == index else None


def map_data(result: Quantized, view: View | None = None) -> MapData:
    """Return the cells of the four maps.

    Raises:
        QuantError: the view names what the tensor has not.
    """
    view = view or View()
    plane = _plane(result, view)
    height, width = plane.x.shape
    rows, columns = _span(view.rows, height, "rows"), _span(view.columns, width, "columns")
    step = (-(-(rows[1] - rows[0]) // MAX_CELLS), -(-(columns[1] - columns[0]) // MAX_CELLS))
    row, column = _shown(plane, rows, columns, step)
    scale = plane.scale[row // plane.block[0], column // plane.block[1]]
    zero_point = plane.zero_point[row // plane.block[0], column // plane.block[1]]
    x, codes = plane.x[row, column], plane.codes[row, column].to(torch.int32)
    x_hat = plane.dequantized(codes, lambda p: p[row // plane.block[0], column // plane.block[1]])
    borders = tuple(
        tuple(range(-(-start // b) * b or b, stop, b)) if (stop - start) // b <= MAX_BORDERS else ()
        for (start, stop), b in zip((rows, columns), plane.block, strict=True)
    )
    arrays = {
        "x": x,
        "codes": codes,
        "values": plane.values(codes),
        "dequantized": x_hat,
        "error": x - x_hat,
        "scale": scale,
        "zero_point": zero_point,
        "row": row.to(torch.int32),
        "column": column.to(torch.int32),
    }
    drawn = {name: np.ascontiguousarray(array.cpu().numpy()) for name, array in arrays.items()}
    return MapData(**drawn, rows=rows, columns=columns, step=step, borders=(borders[0], borders[1]))


def box_of_blocks(result: Quantized) -> Shape:
    """The extent of a block along each axis of x; 1 along each where runs over the ends of rows are no boxes."""
    if isinstance(result.scheme.granularity, PerFlatGroup):
        return as_boxes((), result.block[0], tuple(result.x.shape))[1]
    return result.block


def _plane(result: Quantized, view: View) -> _Plane:
    x, codes, scale, zero_point = result.x, result.codes, result.scale, result.params.zero_point
    shape, block = tuple(x.shape), result.block
    number = scale if result.kept.number is None else result.kept.number  # or what nobody reads
    if isinstance(result.scheme.granularity, PerFlatGroup):
        (scale, zero_point, number), block = as_boxes((scale, zero_point, number), block[0], shape)
    whole = [x, codes, scale, zero_point, number]
    if x.dim() < 2:
        return _drawn([t.reshape(1, -1) for t in whole], (1, block[0] if block else 1), result)
    down, across = _axes(view, x.dim())
    others = [i for i in range(x.dim()) if i not in (down, across)]
    index = view.index or (0,) * len(others)
    if len(index) != len(others) or any(not 0 <= n < shape[i] for n, i in zip(index, others, strict=True)):
        raise QuantError(
            f"The view's index {index} is not on the axes {others} of a tensor of shape {shape}."
        )
    at: dict[int, int] = dict(zip(others, index, strict=True))
    cut = tuple(at.get(i, slice(None)) for i in range(x.dim()))
    cut_grid = tuple(at[i] // block[i] if i in at else slice(None) for i in range(x.dim()))
    parts = [t[cut if t is x or t is codes else cut_grid] for t in whole]
    return _drawn([p.T for p in parts] if down > across else parts, (block[down], block[across]), result)


def _drawn(parts: list[Tensor], block: Span, result: Quantized) -> _Plane:
    """The plane of x, codes, scale, zero_point and what is kept."""
    x, codes, scale, zero_point, number = parts
    fmt, kept = result.scheme.format, result.kept.at(lambda _: number)
    table = None if isinstance(fmt, IntFormat) else fmt.table
    return _Plane(x, codes, scale, zero_point, block, table, kept)


def _shown(plane: _Plane, rows: Span, columns: Span, step: Span) -> tuple[Tensor, Tensor]:
    """Return row and column of the element that each cell shows."""
    device = plane.x.device
    down = torch.arange(rows[0], rows[1], step[0], device=device)
    across = torch.arange(columns[0], columns[1], step[1], device=device)
    if step == (1, 1):
        row, column = torch.meshgrid(down, across, indexing="ij")
        return row, column
    places = torch.empty(len(down), len(across), dtype=torch.int64, device=device)
    band = max(1, CHUNK // ((columns[1] - columns[0]) * step[0]))  # cells high
    for first in range(0, len(down), band):
        start, stop = rows[0] + first * step[0], min(rows[0] + (first + band) * step[0], rows[1])
        size = _error_size(plane, (start, stop), columns)
        short = (-size.shape[0] % step[0], -size.shape[1] % step[1])
        # padded by -1, which no |error| is, so that the last cells find their worst among real elements
        size = torch.nn.functional.pad(size, (0, short[1], 0, short[0]), value=-1.0)
        # the worst column range of every row, then the worst row, then the column in it: one pass over all
        cells = size.view(-1, step[0], len(across), step[1])
        worst_row = cells.amax(-1).argmax(1)
        in_row = cells.gather(1, worst_row[:, None, :, None].expand(-1, 1, -1, step[1])).squeeze(1)
        places[first : first + band] = worst_row * step[1] + in_row.argmax(-1)
    return down[:, None] + places // step[1], across + places % step[1]


def _error_size(plane: _Plane, rows: Span, columns: Span) -> Tensor:
    """|x - x̂| of a part of the plane."""
    box = (slice(*rows), slice(*columns))
    row = torch.arange(*rows, device=plane.x.device) // plane.block[0]
    column = torch.arange(*columns, device=plane.x.device) // plane.block[1]

    def gathered(parameters: Tensor) -> Tensor:
        # an axis with a single block broadcasts; gathering for every element is what costs
        part = parameters.index_select(0, row) if parameters.shape[0] > 1 else parameters
        return part.index_select(1, column) if part.shape[1] > 1 else part

    return plane.dequantized(plane.codes[box], gathered).sub_(plane.x[box]).abs_()


def _axes(view: View, rank: int) -> Span:
    down, across = view.axes or (rank - 2, rank - 1)
    if not (0 <= down < rank and 0 <= across < rank and down != across):
        raise QuantError(
            f"The view's axes {(down, across)} are not two different axes of a tensor of rank {rank}."
        )
    return down, across


def _span(span: Span | None, length: int, what: str) -> Span:
    if span is None:
        return 0, length
    start, stop = span
    if not 0 <= start < stop <= length:
        raise QuantError(
            f"The {what} {start}:{stop} are not within 0:{length}; give a start below a stop, both inside."
        )
    return start, stop
