"""A plane of a result: two axes of its tensors, and which elements of it a reduced map shows."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.formats import IntFormat
from quantcore.numerics import CHUNK
from quantcore.qparams import Kept, unscale
from quantcore.quantization import Quantized

Span = tuple[int, int]
Places = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Plane:
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


def drawn_plane(parts: list[Tensor], block: Span, result: Quantized) -> Plane:
    """The plane of x, codes, scale, zero_point and what is kept."""
    x, codes, scale, zero_point, number = parts
    fmt, kept = result.scheme.format, result.kept.at(lambda _: number)
    table = None if isinstance(fmt, IntFormat) else fmt.table
    return Plane(x, codes, scale, zero_point, block, table, kept)


def extreme(plane: Plane, rows: Span, columns: Span, step: Span) -> tuple[Places, Places]:
    """Return where the elements with the largest |x| and the largest |error| of each box stand.

    Both are row and column in the plane, 2-D, a cell for each box of ``step`` elements (down, across).
    """
    largest, worst = _extreme(
        lambda part: (plane.x[slice(*part), slice(*columns)].abs(), _error_size(plane, part, columns)),
        rows, columns, step, plane.x.device,
    )  # fmt: skip
    return largest, worst


def extreme_difference(plane: Plane, other: Plane, rows: Span, columns: Span, step: Span) -> Places:
    """Return where |error| and the |error| of another result of the same x differ most, as `extreme` has it."""
    (place,) = _extreme(
        lambda part: ((_error_size(plane, part, columns) - _error_size(other, part, columns)).abs_(),),
        rows, columns, step, plane.x.device,
    )  # fmt: skip
    return place


def _extreme(
    sizes: Callable[[Span], tuple[Tensor, ...]],
    rows: Span,
    columns: Span,
    step: Span,
    device: torch.device,
) -> list[Places]:
    """Row and column of the largest of each size in each box; ``sizes`` finds them for some rows."""
    down = torch.arange(rows[0], rows[1], step[0], device=device)
    across = torch.arange(columns[0], columns[1], step[1], device=device)
    band = max(1, CHUNK // ((columns[1] - columns[0]) * step[0]))  # cells high
    found: list[list[Tensor]] = []
    for first in range(0, len(down), band):
        part = (rows[0] + first * step[0], min(rows[0] + (first + band) * step[0], rows[1]))
        found.append([_largest(size, step) for size in sizes(part)])
    inside = [torch.cat(parts) for parts in zip(*found, strict=True)]
    return [(down[:, None] + i // step[1], across + i % step[1]) for i in inside]


def _largest(size: Tensor, step: Span) -> Tensor:
    """Where in each box of ``step`` elements the largest stands, counted in row-major order."""
    short = (-size.shape[0] % step[0], -size.shape[1] % step[1])
    if any(short):  # padded by -1, which no |x| is: the last boxes find their largest among real elements
        size = torch.nn.functional.pad(size, (0, short[1], 0, short[0]), value=-1.0)
    # the largest of each column of a box, then the column with the largest, then the row in it: the one pass
    # over all elements runs along rows, as they lie in memory
    bands = size.view(-1, step[0], size.shape[1])
    across = torch.arange(0, size.shape[1], step[1], device=size.device)
    column = bands.amax(1).view(len(bands), -1, step[1]).argmax(-1)
    row = bands.gather(2, (across + column)[:, None].expand(-1, step[0], -1)).mT.contiguous().argmax(-1)
    return row * step[1] + column


def _error_size(plane: Plane, rows: Span, columns: Span) -> Tensor:
    """|x - x̂| of a part of the plane."""
    box = (slice(*rows), slice(*columns))
    row = torch.arange(*rows, device=plane.x.device) // plane.block[0]
    column = torch.arange(*columns, device=plane.x.device) // plane.block[1]

    def gathered(parameters: Tensor) -> Tensor:
        # an axis with a single block broadcasts; gathering for every element is what costs
        part = parameters.index_select(0, row) if parameters.shape[0] > 1 else parameters
        return part.index_select(1, column) if part.shape[1] > 1 else part

    return plane.dequantized(plane.codes[box], gathered).sub_(plane.x[box]).abs_()
