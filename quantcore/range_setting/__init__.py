"""Range settings: how the range of the codes is chosen."""

from quantcore import notation
from quantcore.range_setting.basic import MIN_MAX, Fixed, Given, MinMax, Percentile, Stored
from quantcore.range_setting.entropy import Entropy
from quantcore.range_setting.ggml import (
    GroupScales,
    MakeIq4Nl,
    MakeQ3,
    MakeQkx2,
    MakeQkx3,
    MakeQp,
    MakeQx,
    MaxScale,
    Search,
    Trial,
    span,
    total,
)
from quantcore.range_setting.half_quadratic import HalfQuadratic
from quantcore.range_setting.protocol import Control, Range, RangeSetting, Task, parts
from quantcore.range_setting.statistics import AbsMean, MeanStd, MinMse

# by the name in the text of a scheme, in the order in which pages list them
RANGE_SETTINGS: dict[str, type[RangeSetting]] = {
    notation.snake_case(kind.__name__): kind
    for kind in (
        MinMax, MinMse, Percentile, Entropy, MeanStd, AbsMean, HalfQuadratic,
        MakeQkx2, MakeQkx3, MakeQ3, MakeQx, MakeQp, MakeIq4Nl, MaxScale, Fixed, Given,
    )
}  # fmt: skip
# the settings that need no further input, with their usual arguments
METHODS = tuple(kind(*arguments) for kind in RANGE_SETTINGS.values() for arguments in kind.usual)
