"""Limits that the calls of several libraries share."""

from quantcore.conventions.record import Limit

TENSOR, CHANNEL, GROUP, BLOCK, FLAT_GROUP = (
    "per_tensor",
    "per_channel",
    "per_group",
    "per_block",
    "per_flat_group",
)
SIGNED_SYMMETRIC = Limit("kind", ("signed symmetric",), "supports signed symmetric codes only")
EIGHT_BITS = Limit("bits", (8,), "supports 8 bits only")
BOXES = Limit(
    "granularity", (TENSOR, CHANNEL, GROUP, BLOCK), "does not support groups that cross row boundaries"
)
DIVIDES_AXIS = Limit("divides", (True,), "requires blocks that divide the axis")
FLAT = Limit("granularity", (FLAT_GROUP,), "uses one scale per run of the flattened tensor")
# groups within a row, like the blocks of small floats
ROW_GROUPS = (
    Limit("granularity", (GROUP,), "uses one scale per group within a row"),
    Limit("group_axis", (-1,), "groups along the last axis only"),
    Limit("group_divides", (True,), "requires groups that divide the last axis"),
)
EACH_ROW = (
    Limit("granularity", (CHANNEL,), "uses one scale per row"),
    Limit("channel_axis", (0,), "uses one scale per row, with channels along axis 0"),
)
# of records for float formats: no smallest scale, and NaN wherever the library computes it
FLOATS = {"formats": ("float",), "nan": "undefined", "eps": 0.0, "eps_replacement": 0.0, "preset_only": True}
