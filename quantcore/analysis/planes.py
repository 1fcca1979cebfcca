"""Which plane of a tensor a view shows, and which of its elements a reduced map shows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.numerics import CHUNK
from quantcore.qparams import Dequantizer, unscale
from quantcore.quantization import Quantized

Span = tuple[int, int]
Places = tuple[Tensor, Tensor]
Place = TypeVar("Place", int, str)


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


def drawn_plane(parts: list[Tensor], block: Span, result: Quantized) -> Plane:
    """Return the plane made of x, codes, scale, zero_point and the dequantizer's numbers."""
    x, codes, scale, zero_point, number = parts
    fmt, kept = result.scheme.format, result.dequantizer.at(lambda _: number)
    return Plane(x, codes, scale, zero_point, block, fmt.table, kept)


def extreme(plane: Plane, rows: Span, columns: Span, step: Span) -> tuple[Places, Places]:
    """Return the places of the elements with the largest |x| and with the largest |error| in each box.

    Both are (row, column) in the plane, 2-D, one cell per box of ``step`` elements (down, across).
    """
    largest, worst = extreme_of(
        lambda part: (plane.x[slice(*part), slice(*columns)].abs(), _error_size(plane, part, columns)),
        rows, columns, step, plane.x.device,
    )  # fmt: skip
    return largest, worst


def extreme_difference(plane: Plane, other: Plane, rows: Span, columns: Span, step: Span) -> Places:
    """Return, like `extreme`, where |error| differs most from that of another result of the same x."""
    (place,) = extreme_of(
        lambda part: ((_error_size(plane, part, columns) - _error_size(other, part, columns)).abs_(),),
        rows, columns, step, plane.x.device,
    )  # fmt: skip
    return place


def extreme_of(
    sizes: Callable[[Span], tuple[Tensor, ...]],
    rows: Span,
    columns: Span,
    step: Span,
    device: torch.device,
) -> list[Places]:
    """Return where each size is largest in each box; ``sizes`` computes sizes such as |x| for some rows."""
    down = torch.arange(rows[0], rows[1], step[0], device=device)
    across = torch.arange(columns[0], columns[1], step[1], device=device)
    band = max(1, CHUNK // ((columns[1] - columns[0]) * step[0]))  # height in cells
    found: list[list[Tensor]] = []
    for first in range(0, len(down), band):
        part = (rows[0] + first * step[0], min(rows[0] + (first + band) * step[0], rows[1]))
        found.append([_largest(size, step) for size in sizes(part)])
    inside = [torch.cat(parts) for parts in zip(*found, strict=True)]
    return [(down[:, None] + i // step[1], across + i % step[1]) for i in inside]


def _largest(size: Tensor, step: Span) -> Tensor:
    """Return where the largest element of each box of ``step`` elements is, in row-major order."""
    short = (-size.shape[0] % step[0], -size.shape[1] % step[1])
    if any(short):  # padding with -1, below any |x|, is never the largest
        size = torch.nn.functional.pad(size, (0, short[1], 0, short[0]), value=-1.0)
    # the largest of each column of a box, then the column that contains the largest of all, then its row: the
    # only pass over all elements runs along rows, in memory order
    bands = size.view(-1, step[0], size.shape[1])
    across = torch.arange(0, size.shape[1], step[1], device=size.device)
    column = bands.amax(1).view(len(bands), -1, step[1]).argmax(-1)
    row = bands.gather(2, (across + column)[:, None].expand(-1, step[0], -1)).mT.contiguous().argmax(-1)
    return row * step[1] + column


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
