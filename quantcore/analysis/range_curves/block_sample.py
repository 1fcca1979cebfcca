"""The blocks of a tensor whose error is measured for many ranges, grouped by size.

A shorter last block counts as a block. If there are more than `MAX_ELEMENTS` elements, a regular sample is
measured: whole blocks if there are enough, otherwise elements of every block, including its extremes.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantcore.analysis.blocks import elements_of
from quantcore.granularity import (
    block_shape,
    blocked_shape,
    grid_shape,
    regions,
    to_blocks,
)
from quantcore.numerics import CHUNK, as_float32, refuse_nonfinite
from quantcore.scheme import Scheme, check_supported

MAX_ELEMENTS = 1 << 19


@dataclass(frozen=True)
class MeasuredBlocks:
    """``block_groups``: for each block size, the measured blocks, of shape (blocks, elements per block).

    ``shape``: the tensor's; ``elements``, ``blocks``: how many there are, measured or not.
    """

    block_groups: list[Tensor]
    shape: tuple[int, ...]
    elements: int
    blocks: int

    @property
    def elements_measured(self) -> int:
        """How many elements are measured."""
        return sum(group.numel() for group in self.block_groups)

    @property
    def blocks_measured(self) -> int:
        """How many blocks are measured."""
        return sum(len(group) for group in self.block_groups)


def measured_blocks(x: Any, scheme: Scheme, position: tuple[int, ...] | None = None) -> MeasuredBlocks:
    """Return the blocks of x, or only the one at ``position`` in their grid.

    Raises:
        QuantError: the scheme does not fit x, x contains NaN or infinity, or there is no such block.
    """
    x = as_float32(x)
    check_supported(scheme, tuple(x.shape))
    refuse_nonfinite(x, "an error curve")
    if position is not None:
        part = elements_of(x, scheme.granularity, position).reshape(1, -1)
        return MeasuredBlocks([_thinned(part, part.numel())], tuple(x.shape), part.numel(), 1)
    shape = blocked_shape(scheme.granularity, tuple(x.shape))
    block = block_shape(scheme.granularity, tuple(x.shape))
    x_blocked, grid = x.reshape(shape), grid_shape(shape, block)
    boxes = regions(shape, block, CHUNK, whole_blocks=True)
    block_groups = [
        _thinned(to_blocks(x_blocked[box.elements], box.block), x_blocked.numel()) for box in boxes
    ]
    return MeasuredBlocks(_joined(block_groups), tuple(x.shape), x_blocked.numel(), math.prod(grid))


def _thinned(blocks: Tensor, elements: int) -> Tensor:
    """A regular sample of the blocks, or of the elements of every block with its extremes."""
    if elements <= MAX_ELEMENTS:
        return blocks
    step = -(-elements // MAX_ELEMENTS) | 1  # odd, so that the sample covers all columns of most tensors
    if len(blocks) >= step:
        return blocks[::step].contiguous()
    extremes = (blocks.amin(-1, keepdim=True), blocks.amax(-1, keepdim=True))
    return torch.cat([blocks[:, ::step], *extremes], -1)


def _joined(block_groups: list[Tensor]) -> list[Tensor]:
    sizes = dict.fromkeys(group.shape[1] for group in block_groups)
    return [torch.cat([group for group in block_groups if group.shape[1] == size]) for size in sizes]
