"""The searches of ggml's quantizers."""

from quantcore.range_setting.ggml.arithmetic import Found, Trial, total
from quantcore.range_setting.ggml.scale_settings import MakeQp, MaxScale
from quantcore.range_setting.ggml.search import Search, span
from quantcore.range_setting.ggml.settings import MakeIq4Nl, MakeQ3, MakeQkx2, MakeQkx3, MakeQx
from quantcore.range_setting.ggml.weights import WEIGHTS, Weighting

__all__ = [
    "WEIGHTS",
    "Found",
    "MakeIq4Nl",
    "MakeQ3",
    "MakeQkx2",
    "MakeQkx3",
    "MakeQp",
    "MakeQx",
    "MaxScale",
    "Search",
    "Trial",
    "Weighting",
    "span",
    "total",
]
