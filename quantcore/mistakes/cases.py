"""The cases of the lesson: a mistake in code, and its fix; which cells are wrong, and which lines differ.

By the step that shows them: those behind published tables, then everyday ones.
"""

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.formats import INT4, INT8, UINT8, IntFormat
from quantcore.mistakes import implementations
from quantcore.mistakes.implementations import Parts
from quantcore.numerics import as_float32
from quantcore.tensors import EXAMPLES

Implementation = Callable[[Tensor], Parts]
TensorSource = tuple[str, Callable[[], Tensor]]  # where a tensor comes from, and what returns it


@dataclass(frozen=True)
class WorkedCase:
    """Two implementations of a quantizer: ``wrong`` and ``right`` take x and return codes, scale and x̂.

    ``hint``: what to look for before the answer is shown; ``why``: what goes wrong; ``fix``: what the right
    implementation does; ``source``: where the tensor comes from, and the published table if there is one;
    ``format``: the intended format of the codes; ``x``: returns the tensor, float32.
    """

    title: str
    hint: str
    why: str
    fix: str
    wrong: Implementation
    right: Implementation
    source: str
    x: Callable[[], Tensor]
    format: IntFormat = INT8


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of an implementation on a tensor; every field has the tensor's shape.

    ``x``: the tensor after the call, which may have changed it; ``error``: this x minus x̂, as a student
    would compute it afterwards; ``true_error``: the original tensor minus x̂.
    """

    x: Tensor
    codes: Tensor
    scale: Tensor
    dequantized: Tensor
    error: Tensor
    true_error: Tensor

    @property
    def sse(self) -> float:
        """Sum of the squared true error."""
        return float(self.true_error.double().square().sum())

    @property
    def mae(self) -> float:
        """Mean of the absolute true error."""
        return float(self.true_error.double().abs().mean())


@dataclass(frozen=True, eq=False)
class OutcomePair:
    """Both outcomes on one tensor ``x``; the masks have its shape.

    ``outside``: codes of the wrong implementation that lie outside its format; ``too_far``: x̂ is further from x
    than half a step of the right grid, and further than the right implementation's; ``hidden``: the error
    computed afterwards is not the true error.
    """

    x: Tensor
    wrong: Outcome
    right: Outcome
    outside: Tensor
    too_far: Tensor
    hidden: Tensor

    @property
    def wrong_cells(self) -> Tensor:
        """Cells that the mistake makes wrong, in any of these ways."""
        return self.outside | self.too_far | self.hidden


@dataclass(frozen=True)
class SourceLine:
    """A line of source, and whether the other implementation lacks it."""

    text: str
    differs: bool


def run(implementation: Implementation, x: Tensor) -> Outcome:
    """Run an implementation on a copy of x.

    Raises:
        QuantError: it does not run on such a tensor, or its result is not finite.
    """
    after = as_float32(x).clone()
    try:
        codes, scale, x_hat = implementation(after)
    except (RuntimeError, IndexError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise QuantError(
            f"This code does not run on a tensor of shape {tuple(x.shape)}: {reason}. Choose another tensor."
        ) from None
    if not (x_hat.isfinite().all() and x.any()):
        raise QuantError(
            "This code divides by 0 on this tensor, whose range has no width; choose a tensor whose values differ."
        )
    return Outcome(after, codes, scale.expand_as(x), x_hat, after - x_hat, x - x_hat)


def compare(case: WorkedCase, x: Tensor | None = None) -> OutcomePair:
    """Run both implementations on x, by default the case's own tensor, and find the wrong cells.

    Raises:
        QuantError: one of them does not run on x.
    """
    x = as_float32(case.x() if x is None else x)
    wrong, right = run(case.wrong, x), run(case.right, x)
    fmt, far, least = case.format, wrong.true_error.abs(), right.true_error.abs()
    # x/s, x̂ and the error are each rounded once to float32: at most 2^-24 of |x| each
    half = right.scale / 2 + x.abs() * 2.0**-22
    return OutcomePair(
        x,
        wrong,
        right,
        outside=(wrong.codes < fmt.qmin) | (wrong.codes > fmt.qmax),
        too_far=(far > half) & (far > least),
        hidden=torch.ne(wrong.error, wrong.true_error),
    )


def lines(case: WorkedCase) -> tuple[list[SourceLine], list[SourceLine]]:
    """Return the source of the wrong and the right implementation, lines that differ marked; names may differ."""
    sources = (_source(case.wrong), _source(case.right))
    matcher = difflib.SequenceMatcher(None, sources[0][1:], sources[1][1:], autojunk=False)
    same: tuple[set[int], set[int]] = ({0}, {0})
    for a, b, length in matcher.get_matching_blocks():
        for numbers, start in zip(same, (a, b), strict=True):
            numbers |= set(range(start + 1, start + 1 + length))
    first, second = (
        [SourceLine(text, i not in numbers) for i, text in enumerate(source)]
        for source, numbers in zip(sources, same, strict=True)
    )
    return first, second


def _source(implementation: Implementation) -> list[str]:
    """Return the function's lines, without the types in its signature, which only the type checker needs."""
    text = inspect.getsource(implementation).replace("(x: Tensor) -> Parts:", "(x):")
    return text.rstrip().splitlines()


def _example(name: str, what: str = "Tensor and wrong table") -> TensorSource:
    example = EXAMPLES[name]
    return f"{what}: {example.source}.", lambda: torch.from_numpy(example.load()).clone()


def _values(*rows: tuple[float, ...]) -> TensorSource:
    return "The tensor was made up for this lesson.", lambda: torch.tensor(rows)


_EXERCISE = _example("int8-exercise-4x4")
_TWELVE, _TWELVE_UNPUBLISHED = _example("percentile-3x4"), _example("percentile-3x4", "Tensor")
# an activation after a ReLU: no value below 0
_ONE_SIDED = _values((0.0, 0.4, 1.2, 5.1), (2.6, 0.0, 3.3, 0.9), (4.2, 6.0, 0.1, 2.0))
_TWO_SIDED = _values((-0.4, 0.4, 1.2, 2.1), (1.6, 0.0, -0.3, 0.9), (-1.1, 3.0, 0.1, 2.0))
# close to halfway between two of the 15 codes, where a first rounding changes the second
_NEAR_TIES = _values((1.0, 0.215, -0.36, 0.6), (-0.0715, 0.5, 0.3572, -0.93), (0.07, -0.64, 0.8, 0.786))
_TINY = _values((2e-6, -1.1e-6, 3e-7, 8e-7), (-1.7e-6, 5e-8, -6e-7, 1.3e-6), (9e-7, -2e-7, 1e-6, -4e-7))

_LINEAR = "(q - z) · s undoes round(x / s) + z: subtract z first, then multiply by s."

CASES: dict[str, WorkedCase] = {
    "wraps-per-tensor": WorkedCase(
        "Asymmetric scale, zero point 0, no clamp",
        "Look at the largest values: which of them kept their sign?",
        "(max - min) / 255 covers the range only together with its zero point. With zero point 0 the largest value "
        "needs a code above 127, and the cast to int8 keeps only its lowest 8 bits: 129, for example, becomes -127.",
        "Symmetric codes need the scale max|x| / 127: then no code exceeds ±127.",
        implementations.asymmetric_scale_then_cast,
        implementations.symmetric_scale_then_cast,
        *_EXERCISE,
    ),
    "wraps-per-column": WorkedCase(
        "The same with one scale per column",
        "Look at the columns whose values are mostly of one sign.",
        "A column that is not centered on 0 has a small max - min, so its largest values need codes far above "
        "127. The error can even be larger than with one scale for the tensor.",
        "Use the scale max|column| / 127 for each column.",
        implementations.asymmetric_scale_per_column,
        implementations.symmetric_scale_per_column,
        *_EXERCISE,
    ),
    "wraps-per-group": WorkedCase(
        "The same with one scale per half of the columns",
        "Compare the signs of x and x̂.",
        "Each half of the columns has its own (max - min) / 255, but zero point 0; values beyond 127 steps wrap.",
        "Use the scale max|half| / 127 for each half of the columns.",
        implementations.asymmetric_scale_per_half,
        implementations.symmetric_scale_per_half,
        *_EXERCISE,
    ),
    "clamp-of-another-type": WorkedCase(
        "Clamped to 0..255, stored as int8",
        "Compare x with x̂: which values changed sign?",
        "The clamp is for uint8, the cast is to int8: every code above 127 wraps to code - 256.",
        "Clamp and cast must agree on the type; here it is uint8.",
        implementations.clamp_to_bytes_cast_to_int8,
        implementations.clamp_to_bytes_cast_to_uint8,
        *_example("given-parameters-5"),
    ),
    "range-without-minimum": WorkedCase(
        "Asymmetric in name only",
        "How far does x̂ reach on each side of 0?",
        "The range is taken as 0 to max|x|, although x has negative values, and divided into 255 steps. The codes "
        "-128..127 then reach only about half of max|x|, and both ends are clipped.",
        "Take the range from min to max; the zero point shifts the codes onto it.",
        implementations.range_from_zero_up,
        implementations.range_from_low_to_high,
        *_TWELVE,
    ),
    "percentile-of-signed-values": WorkedCase(
        "A percentile of x instead of |x|",
        "x̂ may be close to x, but does every code fit int8?",
        "The 99.9th percentile of x says nothing about the negative values. The most negative one needs a code below "
        "-128. Without a clamp, and with codes kept as floats, nobody notices until they are stored.",
        "Take the percentile of |x|, and clamp the codes.",
        implementations.percentile_of_x,
        implementations.percentile_of_magnitude,
        *_TWELVE,
    ),
    "negatives-lost": WorkedCase(
        "Unsigned codes around 0",
        "Look at the values below 0.",
        "With codes 0..255 and zero point 0, no code is left for negative values: they all become 0, as after a ReLU.",
        "Zero point 128 puts 0 in the middle of the unsigned codes.",
        implementations.unsigned_without_middle,
        implementations.unsigned_around_middle,
        *_example("randn-seed-0-4x4"),
        UINT8,
    ),
    "cast-without-clamp": WorkedCase(
        "A cast without a clamp",
        "The range is -1.5..1.5. What happens to values outside it?",
        "A value outside the range needs a code outside int8, and the cast keeps only its lowest 8 bits: instead of "
        "being clipped to the range, the value lands anywhere in it, often with the opposite sign.",
        "Clamp to -128..127 before the cast: the value is clipped to the end of the range.",
        implementations.cast_without_clamp,
        implementations.clamp_before_cast,
        *_TWELVE_UNPUBLISHED,
    ),
    "zero-point-left-at-zero": WorkedCase(
        "Asymmetric scale, zero point 0",
        "Which codes are never used, and which too often?",
        "(max - min) / 255 is the step of an asymmetric grid, but with zero point 0 the codes -128..127 are centered "
        "on 0. For values from 0 to 6, for example, the upper half is clipped, and half of the codes are never used.",
        "zero_point = -128 - round(min / scale) shifts the codes onto the range.",
        implementations.zero_point_left_at_zero,
        implementations.zero_point_from_the_range,
        *_ONE_SIDED,
    ),
    "zero-point-forgotten": WorkedCase(
        "Zero point forgotten in dequantization",
        "Is the error the same everywhere?",
        "The codes are correct, but x̂ = q · s makes every value too large by zero_point · s.",
        _LINEAR,
        implementations.zero_point_forgotten,
        implementations.zero_point_subtracted,
        *_TWO_SIDED,
        UINT8,
    ),
    "zero-point-added": WorkedCase(
        "Dequantized with the wrong sign of the zero point",
        "Is the error the same everywhere?",
        "(q + z) · s shifts in the same direction a second time: every value is too large by 2 · zero_point · s. "
        "Libraries that store offset = -z do add it; do not use their offset as a zero point.",
        _LINEAR,
        implementations.zero_point_added,
        implementations.zero_point_subtracted,
        *_TWO_SIDED,
        UINT8,
    ),
    "zero-point-after-scale": WorkedCase(
        "Dequantized in the wrong order",
        "By how much are the values off, in units of x?",
        "q · s is in units of x, but z counts codes: every value is off by z · (1 - s). With zero point 0 nobody "
        "notices.",
        _LINEAR,
        implementations.zero_point_after_scale,
        implementations.zero_point_subtracted,
        *_TWO_SIDED,
        UINT8,
    ),
    "clamp-in-place": WorkedCase(
        "A clamp that changes its input",
        "x̂ is the same with and without the mistake. Is the error?",
        "clamp_ with an underscore writes into the caller's tensor. The error computed afterwards is measured against "
        "the clipped tensor, so the clipping error is missing.",
        "clamp without an underscore returns a new tensor.",
        implementations.clamp_in_place,
        implementations.clamp_a_copy,
        *_TWELVE_UNPUBLISHED,
    ),
    "quantized-twice": WorkedCase(
        "Quantized twice",
        "Which errors are larger than half a step?",
        "The 4-bit codes are computed from 8-bit codes: the first rounding can move a value across the midpoint between "
        "two codes, and the second then picks the farther one. That error exceeds half a step; a single rounding's never does.",
        "Quantize the original values, once.",
        implementations.eight_bits_then_four,
        implementations.four_bits_at_once,
        *_NEAR_TIES,
        INT4,
    ),
    "truncated": WorkedCase(
        "Truncated instead of rounded",
        "Compare |x| with |x̂|.",
        "A cast to an integer drops the fraction: x̂ is never farther from 0 than x, and errors come close to a full "
        "step instead of half a step.",
        "Call torch.round before the cast.",
        implementations.truncated,
        implementations.rounded,
        *_NEAR_TIES,
        INT4,
    ),
    "scale-in-float16": WorkedCase(
        "A scale too small for float16",
        "How many distinct codes are there?",
        "The smallest positive float16 is 6e-8. A scale below half of that becomes 0: x / 0 is infinite, the clamp "
        "turns it into 127 or -128, and x̂ = 127 · 0 is 0.",
        "Store scales in float32, or rescale the tensor first.",
        implementations.scale_in_float16,
        implementations.scale_in_float32,
        *_TINY,
    ),
}  # fmt: skip
