"""Limits that the calls of several libraries share."""

from quantcore.conventions.record import Limit

TENSOR, CHANNEL, GROUP, BLOCK, FLAT_GROUP = (
    "per_tensor",
    "per_channel",
    "per_group",
    "per_block",
    "per_flat_group",
)
SIGNED_SYMMETRIC = Limit("kind", ("signed symmetric",), "has signed symmetric codes only")
EIGHT_BITS = Limit("bits", (8,), "has 8 bits")
BOXES = Limit("granularity", (TENSOR, CHANNEL, GROUP, BLOCK), "has no groups over the ends of rows")
DIVIDES_AXIS = Limit("divides", (True,), "takes only blocks that divide the axis")
FLAT = Limit("granularity", (FLAT_GROUP,), "shares a scale among runs of the flattened tensor")
# groups of one row, as blocks of small floats are
ROW_GROUPS = (
    Limit("granularity", (GROUP,), "shares a scale among groups of one row"),
    Limit("group_axis", (-1,), "groups along the last axis only"),
    Limit("group_divides", (True,), "takes only groups that divide the last axis"),
)
EACH_ROW = (
    Limit("granularity", (CHANNEL,), "gives each row its scale"),
    Limit("channel_axis", (0,), "gives each row its scale: channels lie along axis 0"),
)
# what a float format's record has: no least scale, NaN where the library computes it
FLOATS = {"formats": ("float",), "nan": "undefined", "eps": 0.0, "eps_replacement": 0.0, "preset_only": True}
