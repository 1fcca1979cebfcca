"""One block: its elements and how many of them are clipped; and the error of every block."""

import math

import torch
from torch import Tensor

from quantcore.analysis.metrics import x_hat_of
from quantcore.errors import QuantError
from quantcore.granularity import Blocks, Granularity, split_axes
from quantcore.numerics import CHUNK
from quantcore.quantization import Quantized, check_result, unclamped


def elements_of(x: Tensor, granularity: Granularity, position: tuple[int, ...]) -> Tensor:
    """Return the elements of one block of x, in the block's shape: a view if the memory layout allows it.

    Raises:
        QuantError: the granularity does not fit x, or there is no block at ``position`` in the grid.
    """
    blocks = Blocks.of(granularity, tuple(x.shape))
    grid = blocks.grid
    if len(position) != len(grid) or any(not 0 <= p < g for p, g in zip(position, grid, strict=True)):
        last = tuple(g - 1 for g in grid)
        raise QuantError(f"There is no block {position}; choose one from {(0,) * len(grid)} to {last}.")
    return blocks.view(x)[tuple(slice(*span) for span in blocks.bounds(position))]


def clipped(result: Quantized, position: tuple[int, ...]) -> int:
    """Return how many elements of a block are clipped, as `metrics.Report` counts them."""
    own, (least, most) = result.blocks.bounds(position), result.scheme.format.bounds
    found = 0
    for region, values in unclamped(result.given, result.params, result.computed):
        shape = [e.stop - e.start for e in region.elements]
        inside = [
            slice(max(start, e.start) - e.start, max(0, min(stop, e.stop) - e.start))
            for (start, stop), e in zip(own, region.elements, strict=True)
        ]
        part = values.view(shape)[tuple(inside)]
        found += int(((part < least) | (part > most)).count_nonzero())
    return found


def block_errors(result: Quantized) -> Tensor:
    """Return the MSE of every block, float64, in block form.

    >>> import quantcore as qc
    >>> x = [[0.5, -1.0, 2.0], [40.0, 0.1, 30.0]]
    >>> qc.block_errors(qc.apply(x, qc.Scheme.parse("int4 per_channel(0)")))  # one per row
    tensor([[0.0085],
            [0.6836]], dtype=torch.float64)
    """
    check_result(result, "block_errors")
    total = torch.zeros(result.scale.shape, dtype=torch.float64, device=result.x.device)
    count = torch.zeros_like(total)
    x = result.x.reshape(result.blocked_shape)
    for region in result.blocks.regions(CHUNK):
        error = split_axes(x[region.elements], region.block) - x_hat_of(result, region)
        inner = tuple(range(1, 2 * len(region.block), 2))
        square = error.double().square_()
        total[region.grid] += square.sum(inner) if inner else square
        count[region.grid] += math.prod(region.block)
    return total / count
