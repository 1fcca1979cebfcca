"""The mistakes by name, in the order of a lesson: first those of tables in print, then those of every day."""

from functools import partial

import torch
from torch import Tensor

from quantcore.formats import INT4, UINT8
from quantcore.mistakes import common, published
from quantcore.mistakes.record import Mistake
from quantcore.tensors import EXAMPLES


def _example(name: str) -> Tensor:
    return torch.from_numpy(EXAMPLES[name].load()).clone()


def _values(*rows: tuple[float, ...]) -> Tensor:
    return torch.tensor(rows)


_EXERCISE = partial(_example, "int8-exercise-4x4")
_FIVE = partial(_example, "given-parameters-5")
_TWELVE = partial(_example, "percentile-3x4")
_RANDN = partial(_example, "randn-seed-0-4x4")
# an activation after a ReLU: no value below 0
_ONE_SIDED = partial(_values, (0.0, 0.4, 1.2, 5.1), (2.6, 0.0, 3.3, 0.9), (4.2, 6.0, 0.1, 2.0))
_TWO_SIDED = partial(_values, (-0.4, 0.4, 1.2, 2.1), (1.6, 0.0, -0.3, 0.9), (-1.1, 3.0, 0.1, 2.0))
# near the middle between two of the 15 codes, where a first rounding tips the second
_NEAR_TIES = partial(
    _values, (1.0, 0.215, -0.36, 0.6), (-0.0715, 0.5, 0.3572, -0.93), (0.07, -0.64, 0.8, 0.786)
)
_TINY = partial(
    _values, (2e-6, -1.1e-6, 3e-7, 8e-7), (-1.7e-6, 5e-8, -6e-7, 1.3e-6), (9e-7, -2e-7, 1e-6, -4e-7)
)

_OUR_OWN = "The tensor is made up for this lesson."
_SAID = {
    name: f"Tensor and wrong table: {EXAMPLES[name].source}."
    for name in ("int8-exercise-4x4", "given-parameters-5", "percentile-3x4", "randn-seed-0-4x4")
}
_LINEAR = "(q - z) · s undoes round(x / s) + z: first take z off, then scale."

MISTAKES: dict[str, Mistake] = {
    "wraps-per-tensor": Mistake(
        "A scale for another range, then a cast",
        "The largest values matter: which of them kept their sign?",
        "(max - min) / 255 spans the codes only together with its zero_point. With zero_point 0 the largest value "
        "needs a code over 127, and the cast to int8 keeps its lowest 8 bits: 129 becomes -127.",
        "Symmetric codes need max|x| / 127: then no code lies beyond ±127.",
        _SAID["int8-exercise-4x4"],
        published.asymmetric_scale_then_cast,
        published.symmetric_scale_then_cast,
        _EXERCISE,
    ),
    "wraps-per-column": Mistake(
        "The same with one scale a column",
        "Look at the columns whose values are mostly of one sign.",
        "A column that is not centred around 0 has a small max - min, so its largest values need codes far over "
        "127. More scales, and a larger error than with one.",
        "max|column| / 127 for each column.",
        _SAID["int8-exercise-4x4"],
        published.asymmetric_scale_per_column,
        published.symmetric_scale_per_column,
        _EXERCISE,
    ),
    "wraps-per-group": Mistake(
        "The same with one scale for half of the columns",
        "Compare the signs of x and x̂.",
        "Each half of the columns has its own (max - min) / 255 and zero_point 0; what lies beyond 127 steps wraps.",
        "max|half| / 127 for each half of the columns.",
        _SAID["int8-exercise-4x4"],
        published.asymmetric_scale_per_half,
        published.symmetric_scale_per_half,
        _EXERCISE,
    ),
    "clamp-of-another-type": Mistake(
        "Clamped to 0..255, stored as int8",
        "All values of x are positive. And those of x̂?",
        "The clamp is that of uint8, the cast that to int8: every code over 127 wraps to code - 256.",
        "Clamp and cast must name the same type; here uint8.",
        _SAID["given-parameters-5"],
        published.clamp_to_bytes_cast_to_int8,
        published.clamp_to_bytes_cast_to_uint8,
        _FIVE,
    ),
    "range-without-minimum": Mistake(
        "Asymmetric in name only",
        "How far do the codes reach, up and down?",
        "The range is taken from 0 to max|x|, though x has negative values, and cut into 255 steps; the codes "
        "-128..127 then reach only half as far as max|x|, and both ends are clipped.",
        "The range goes from min to max, and the zero_point moves the codes there.",
        _SAID["percentile-3x4"],
        published.range_from_zero_up,
        published.range_from_low_to_high,
        _TWELVE,
    ),
    "percentile-of-signed-values": Mistake(
        "A percentile of x instead of |x|",
        "x̂ is close to x everywhere. Is every code an int8?",
        "The 99.9th percentile of x says nothing of the negative values. The largest of them needs a code below "
        "-128; no clamp, and codes kept as floats, hide it until they are stored.",
        "Take the percentile of |x|, and clamp what lies beyond.",
        _SAID["percentile-3x4"],
        published.percentile_of_x,
        published.percentile_of_magnitude,
        _TWELVE,
    ),
    "negatives-lost": Mistake(
        "Unsigned codes around 0",
        "Look at the values below 0.",
        "Codes 0..255 with zero_point 0 have none for a negative value: all of them become 0, as after a ReLU.",
        "The zero_point 128 puts 0 into the middle of the unsigned codes.",
        _SAID["randn-seed-0-4x4"],
        published.unsigned_without_middle,
        published.unsigned_around_middle,
        _RANDN,
        UINT8,
    ),
    "cast-without-clamp": Mistake(
        "A cast without a clamp",
        "The range is -1.5..1.5. What becomes of values outside?",
        "A value outside the range needs a code outside int8, and the cast keeps its lowest 8 bits: instead of the "
        "nearest end it lands anywhere, often with the other sign.",
        "Clamp to -128..127 before the cast: the value becomes the end of the range.",
        "Tensor: a notebook that compares ways to set the range.",
        common.cast_without_clamp,
        common.clamp_before_cast,
        _TWELVE,
    ),
    "zero-point-left-at-zero": Mistake(
        "The asymmetric scale with zero_point 0",
        "Which codes are never used, and which are used too often?",
        "(max - min) / 255 is the step of an asymmetric grid, but with zero_point 0 the codes -128..127 lie around "
        "0: of values from 0 to 6 the upper half is clipped, and half of the codes stay unused.",
        "zero_point = -128 - round(min / scale) moves the codes onto the range.",
        _OUR_OWN,
        common.zero_point_left_at_zero,
        common.zero_point_from_the_range,
        _ONE_SIDED,
    ),
    "zero-point-forgotten": Mistake(
        "The zero_point forgotten",
        "Is the error the same everywhere?",
        "The codes are right, but x̂ = q · s leaves every value too large by zero_point · s.",
        _LINEAR,
        _OUR_OWN,
        common.zero_point_forgotten,
        common.zero_point_subtracted,
        _TWO_SIDED,
        UINT8,
    ),
    "zero-point-added": Mistake(
        "Dequantized with the wrong sign",
        "Is the error the same everywhere?",
        "(q + z) · s shifts twice in the same direction: every value is too large by 2 · zero_point · s. Libraries "
        "that write offset = -z do add it; their offset is not your zero_point.",
        _LINEAR,
        _OUR_OWN,
        common.zero_point_added,
        common.zero_point_subtracted,
        _TWO_SIDED,
        UINT8,
    ),
    "zero-point-after-scale": Mistake(
        "Dequantized in the wrong order",
        "By how much are the values off, in units of x?",
        "q · s - z takes a number of codes off a value in units of x. With zero_point 0 nobody sees it.",
        _LINEAR,
        _OUR_OWN,
        common.zero_point_after_scale,
        common.zero_point_subtracted,
        _TWO_SIDED,
        UINT8,
    ),
    "clamp-in-place": Mistake(
        "A clamp that changes its input",
        "x̂ is the same on both sides. Is the error?",
        "clamp_ with an underscore writes into the caller's tensor. The error computed afterwards is that of the "
        "clipped tensor, and the clipping, the larger part, is gone from it.",
        "clamp without an underscore makes a new tensor.",
        "Tensor: a notebook that compares ways to set the range.",
        common.clamp_in_place,
        common.clamp_a_copy,
        _TWELVE,
    ),
    "quantized-twice": Mistake(
        "Quantized twice",
        "Which errors are larger than half a step?",
        "4 bits made from 8: the first rounding moves a value across the middle between two codes, and the second "
        "takes the further one. The error is more than half a step, which one rounding never gives.",
        "Quantize the original, once.",
        _OUR_OWN,
        common.eight_bits_then_four,
        common.four_bits_at_once,
        _NEAR_TIES,
        INT4,
    ),
    "truncated": Mistake(
        "Cut off instead of rounded",
        "Compare |x| with |x̂|.",
        "A cast to an integer cuts off what follows the point: x̂ is never further from 0 than x, and errors reach "
        "a whole step instead of half of one.",
        "torch.round before the cast.",
        _OUR_OWN,
        common.truncated,
        common.rounded,
        _NEAR_TIES,
        INT4,
    ),
    "scale-in-float16": Mistake(
        "A scale too small for float16",
        "How many different codes are there?",
        "The smallest float16 above 0 is 6e-8. A scale below half of that becomes 0: x / 0 is infinite, the clamp "
        "makes it 127 or -128, and 127 · 0 is 0.",
        "Keep scales in float32, or scale the tensor first.",
        _OUR_OWN,
        common.scale_in_float16,
        common.scale_in_float32,
        _TINY,
    ),
}  # fmt: skip
