"""How an element becomes a code, given scale and zero point, and how codes are dequantized."""

from dataclasses import dataclass
from typing import Literal

from quantcore.conventions.choice import Precision, SchemeFacts, Stage, choice, exactly
from quantcore.conventions.kernels import INVERSE, KERNELS, S, Z
from quantcore.expressions import GROUPED, Expression, Name, renamed, without, written
from quantcore.formats import Format, IntFormat
from quantcore.numerics import Stochastic, decimal, rounding

Q, AMAX, MEAN = Name("q"), Name("max|x|"), Name("mean")
OF_MAX = Name("1/max")  # 1 over the format's max
MIDDLE = Name("middle")  # the middle code, 8 of uint4
OF_CODE_0 = Z - S * MIDDLE  # the value of code 0, where z is that of the middle code
# How a code is dequantized, by the values of `decoding`, or where z is the value of code 0 or of the middle
DECODINGS: dict[str, Expression] = {
    "scaled": (Q - Z) * S + MEAN,
    "divided": (Q - Z) / INVERSE + MEAN,
    "of_largest": GROUPED((Q - Z) * AMAX) * OF_MAX + MEAN,
    "shifted": Q * S + Z,
    "from_middle": (Q - MIDDLE) * S + Z,
}


def middle_of(fmt: Format) -> float:
    """Return the middle code, of an even number of codes the upper one; 0 for floats and codebooks."""
    return (fmt.qmin + fmt.qmax + 1) / 2 if isinstance(fmt, IntFormat) else 0.0


def _kernel(facts: SchemeFacts) -> str:
    kernel, form = KERNELS[facts.kernel], facts.rules.zero_point.zero_point_form
    code, z = kernel.code(rounding(facts.rules.coding.rounding)), "min" if form == "min" else "z"
    if not facts.shifted and kernel.adds_z_last:
        z = "0"
    elif not facts.shifted:
        code = without(code, "z")
    elif form == "middle":
        code = renamed(code, "z", OF_CODE_0)
    formula = written(code, names={"z": z, "middle": decimal(middle_of(facts.fmt))})
    if form == "below":
        formula = formula.replace("- z", "+ min")
    return f"codes are {formula}" + (", so that -0 becomes 0" if z == "0" and not kernel.fused else "")


_ROUNDINGS = {
    "half_even": "ties are rounded to even",
    "half_away": "ties are rounded away from zero",
    "half_up": "ties are rounded up",
    "floor": "values are rounded down",
    "ceil": "values are rounded up",
    "toward_zero": "values are truncated",
    "half_away_of_sum": "rounding adds ½{} to the magnitude in float32, then truncates",
    "half_even_of_sum": "rounding adds ½{} to the magnitude in float32, then truncates; ties go to even",
}


def _rounding(facts: SchemeFacts) -> str:
    name = facts.rules.coding.rounding
    if isinstance(rounding(name), Stochastic):
        return "rounding is stochastic"
    return _ROUNDINGS[name].format("" if facts.integer else " of a step")


def _rounding_matters(facts: SchemeFacts) -> bool:
    truncated = KERNELS[facts.kernel].half and facts.integer and facts.rules.coding.rounding == "toward_zero"
    return not facts.codebook and not truncated  # the kernel's sentence already says "trunc(… + ½)"


@dataclass(frozen=True)
class CodingStage(Stage):
    """How an element becomes a code.

    ================  ========================================================================================
    kernel            one of `KERNELS`; those that add ½ are for truncation (rounding="toward_zero")
    rounding          "half_even" · "half_away" · "half_up" · "floor" · "ceil" · "toward_zero" · "stochastic",
                      or with a seed "stochastic_7"; applies to codes: the zero_point is rounded half to
                      even, or by its own order
    short_block       "as_others" · "divided" if the last block is shorter than the others, it is divided by
                      its scale, which is raised to `StorageStage.min_divisor`
    coding_dtype      "float32" · "float64" · "float16" · "bfloat16": what each operation is rounded to
    clamp_min         for tensors of scales: the minimum of unclamped values
    overflow          "saturate" codes are clamped · "wrap" modulo 2^bits, a cast without a clamp
    zero_replacement  for tensors of scales: replaces values that round to 0; a value of the format
    ================  ========================================================================================
    """

    ALTERS = "codes"

    kernel: str = choice(
        "A",
        "the order of operations",
        _kernel,
        lambda facts: facts.kernel != "A" and not (facts.kernel == "B" and facts.exact_inverse),
        "kernel",
        KERNELS,
    )
    rounding: str = choice("half_even", "rounding rule", _rounding, _rounding_matters)
    short_block: Literal["as_others", "divided"] = choice(
        "as_others",
        "how a shorter last block is quantized",
        {"divided": "in a shorter last block, x is divided by s"},
        lambda facts: facts.flat,
        "short block",
    )
    coding_dtype: Precision = choice(
        "float32",
        "the precision in which codes are computed",
        lambda facts: f"each operation of computing codes is rounded to {facts.rules.coding.coding_dtype}",
    )
    clamp_min: float = choice(
        0.0, "the smallest x / s", lambda facts: f"x / s is at least {exactly(facts.rules.coding.clamp_min)}"
    )
    # also for max|x| / qmax: a subnormal scale is rounded so coarsely that codes overflow
    overflow: Literal["saturate", "wrap"] = choice(
        "saturate", "overflow", {"wrap": "codes out of range wrap around"}, lambda facts: facts.integer
    )
    zero_replacement: float = choice(
        0.0,
        "what replaces 0",
        lambda facts: f"values that round to 0 become {exactly(_replacement(facts))}",
        lambda facts: _replacement(facts) != 0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        rounding(self.rounding)


def _replacement(facts: SchemeFacts) -> float:
    """Return what replaces 0, a value of the format; 0 where the convention changes nothing."""
    fmt = facts.fmt
    return 0.0 if isinstance(fmt, IntFormat) else fmt.round_value(facts.rules.coding.zero_replacement)


def _decoding(facts: SchemeFacts) -> str:
    absent = ("z",) if facts.rules.scale.center == "mean" else ("z", "mean")
    value = without(DECODINGS[facts.rules.decoding.decoding], *absent)
    of_max = f"(1 / {decimal(facts.fmt.symmetric_max)})"
    return f"x̂ is {written(value, names={'mean': 'the mean', 'max|x|': facts.amax, '1/max': of_max})}"


def _decoding_matters(facts: SchemeFacts) -> bool:
    if facts.rules.decoding.decoding == "divided" and facts.stored is not None:
        return bool(facts.rules.scale.inverse == "of_levels")  # else the stored scale has no 1/s of its own
    return facts.symmetric and facts.ranged


@dataclass(frozen=True)
class DecodingStage(Stage):
    """How codes are dequantized.

    ==============  ==========================================================================================
    decoding        "scaled" float32(q - z)·s · "divided" q / (the stored inverse) · "of_largest" (q · max|x|)
                    · float32(1 / the format's max)
    decoding_dtype  "float32" · "float64" · "float16" · "bfloat16": what each operation of dequantizing is
                    rounded to
    value_dtype     the same: what the dequantized value is cast to
    code_bits       bits per code where codes are packed into a fraction of a bit; 0: the format's width
    ==============  ==========================================================================================
    """

    ALTERS = "values"

    decoding: Literal["scaled", "divided", "of_largest"] = choice(
        "scaled", "how codes are dequantized", _decoding, _decoding_matters
    )
    decoding_dtype: Precision = choice(
        "float32",
        "the precision in which codes are dequantized",
        lambda facts: f"each operation of dequantizing is rounded to {facts.rules.decoding.decoding_dtype}",
    )
    value_dtype: Precision = choice(
        "float32",
        "the dtype of dequantized values",
        lambda facts: f"x̂ is a {facts.rules.decoding.value_dtype} number",
        lambda facts: facts.rules.decoding.value_dtype != facts.rules.decoding.decoding_dtype,
    )
    code_bits: float = choice(
        0.0,
        "how codes are packed",
        lambda facts: f"a code takes {facts.rules.decoding.code_bits:g} bits",
    )
