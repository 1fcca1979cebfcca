"""One block by itself: what it is called, its elements, how many of them are clipped."""

from torch import Tensor

from quantcore.boxes import unclamped
from quantcore.coding import ends
from quantcore.granularity import block_bounds
from quantcore.quantize import Quantized

Position = tuple[int, ...]


def bounds(result: Quantized, position: Position) -> tuple[tuple[int, int], ...]:
    """Return (start, stop) along each axis of `Quantized.laid_shape` of the block at ``position``."""
    return block_bounds(result.laid_shape, result.block, position)


def elements(result: Quantized, position: Position) -> Tensor:
    """Return the elements of x that share the scale at ``position``: a view, with the axes of `laid_shape`."""
    return result.x.reshape(result.laid_shape)[tuple(slice(*b) for b in bounds(result, position))]


def name(result: Quantized, position: Position) -> str:
    """Return what a person calls a block.

    Of a matrix ``row 1``, ``column 2``, ``row 1, columns 4–7`` or ``rows 0–1, columns 4–7``; of other ranks the
    indices on the axes that the block does not fill, such as ``index 3 on axis 0``; ``all of x`` of the only one.
    """
    if result.scale.numel() == 1:
        return "all of x"
    whole, found = result.laid_shape, bounds(result, position)
    if len(whole) != result.x.dim():  # runs over the ends of rows
        return f"elements {_span(*found[0])} in row-major order"
    partial = [i for i, (b, n) in enumerate(zip(found, whole, strict=True)) if b != (0, n)]
    if len(whole) == 1:
        return f"{_plural('element', *found[0])} {_span(*found[0])}"
    if len(whole) == 2:
        axes = ("row", "column")
        return ", ".join(f"{_plural(axes[i], *found[i])} {_span(*found[i])}" for i in partial)
    return ", ".join(
        f"{'index' if _one(*found[i]) else 'indices'} {_span(*found[i])} on axis {i}" for i in partial
    )


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


def _one(start: int, stop: int) -> bool:
    return stop - start == 1


def _span(start: int, stop: int) -> str:
    return str(start) if _one(start, stop) else f"{start}–{stop - 1}"


def _plural(what: str, start: int, stop: int) -> str:
    return what if _one(start, stop) else f"{what}s"
