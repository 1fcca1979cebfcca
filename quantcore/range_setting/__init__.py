"""Range settings: how the range of the codes is chosen."""

from quantcore.range_setting.basic import (
    MIN_MAX,
    RANGE_SETTINGS,
    Fixed,
    Given,
    MinMax,
    Percentile,
    RangeSetting,
)
from quantcore.range_setting.entropy import MAX_BINS, Entropy
from quantcore.range_setting.half_quadratic import HalfQuadratic
from quantcore.range_setting.protocol import Range, Task, parts
from quantcore.range_setting.statistics import MAX_CANDIDATES, AbsMean, MeanStd, MinMse

__all__ = [
    "AbsMean",
    "Entropy",
    "Fixed",
    "Given",
    "HalfQuadratic",
    "MAX_BINS",
    "MAX_CANDIDATES",
    "MIN_MAX",
    "MeanStd",
    "MinMax",
    "MinMse",
    "Percentile",
    "RANGE_SETTINGS",
    "Range",
    "RangeSetting",
    "Task",
    "parts",
]
