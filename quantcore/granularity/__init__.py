"""Granularity: which elements share a scale, and the layout of these blocks."""

from quantcore.granularity.block_names import block_name
from quantcore.granularity.extremes import extremes, first_extreme, magnitude
from quantcore.granularity.kinds import (
    GRANULARITIES,
    PER_TENSOR,
    Granularity,
    PerBlock,
    PerChannel,
    PerFlatGroup,
    PerGroup,
    PerTensor,
    Shape,
    as_boxes,
    block_bounds,
    block_shape,
    blocked_shape,
    cells_of,
    from_blocks,
    grid_shape,
    split_axes,
    spread,
    to_blocks,
)
from quantcore.granularity.layout import Blocks
from quantcore.granularity.tiles import Region, regions

__all__ = [
    "Blocks",
    "GRANULARITIES",
    "Granularity",
    "PER_TENSOR",
    "PerBlock",
    "PerChannel",
    "PerFlatGroup",
    "PerGroup",
    "PerTensor",
    "Region",
    "Shape",
    "as_boxes",
    "block_bounds",
    "block_name",
    "block_shape",
    "cells_of",
    "extremes",
    "first_extreme",
    "from_blocks",
    "grid_shape",
    "blocked_shape",
    "magnitude",
    "regions",
    "split_axes",
    "spread",
    "to_blocks",
]
