"""The lowest and highest elements of every block, for blocks that are boxes of the tensor."""

import math

import torch
from torch import Tensor

from quantcore.granularity.kinds import split_axes, to_blocks
from quantcore.granularity.layout import Blocks
from quantcore.numerics import CHUNK, like, wide, widened

_FAST_RUN = 32  # torch reduces shorter runs one by one
_LARGE = 256  # elements of a block, from which it is cut
_TALL = 64  # rows, from which NumPy looks down columns in half of the time


def ends(x: Tensor, blocks: Blocks, of_magnitude: bool = False, first: bool = False) -> tuple[Tensor, Tensor]:
    """Return the lowest and the highest element of every block, in block form.

    Args:
        of_magnitude: whether -max|x| and max|x| do as well: they can be found faster.
        first: whether of two ends of equal magnitude the first is kept, and the other is 0.
    """
    blocked = blocks.view(x)
    low, high = (torch.empty(blocks.grid, dtype=wide(x.dtype), device=x.device) for _ in range(2))
    # the ends of a large block are those of its parts, which fit the cache
    in_parts = not first and blocks.count * _LARGE <= x.numel()
    if in_parts:
        low, high = low.fill_(math.inf), high.fill_(-math.inf)
    for region in blocks.regions(CHUNK, whole_blocks=not in_parts):
        values = widened(blocked[region.elements])
        found = (magnitude(values, region.block) if of_magnitude else None) or extremes(values, region.block)
        if first:
            found = first_extreme(values, region.block, *found)
        for every, part, extend in zip((low, high), found, (torch.minimum, torch.maximum), strict=True):
            target = every[region.grid]
            part = part.reshape(target.shape)
            target.copy_(extend(target, part) if in_parts else part)
    return low, high


def extremes(x: Tensor, block: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return the result of `MinMax` on ``to_blocks(x, block)``, without copying x."""
    low = high = split_axes(x, block)
    is_plain = x.is_cpu and x.dtype == torch.float32 and not x.requires_grad
    if is_plain and x.ndim > 1 and math.prod(block) == block[0] >= _TALL:
        lines, shape = x.numpy().reshape(len(x) // block[0], block[0], -1), low[:, :1].shape
        return torch.from_numpy(lines.min(1).reshape(shape)), torch.from_numpy(lines.max(1).reshape(shape))
    for axis in reversed(range(len(block))):
        if block[axis] > 1:
            low, high = low.amin(2 * axis + 1, keepdim=True), high.amax(2 * axis + 1, keepdim=True)
    return low, high


def magnitude(x: Tensor, block: tuple[int, ...]) -> tuple[Tensor, Tensor] | None:
    """Return -max|x| and max|x| as `extremes` does if blocks are short runs along the last axis, else None.

    Runs too short for a fast reduction are paired, with the second one negated: the maximum of a pair belongs
    to the first run, and its minimum to the second.
    """
    n = block[-1] if block else 1
    paired = n < _FAST_RUN
    if n == 1 or n > 2 * _FAST_RUN or math.prod(block[:-1]) > 1 or (paired and x.shape[-1] % (2 * n)):
        return None
    sizes = torch.abs(x, out=like(x, "sizes", x.dtype))
    if not paired:
        largest = split_axes(sizes, block).amax(-1, keepdim=True)
        return -largest, largest
    signs = x.new_ones(2 * n)
    signs[n:] = -1.0
    pairs = sizes.view(*x.shape[:-1], -1, 2 * n).mul_(signs)
    top = pairs.amax(-1)
    if bool(top.amax().isnan()):  # the NaN may be in either of two blocks
        return None
    largest = torch.stack([top, -pairs.amin(-1)], -1)
    return -largest, largest


def first_extreme(x: Tensor, block: tuple[int, ...], low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Of two extremes of equal magnitude, keep the first and replace the other with 0."""
    tied = (low == -high).reshape(-1)
    if not tied.any():
        return low, high
    blocks = to_blocks(x, block)[tied]
    first = blocks.gather(1, blocks.abs().argmax(1, keepdim=True)).reshape(-1)
    low, high = low.clone(), high.clone()
    low.view(-1)[tied], high.view(-1)[tied] = first.clamp(max=0), first.clamp(min=0)
    return low, high
