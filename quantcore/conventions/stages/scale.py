"""How the scale is computed from the range, which is changed first, and how it is stored."""

import math
from dataclasses import dataclass
from typing import Literal

from quantcore.conventions.choice import Precision, SchemeFacts, Stage, choice, exactly
from quantcore.conventions.symmetric_scales import (
    HIGH,
    LOW,
    SYMMETRIC_SCALES,
    Rule,
    ScaleInputs,
    inverse_of_range,
    symmetric_rule,
)
from quantcore.errors import QuantError
from quantcore.expressions import Expression, Name, Number, written
from quantcore.formats import Format, IntFormat
from quantcore.numerics import decimal

_FLOAT32_MAX = "3.4e38"
FLOAT32_LEAST = 2.0**-149  # the smallest number above 0

# Of a range of N steps: the scale, the same where high - low overflows, and 1/s as hqq computes it, unbounded
N, WIDTH = Name("N"), HIGH - LOW
OF_RANGE, SPLIT = WIDTH / N, HIGH / N - LOW / N
INVERSE_OF_RANGE = N * (Number(1) / WIDTH)
# hqq 0.2.8, core/quantize.py: a narrower range has scale 1, and 1/s stays within float16
NARROW, LARGEST_INVERSE = 1e-4, 2e4
_KIND = "stored scale"


def _widened(facts: SchemeFacts) -> str:
    fmt, step = facts.fmt, exactly(facts.rules.scale.eps)
    steps = fmt.qmax - fmt.qmin
    start = f"a range with (high - low) / {steps} < {step} is widened"
    if not facts.symmetric:
        return f"{start} by {steps} · {step} above"
    return f"{start} by {-(-steps // 2)} · {step} below and {steps // 2} · {step} above"


def _at_least(facts: SchemeFacts) -> str:
    what = facts.amax if facts.symmetric else "high - low"
    return f"{what} is at least {exactly(facts.rules.range.min_range)}"


@dataclass(frozen=True)
class RangeStage(Stage):
    """How the range is widened.

    ================  ================================================================================
    zero_in_range     "both" low = min(low, 0) and high = max(high, 0) · "low" only the former · "no"
    finite_range      infinite bounds become the largest float32
    widen_to_eps      a range too narrow for the smallest scale, `ScaleStage.eps`, is widened by N·eps
    min_range         the minimum of max|x|, or of high - low
    width_dtype       "as_scale" · "float64" · "float16" · "bfloat16": what high - low is rounded to,
                      and min_range
    ================  ================================================================================
    """

    zero_in_range: Literal["both", "low", "no"] = choice(
        "both",
        "whether the range must include 0",
        {
            "low": "the range is extended down to 0, but not up to 0",
            "no": "the range need not include 0",
        },
        lambda facts: facts.asymmetric,
    )
    finite_range: bool = choice(
        False,
        "whether infinite bounds are made finite",
        {True: f"infinity in x is replaced by {_FLOAT32_MAX}, the largest float32"},
        lambda facts: facts.asymmetric and facts.min_max and facts.takes_nonfinite,
    )
    widen_to_eps: bool = choice(
        False, "whether a narrow range is widened", _widened, lambda facts: facts.ranged
    )
    min_range: float = choice(0.0, "the smallest range", _at_least, lambda facts: facts.ranged)
    width_dtype: Literal["as_scale", "float64", "float16", "bfloat16"] = choice(
        "as_scale",
        "the precision of the range",
        lambda facts: f"high - low is rounded to {facts.rules.range.width_dtype}",
        lambda facts: (
            facts.asymmetric
            and facts.rules.range.width_dtype not in ("as_scale", facts.rules.scale.scale_precision)
        ),
    )


def _scale(facts: SchemeFacts) -> str:
    return f"the scale is {facts.symmetric_rule.said(facts.names)}"


def _asymmetric(facts: SchemeFacts) -> str:
    rules = facts.rules.scale
    if rules.asymmetric_scale == "range_over_codes":
        codes = rules.parts(facts.fmt)
        return f"the scale is {written(WIDTH)} divided by the {codes} codes, not by the steps"
    formula = written(INVERSE_OF_RANGE, names={"N": str(facts.fmt.qmax - facts.fmt.qmin)})
    ends = f"at most {LARGEST_INVERSE:g}, and 1 if high - low is at most {NARROW:g}"
    inverse = f"{formula}, {ends}"
    if facts.stored is None:
        return f"1/s is {inverse}, and the scale is 1 / (1/s)"
    return f"the scale before it is stored is 1 / r, where r is {inverse}"


def _overflow_matters(facts: SchemeFacts) -> bool:
    rules = facts.rules.scale
    return facts.asymmetric and rules.is_of_range and rules.scale_precision == "float32"


def _precision(facts: SchemeFacts) -> str:
    zero_point = facts.rules.zero_point
    both = facts.asymmetric and zero_point.is_integer and zero_point.zero_point_scale == "raw"
    precision = facts.rules.scale.scale_precision
    if precision != "float64":
        both = facts.asymmetric and zero_point.zero_point_precision == precision
    if facts.symmetric and precision in ("float32", "float64") and not _has_steps(facts):
        return f"1/s is computed in {precision}"
    return f"{'scale and zero point are' if both else 'the scale is'} computed in {precision}"


def _precision_matters(facts: SchemeFacts) -> bool:
    """Whether several operations are rounded, or 2 · max|x| overflows; otherwise float32 gives the same."""
    rules = facts.rules.scale
    if rules.scale_precision in ("float16", "bfloat16"):
        return facts.ranged
    if facts.asymmetric or rules.is_textbook(facts.fmt) or not facts.ranged:
        return facts.asymmetric
    return _has_steps(facts) or rules.inverse == "of_range"


def _has_steps(facts: SchemeFacts) -> bool:
    """Whether a symmetric scale takes several operations: one in float64 rounds to that in float32."""
    return facts.rules.scale.symmetric_scale in ("aligned_grid", "full_range")


def _dtype_matters(facts: SchemeFacts) -> bool:
    """Whether the sentence of the precision does not say it."""
    rules = facts.rules.scale
    said = facts.ranged and rules.scale_dtype == rules.scale_precision
    return not (said and rules.scale_dtype in ("float16", "bfloat16"))


def _smallest(facts: SchemeFacts) -> str:
    rules = facts.rules.scale
    if rules.eps == 0:
        return "a scale of 0 stays 0" + (" until it is stored" if facts.stored is not None else "")
    if rules.eps == rules.eps_replacement:
        return f"no scale is below {exactly(rules.eps)}"
    return f"a scale below {exactly(rules.eps)} is replaced by {exactly(rules.eps_replacement)}"


def eps_matters(facts: SchemeFacts) -> bool:
    """Whether a scale can be that small: powers of two and hqq's inverse are limited elsewhere."""
    rules = facts.rules.scale
    if not facts.ranged or facts.rules.range.min_range or facts.rules.range.widen_to_eps:
        return False
    return not rules.is_power if facts.symmetric else rules.is_of_range


def _bad_matters(facts: SchemeFacts) -> bool:
    if facts.searched:
        return True  # in half precision
    return facts.min_max if facts.rules.scale.bad_scale == "nan" else _overflow_matters(facts)


def _inverse(facts: SchemeFacts) -> str:
    rules = facts.rules.scale
    if rules.inverse == "of_levels":
        return "1/s is (1 / the scale of the scales) / the value of the scale's code"
    return f"1/s is {written(rules.inverse_of_range(facts.fmt), names=facts.names)}"


def _inverse_matters(facts: SchemeFacts) -> bool:
    if facts.rules.scale.inverse == "of_range":
        used = facts.inverts or facts.rules.decoding.decoding == "divided"
        # 1/s of a stored scale is computed
        return facts.symmetric and facts.ranged and used and facts.stored is None
    as_values = facts.stored is not None and not facts.stored.has_zero_point  # of a small float or codebook
    return facts.inverts and as_values and not facts.stored_in_units


def _divisor(facts: SchemeFacts) -> str:
    first = f"x is divided by {decimal(facts.rules.scale.divisor)} first"
    return f"{first}, and {_scale(facts)}" if facts.ranged else first


@dataclass(frozen=True)
class ScaleStage(Stage):
    """How the scale is computed from the range; N = qmax - qmin.

    ===================  =====================================================================================
    center               for tensors of scales: "none" · "mean" their mean is subtracted first and added last
    divisor              for tensors of scales: x is divided by it first, and max|x| by it times the format's
                         max (NVFP4's 6)
    symmetric_scale      a rule of `SYMMETRIC_SCALES`
    narrow_scale_bits    signed widths whose symmetric scale excludes the lowest code
    asymmetric_scale     "range" (high - low) / N · "range_over_codes" (high - low) / (N + 1) ·
                         "inverse_range" hqq's, see `INVERSE_OF_RANGE`
    range_overflow       "split" high/N - low/N where high - low overflows · "infinite"
    scale_precision      "float32" · "float64" · "float16" · "bfloat16": what each operation is rounded to
    scale_dtype          the same: what the scale is cast to
    eps                  a smaller scale is replaced by ``eps_replacement``
    bad_scale            which scales are refused: "kept" none · "nan" · "nonfinite"
    inverse              "of_scale" 1/s · "of_range" symmetric: see `inverse_of_range`, stored next to s ·
                         "of_levels" for quantized scales: (1 / the scale of the scales) / the value of the
                         scale's code
    bad_inverse          for "of_range": "kept" · "one" NaN and infinity become 1
    ===================  =====================================================================================
    """

    center: Literal["none", "mean"] = choice(
        "none",
        "whether the mean is subtracted first",
        {"mean": "the mean of x is subtracted first and added last"},
    )
    divisor: float = choice(1.0, "what x is divided by first", _divisor)
    symmetric_scale: str = choice(
        "amax_over_qmax",
        "what max|x| is divided by",
        _scale,
        lambda facts: facts.symmetric and facts.ranged and not facts.rules.scale.is_textbook(facts.fmt),
        values=SYMMETRIC_SCALES,
    )
    narrow_scale_bits: tuple[int, ...] = choice(  # changes the sentence of symmetric_scale
        (), "what max|x| is divided by", {}, lambda facts: False
    )
    asymmetric_scale: Literal["range", "range_over_codes", "inverse_range"] = choice(
        "range", "how the scale comes from high - low", _asymmetric, lambda facts: facts.asymmetric
    )
    range_overflow: Literal["split", "infinite"] = choice(
        "split",
        "a range too wide for float32",
        {"infinite": "a range too wide for float32 gives an infinite scale"},
        _overflow_matters,
    )
    scale_precision: Precision = choice(
        "float32", "the precision of the scale", _precision, _precision_matters
    )
    scale_dtype: Precision = choice(
        "float32",
        "the dtype that scales are cast to",
        lambda facts: f"the scale is a {facts.rules.scale.scale_dtype} number",
        _dtype_matters,
    )
    eps: float = choice(FLOAT32_LEAST, "the smallest scale", _smallest, eps_matters)
    eps_replacement: float = choice(
        1.0,
        "what replaces a scale that is too small",
        lambda facts: f"a scale of 0 is replaced by {exactly(facts.rules.scale.eps_replacement)}",
        lambda facts: eps_matters(facts) and facts.rules.scale.eps == FLOAT32_LEAST,  # else eps covers it
    )
    bad_scale: Literal["kept", "nan", "nonfinite"] = choice(
        "kept",
        "which scales are refused",
        {"nan": "a scale of NaN is refused", "nonfinite": "a non-finite scale is refused"},
        _bad_matters,
    )
    inverse: Literal["of_scale", "of_range", "of_levels"] = choice(
        "of_scale", "whether s or 1/s is computed first", _inverse, _inverse_matters
    )
    bad_inverse: Literal["kept", "one"] = choice(
        "kept",
        "what replaces a non-finite 1/s",
        {"one": "a 1/s that is infinite or NaN is replaced by 1"},
        _inverse_matters,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        bits = self.narrow_scale_bits
        if not isinstance(bits, tuple) or any(type(b) is not int for b in bits):
            raise QuantError(
                f"narrow_scale_bits must be a list of widths such as [8,16], not {str(bits)[:40]}."
            )

    @property
    def is_power(self) -> bool:
        """Whether symmetric scales are powers of two."""
        return self.symmetric_scale.startswith("power")

    @property
    def is_of_range(self) -> bool:
        """Whether asymmetric scales are the range divided by an integer, not the inverse of hqq's 1/s."""
        return self.asymmetric_scale != "inverse_range"

    def parts(self, fmt: Format) -> int:
        """N of asymmetric scales, or N + 1 where the range is divided by the number of codes."""
        return fmt.available - (self.asymmetric_scale != "range_over_codes")

    def steps(self, fmt: Format) -> int:
        """N, not counting the lowest code if the scale excludes it."""
        narrower = isinstance(fmt, IntFormat) and not fmt.narrow and fmt.bits in self.narrow_scale_bits
        return fmt.qmax - fmt.qmin - (fmt.signed and narrower)

    def rule(self, fmt: Format, finite: bool = False) -> Rule:
        """Return how symmetric scales are computed; ``finite``: whether infinite bounds are made finite."""
        return symmetric_rule(self.symmetric_scale, ScaleInputs(fmt, self.steps(fmt), self.divisor, finite))

    def inverse_of_range(self, fmt: Format) -> Expression:
        """Return how 1/s is computed from max|x|."""
        return inverse_of_range(self.symmetric_scale, ScaleInputs(fmt, self.steps(fmt), self.divisor, False))

    def is_textbook(self, fmt: Format) -> bool:
        """Whether the rule for symmetric scales equals the textbook's for this format."""
        if self.symmetric_scale == "amax":
            return fmt.symmetric_max == 1
        if not isinstance(fmt, IntFormat):
            return False
        if self.symmetric_scale == "amax_over_half_range":
            return self.steps(fmt) / 2 == fmt.symmetric_max
        if self.symmetric_scale == "full_range":  # 2 · 3e38 overflows float32, but not float64
            return self.steps(fmt) / 2 == fmt.symmetric_max and self.scale_precision == "float64"
        return self.symmetric_scale == "max_of_sides" and fmt.qmin == -fmt.qmax


def _quantize_with(facts: SchemeFacts) -> str:
    if facts.rules.storage.quantize_with == "searched":
        return "codes are chosen by the search, not computed with the stored scale"
    if facts.rules.storage.quantize_with == "levels":
        return "codes are computed with the scale's code times the scale of the scales before it is stored"
    what = "scale and min before they are" if facts.rules.zero_point.is_min else "the scale before it is"
    return f"codes are computed with {what} stored"


@dataclass(frozen=True)
class StorageStage(Stage):
    """How scales are stored.

    ==============  ==========================================================================================
    quantize_with   codes are computed with the parameters "stored" · "raw" before they are stored · "levels"
                    the scale's code times the scale of the scales before it is stored · "searched" not
                    computed, but chosen by the range setting's search
    zero_scale      for a stored scale of 0: "zero_codes" every code is that of 0 · "kept" x is divided by 0 ·
                    "searched" the codes that the search chose, or the lowest if the scale of the scales is 0
                    · "zero_inverse" 1/s is 0, also of scales that are not quantized
    e8m0_min_as     the divisor of x for a stored scale of 2^-127; 0: the scale itself
    min_divisor     the smallest divisor of x
    ==============  ==========================================================================================
    """

    ALTERS = "codes"

    quantize_with: Literal["stored", "raw", "levels", "searched"] = choice(
        "stored",
        "whether codes use the scale before or after it is stored",
        _quantize_with,
        lambda facts: (
            facts.rules.storage.quantize_with == "searched"
            or (facts.stored is not None and not facts.stored_exactly)
        ),
        _KIND,
    )
    zero_scale: Literal["zero_codes", "kept", "searched", "zero_inverse"] = choice(
        "zero_codes",
        "how a stored scale of 0 is handled",
        {
            "kept": "x is divided by a scale of 0 like by any other: 0 / 0 is NaN",
            "searched": "where the scale is stored as 0, the search's codes are used",
            "zero_inverse": "where the scale is 0, 1/s is 0 too",
        },
        lambda facts: (
            facts.rules.storage.zero_scale == "zero_inverse"
            or (facts.stored is not None and facts.rules.scale.inverse == "of_scale")
        ),
        "scale of 0",
    )
    e8m0_min_as: float = choice(
        0.0,
        "what x is divided by for a scale of 2^-127",
        lambda facts: (
            f"where the scale is 2^-127, x is divided by {exactly(facts.rules.storage.e8m0_min_as)}"
        ),
        lambda facts: facts.stored_exactly if facts.ranged else 2.0**-127 in facts.scales,
        _KIND,
    )
    min_divisor: float = choice(
        0.0,
        "the smallest divisor of x",
        lambda facts: (
            f"x is divided by {exactly(facts.rules.storage.min_divisor)} where the scale is smaller"
        ),
        lambda facts: facts.ranged or min(facts.scales, default=math.inf) < facts.rules.storage.min_divisor,
        _KIND,
    )
