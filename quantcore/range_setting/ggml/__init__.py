"""The searches of ggml's quantizers, as range settings that find the scale (and min) of a group.

Source: ggml 0.13.1, src/ggml-quants.c. All arithmetic is float32 in C's order, as in x86-64 builds without
fused multiply-add. A build that contracts a·b + c (most arm64 builds) writes about 0.2 % of the bytes
differently; that is not reproduced.
"""

from quantcore.range_setting.ggml.affine import MakeQkx2, MakeQkx3
from quantcore.range_setting.ggml.arithmetic import GroupScales, Trial, total
from quantcore.range_setting.ggml.scales import MakeQp, MaxScale
from quantcore.range_setting.ggml.search import Search, span
from quantcore.range_setting.ggml.symmetric import MakeIq4Nl, MakeQ3, MakeQx
