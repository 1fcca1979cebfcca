"""Granularity: which elements share a scale, and the layout of these blocks."""

from quantcore.granularity.extremes import ends, extremes
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
    as_shape,
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
from quantcore.granularity.layout import Blocks, Region, block_name, shared_by
