"""The searches of ggml's quantizers."""

from quantcore.range_setting.ggml.arithmetic import WEIGHTS, GroupScales, Trial, Weighting, total
from quantcore.range_setting.ggml.scales import MakeQp, MaxScale
from quantcore.range_setting.ggml.search import Search, span
from quantcore.range_setting.ggml.settings import MakeIq4Nl, MakeQ3, MakeQkx2, MakeQkx3, MakeQx
