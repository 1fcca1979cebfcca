"""How codes are dequantized, and how many bits they take."""

from dataclasses import dataclass
from typing import Literal

from quantcore.conventions.choice import Case, Stage, choice
from quantcore.conventions.kernels import INVERSE, S, Z
from quantcore.expressions import GROUPED, Expression, Name, without, written
from quantcore.numerics import decimal

Q, AMAX, MEAN = Name("q"), Name("max|x|"), Name("mean")
OF_MAX = Name("1/max")  # 1 over the format's max
# How a code is dequantized, by the values of `decoding`, or with the block's minimum as z
DECODINGS: dict[str, Expression] = {
    "scaled": (Q - Z) * S + MEAN,
    "divided": (Q - Z) / INVERSE + MEAN,
    "of_largest": GROUPED((Q - Z) * AMAX) * OF_MAX + MEAN,
    "shifted": Q * S + Z,
}


def _decoding(case: Case) -> str:
    absent = ("z",) if case.rules.scale.center == "mean" else ("z", "mean")
    value = without(DECODINGS[case.rules.decoding.decoding], *absent)
    of_max = f"(1 / {decimal(case.fmt.symmetric_max)})"
    return f"x̂ is {written(value, names={'mean': 'the mean', 'max|x|': case.amax, '1/max': of_max})}"


def _decoding_matters(case: Case) -> bool:
    if case.rules.decoding.decoding == "divided" and case.stored is not None:
        return bool(case.rules.scale.inverse == "of_levels")  # else the stored scale has no 1/s of its own
    return case.symmetric and case.ranged


@dataclass(frozen=True)
class DecodingStage(Stage):
    """How codes are dequantized.

    ==============  ===============================================================================================
    decoding        "scaled" float32(q - z)·s · "divided" q / (the stored inverse) · "of_largest" (q · max|x|) ·
                    float32(1 / the format's max)
    decoding_dtype  "float32" · "float16" · "bfloat16": what each operation of dequantizing is rounded to
    code_bits       bits per code where codes are packed into a fraction of a bit; 0: the format's width
    ==============  ===============================================================================================
    """

    ALTERS = "values"

    decoding: Literal["scaled", "divided", "of_largest"] = choice(
        "scaled", "how codes are dequantized", _decoding, _decoding_matters
    )
    decoding_dtype: Literal["float32", "float16", "bfloat16"] = choice(
        "float32",
        "the precision in which codes are dequantized",
        lambda case: f"each operation of dequantizing is rounded to {case.rules.decoding.decoding_dtype}",
    )
    code_bits: float = choice(
        0.0,
        "how codes are packed",
        lambda case: f"a code takes {case.rules.decoding.code_bits:g} bits",
    )
