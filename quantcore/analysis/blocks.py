"""One block by itself: what it is called, its elements, how many of them are clipped."""

from torch import Tensor

from quantcore.granularity import block_bounds, block_name
from quantcore.qparams import ends
from quantcore.quantization import Quantized, unclamped

Position = tuple[int, ...]


def bounds(result: Quantized, position: Position) -> tuple[tuple[int, int], ...]:
    """Return (start, stop) along each axis of `Quantized.blocked_shape` of the block at ``position``."""
    return block_bounds(result.blocked_shape, result.block, position)


def elements(result: Quantized, position: Position) -> Tensor:
    """Return the elements of x that share the scale at ``position``: a view, with the axes of `blocked_shape`."""
    return result.x.reshape(result.blocked_shape)[tuple(slice(*b) for b in bounds(result, position))]


def name(result: Quantized, position: Position) -> str:
    """Return what a person calls a block, see `block_name`."""
    return block_name(bounds(result, position), tuple(result.x.shape))


def clipped(result: Quantized, position: Position) -> int:
    """Return how many elements of a block are clipped, as `metrics.Report` counts them."""
    own, (least, most) = bounds(result, position), ends(result.scheme.format)
    found = 0
    for region, values in unclamped(result.x, result.params, result.scheme):
        shape = [e.stop - e.start for e in region.elements]
        inside = [
            slice(max(start, e.start) - e.start, max(0, min(stop, e.stop) - e.start))
            for (start, stop), e in zip(own, region.elements, strict=True)
        ]
        part = values.view(shape)[tuple(inside)]
        found += int(((part < least) | (part > most)).count_nonzero())
    return found
