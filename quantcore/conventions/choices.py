"""What each choice of a convention means, and the values it can have.

With N = qmax - qmin, and (low, high) the range that the range setting found:

==============================  ======================================================================
choice                          values, the textbook's first
==============================  ======================================================================
kernel                          "A" round(x/s)+z · "B" round(x·(1/s))+z · "C" round(x/s+z) ·
                                "D" round(x·(1/s)+z) · "E" round(fma(x, 1/s, z)) ·
                                "F" round(x·(1/s)+(z+½)) · "G" round((x-z)·(1/s)+½), both to be cut off
                                (rounding="toward_zero"); see `kernels`
rounding                        "half_even" · "half_away" · "half_up" · "floor" · "ceil" ·
                                "toward_zero" · "stochastic", or with a seed "stochastic_7"; of codes,
                                the zero_point is always rounded half to even
overflow                        "saturate" codes are clamped · "wrap" modulo 2^bits, a cast without clamp
nan                             "refuse" NaN and infinity in x · the code that NaN becomes: "zero" ·
                                "qmin" · "qmax" · "undefined" (NaN stays NaN there; stored here as 0)
nan_value                       what NaN becomes in a small float that has none, with the sign of the NaN
cast                            "none" · the integer that the rounded value is cast to before it is
                                clamped, where a value too large becomes the lowest: "int64" after z is
                                added · "int32" before, so that adding a negative z wraps around ·
                                "low_bits" int32, of which the lowest bits are kept: 0
zero_in_range                   "both" low = min(low, 0), high = max(high, 0) · "low" only that · "no"
range_overflow                  "split" high/N - low/N where high - low overflows · "infinite"
finite_range                    infinite ends become the largest float32
widen_range                     a range too narrow for smallest_scale is widened by N·smallest_scale
smallest_range                  what max|x|, or high - low, is raised to
symmetric_scale                 "positive_steps" max|x| / (2^(bits-1)-1), of a float format max|x| / its max · "half_range" max|x| / (N/2) ·
                                "whole_range" (max|x| + max|x|) / N · "larger_side" the larger of
                                low/qmin, high/qmax · "regridded" the larger of -low/ceil(N/2),
                                high/floor(N/2), then (floor(N/2)·d + ceil(N/2)·d) / N · "largest"
                                max|x| itself · "half_codes" max|x| / 2^(bits-1) · "signed_extreme" the element of the largest magnitude, of
                                several the first, / -2^(bits-1): may be negative · powers of two
                                of blocks, see `scales_of_floats`: "power_floor" · "power_log2_floor" ·
                                "power_log2_wrapped" · "power_even" · "power_rounded" ·
                                "power_rounded_e2m1" · "power_ceil" · "power_log2_ceil"
inverse                         "of_scale" 1/s · "of_range" symmetric: (what max|x| is divided by) · (1/max|x|),
                                rounded twice and kept beside s (of "half_codes" 2^bits · (1/(2·max|x|))) ·
                                "of_levels" of scales that are quantized: (1 / the scale of the scales) / the
                                value of the scale's code
bad_inverse                     of an inverse of the range: "kept" · "one" NaN and infinity become 1
divisor                         of numbers that are quantized as scales: x is divided by it before all else, and
                                max|x| by the format's max and by it (NVFP4's 6)
center                          of such numbers: "none" · "mean" their mean is taken off before all else, and
                                added again last
least_value                     of such numbers: what smaller unclamped values are raised to
zero_value                      of such numbers: what those that come to 0 are instead, a value of the format
asymmetric_scale                "range" (high - low) / N · "inverse_range" see `scales.inverse_range`
narrow_scale_bits               signed widths whose symmetric scale leaves out the lowest code
scale_precision                 "float32" · "float64", then cast
coded_with                      "stored" codes are found with the parameters as they are stored · "raw" with
                                what they were before
zero_scale                      where a stored scale is 0: "zero_codes" every code is that of 0 · "kept" x is
                                divided by it
coded_least                     what a stored scale of 2^-127 counts as when x is divided by it; 0: itself
coded_smallest                  what smaller scales count as when x is divided by them
short_block                     "as_others" · "divided" the last block, where it is shorter than the others, is
                                divided by its scale, which is raised to coded_smallest
smallest_scale, replacement     a scale below the first becomes the second
bad_scale                       "kept" · refused are "nan" · "nonfinite"
zero_point                      "integer", in the format · "float" -low·(1/s) · "float_rounded" ·
                                "shift" low itself, and dequantized is q·s + z; stored as the scales are
zero_point_order                "round_quotient" qmin - round(low/s) · "round_difference" round(qmin - low/s)
zero_point_precision            "float32" · "float64"
zero_point_scale                "final" · "raw": before it was cast or replaced
replaced_zero_point             of a replaced scale: "computed" · "zero" · "zero_if_asymmetric"
nan_zero_point                  "lowest" -2^31 · "zero" · "wrapped": -2^31 taken from qmin in int32
unsigned_symmetric_zero_point   "middle" 2^(bits-1) · "observer" that for 8 and 16 bits, else
                                floor((qmin+qmax)/2) · "zero"
decoding                        "scaled" float32(q - z)·s · "divided" q / (the inverse kept) · "of_largest"
                                (q · max|x|) · float32(1 / the format's max)
code_bits                       what a code takes up where it is packed by other than whole bits; 0: the format's
                                width
==============================  ======================================================================
"""

from typing import Literal

Kernel = Literal["A", "B", "C", "D", "E", "F", "G"]
Overflow = Literal["saturate", "wrap"]
Nan = Literal["refuse", "zero", "qmin", "qmax", "undefined"]
Cast = Literal["none", "int32", "int64", "low_bits"]
ZeroInRange = Literal["both", "low", "no"]
RangeOverflow = Literal["split", "infinite"]
SymmetricScale = Literal[
    "positive_steps",
    "half_range",
    "whole_range",
    "larger_side",
    "regridded",
    "largest",
    "half_codes",
    "signed_extreme",
    "power_floor",
    "power_log2_floor",
    "power_log2_wrapped",
    "power_even",
    "power_rounded",
    "power_rounded_e2m1",
    "power_ceil",
    "power_log2_ceil",
]
Inverse = Literal["of_scale", "of_range", "of_levels"]
BadInverse = Literal["kept", "one"]
Center = Literal["none", "mean"]
AsymmetricScale = Literal["range", "inverse_range"]
Precision = Literal["float32", "float64"]
BadScale = Literal["kept", "nan", "nonfinite"]
CodedWith = Literal["stored", "raw"]
ZeroScale = Literal["zero_codes", "kept"]
ShortBlock = Literal["as_others", "divided"]
ZeroPoint = Literal["integer", "float", "float_rounded", "shift"]
ZeroPointOrder = Literal["round_quotient", "round_difference"]
ZeroPointScale = Literal["final", "raw"]
ReplacedZeroPoint = Literal["computed", "zero", "zero_if_asymmetric"]
NanZeroPoint = Literal["lowest", "zero", "wrapped"]
UnsignedSymmetricZeroPoint = Literal["middle", "observer", "zero"]
Decoding = Literal["scaled", "divided", "of_largest"]
