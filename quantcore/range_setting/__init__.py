"""Range settings: how the range of the codes is chosen."""

from typing import get_args

from quantcore import notation
from quantcore.range_setting.basic import (
    MIN_MAX,
    Fixed,
    Given,
    MinMax,
    Percentile,
)
from quantcore.range_setting.entropy import MAX_BINS, Entropy
from quantcore.range_setting.ggml import (
    WEIGHTS,
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
from quantcore.range_setting.protocol import Range, Task, parts
from quantcore.range_setting.statistics import MAX_CANDIDATES, AbsMean, MeanStd, MinMse
from quantcore.range_setting.stored import Stored

RangeSetting = (
    MinMax
    | Percentile
    | Fixed
    | Given
    | MinMse
    | Entropy
    | MeanStd
    | AbsMean
    | HalfQuadratic
    | MakeQkx2
    | MakeQkx3
    | MakeQ3
    | MakeQx
    | MakeQp
    | MakeIq4Nl
    | MaxScale
)
# by the name in the text of a scheme
RANGE_SETTINGS: dict[str, type[RangeSetting]] = {
    notation.snake_case(kind.__name__): kind for kind in get_args(RangeSetting)
}
# the settings that need no further input, with their usual arguments
METHODS: tuple[RangeSetting, ...] = (
    MIN_MAX,
    MinMse(),
    Percentile(99),
    Percentile(99.9),
    Entropy(2048),
    MeanStd(3),
    AbsMean(),
    HalfQuadratic(),
)

__all__ = [
    "AbsMean",
    "Entropy",
    "Fixed",
    "Given",
    "HalfQuadratic",
    "MAX_BINS",
    "MAX_CANDIDATES",
    "METHODS",
    "MIN_MAX",
    "MakeIq4Nl",
    "MakeQ3",
    "MakeQkx2",
    "MakeQkx3",
    "MakeQp",
    "MakeQx",
    "MaxScale",
    "MeanStd",
    "MinMax",
    "MinMse",
    "Percentile",
    "RANGE_SETTINGS",
    "Range",
    "RangeSetting",
    "Search",
    "Stored",
    "Task",
    "Trial",
    "WEIGHTS",
    "parts",
    "span",
    "total",
]
