"""How the zero point is computed from range and scale."""

from dataclasses import dataclass
from typing import Literal

from quantcore.conventions.choice import Precision, SchemeFacts, Stage, choice
from quantcore.conventions.kernels import INVERSE, S
from quantcore.conventions.stages.coding import DECODINGS, MIDDLE, middle_of
from quantcore.conventions.stages.scale import eps_matters
from quantcore.conventions.symmetric_scales import LOW
from quantcore.expressions import Expression, Name, rounded, written
from quantcore.formats import Format, IntFormat
from quantcore.numerics import decimal

QMIN, MINUS_LOW, NEAREST = Name("qmin"), Name("-low"), rounded("half_even")
# by `zero_point_order`, before the clamp, and by `zero_point_form`
ZERO_POINTS: dict[str, Expression] = {
    "round_quotient": QMIN - NEAREST(LOW / S),
    "round_difference": NEAREST(QMIN - LOW / S),
    "round_away": rounded("half_away")(QMIN - LOW / S),
    "float": MINUS_LOW * INVERSE,
    "float_rounded": NEAREST(MINUS_LOW * INVERSE),
    "middle": LOW + S * MIDDLE,
}
_OBSERVED_BITS = (8, 16)  # for which torch's observers use the middle code
_FORMS = {
    "float": "the zero point is {formula}, not rounded",
    "float_rounded": "the zero point is {formula}, not clamped",
    "min": f"there is no zero point: x̂ is {written(DECODINGS['shifted'], names={'z': 'min'})}{{of_range}}",
    "middle": "the zero point is the value of code {middle}{of_range}: x̂ is {value}",
    "below": "there is no zero point: x̂ is q · s - min",
}


def _form(facts: SchemeFacts) -> str:
    form, middle = facts.rules.zero_point.zero_point_form, decimal(middle_of(facts.fmt))
    # r is the inverse of the range, see the sentence of the scale
    names = {"middle": middle} if facts.stored is None else {"middle": middle, "1/s": "r"}
    formula = written(ZERO_POINTS[form], names=names) if form in ZERO_POINTS else ""
    of_range = f", {formula}" if form == "middle" else ", with min = low"
    return _FORMS[form].format(
        of_range=of_range if facts.ranged else "",
        formula=formula,
        middle=middle,
        value=written(DECODINGS["from_middle"], names=names),
    ) + (", then adjusted by half_quadratic" if facts.half_quadratic else "")


def _found(facts: SchemeFacts) -> bool:
    rules = facts.rules
    return facts.asymmetric and rules.zero_point.is_integer and rules.scale.is_of_range


def _order_matters(facts: SchemeFacts) -> bool:
    """Whether rounding qmin - low / s can make or move a tie: not if qmin is 0, nor float32 in float64."""
    rules, qmin = facts.rules.zero_point, facts.fmt.qmin
    if rules.zero_point_order == "round_away":
        return _found(facts)
    exact = rules.zero_point_precision == "float64" and rules.zero_point_scale == "final" and qmin % 2 == 0
    return _found(facts) and qmin != 0 and not exact


def _not_in_float64(facts: SchemeFacts) -> bool:
    """Otherwise both are computed in float64, and the scale's sentence says so."""
    return _found(facts) and facts.rules.scale.scale_precision != "float64"


def _precision_matters(facts: SchemeFacts) -> bool:
    """Whether the scale's sentence does not say it."""
    rules = facts.rules
    return _not_in_float64(facts) and rules.zero_point.zero_point_precision != rules.scale.scale_precision


def _cast_or_replaced(facts: SchemeFacts) -> str:
    """Return what may become of the scale of a range; empty if nothing."""
    rules = facts.rules.scale
    cast = rules.scale_dtype not in ("float32", rules.scale_precision)
    return " or ".join(["cast"] * cast + ["replaced"] * (rules.eps > 0))


def _replaced_matters(facts: SchemeFacts) -> bool:
    if not eps_matters(facts) or not facts.integer:
        return False
    always = facts.rules.zero_point.replaced_zero_point == "zero"
    return (facts.symmetric and always and bool(facts.middle)) or _found(facts)


def _nan_matters(facts: SchemeFacts) -> bool:
    rules = facts.rules.zero_point
    of_zero = rules.zero_point_scale == "raw" and rules.replaced_zero_point == "computed"
    infinite = facts.takes_nonfinite and facts.min_max and facts.rules.scale.bad_scale != "nonfinite"
    return _found(facts) and (of_zero or infinite)


@dataclass(frozen=True)
class ZeroPointStage(Stage):
    """How the zero point is computed from range and scale.

    =============================  ===========================================================================
    zero_point_form                "integer", in the format · "float" -low·(1/s) · "float_rounded" · "min" low
                                   itself, dequantized as q·s + min and stored like the scales · "below" the
                                   same, but -min, which is 0 or more, is stored · "middle" low + s·8 of 4
                                   bits, the value of the middle code, dequantized as (q - 8)·s + z
    zero_point_order               "round_quotient" qmin - round(low/s) · "round_difference"
                                   round(qmin - low/s) · "round_away" the same, ties away from zero
    zero_point_precision           "float32" · "float64" · "float16" · "bfloat16": what each operation is
                                   rounded to
    zero_point_scale               "final" · "raw": before it was cast or replaced
    zero_point_dtype               the same: what a float zero point is cast to once codes are computed
    replaced_zero_point            for a replaced scale: "computed" · "zero" · "zero_if_asymmetric"
    nan_zero_point                 "lowest" -2^31 · "zero" · "wrapped": qmin - (-2^31) in int32
    unsigned_symmetric_zero_point  "middle" 2^(bits-1) · "observer" the same for 8 and 16 bits, else
                                   floor((qmin+qmax)/2) · "below_middle" 2^(bits-1) - 1 · "zero"
    =============================  ===========================================================================
    """

    zero_point_form: Literal["integer", "float", "float_rounded", "min", "below", "middle"] = choice(
        "integer",
        "whether the zero point is an integer or a float",
        _form,
        # given zero points matter where they are minima
        lambda facts: facts.asymmetric if facts.ranged else facts.shifted and facts.rules.zero_point.is_value,
    )
    zero_point_order: Literal["round_quotient", "round_difference", "round_away"] = choice(
        "round_quotient",
        "rounded before or after the subtraction",
        {
            "round_difference": "the zero point is rounded after the subtraction",
            "round_away": "ties of the zero point are rounded away from zero",
        },
        _order_matters,
    )
    zero_point_precision: Precision = choice(
        "float32",
        "the precision of the zero point",
        lambda facts: f"the zero point is computed in {facts.rules.zero_point.zero_point_precision}",
        _precision_matters,
    )
    zero_point_dtype: Precision = choice(
        "float32",
        "the dtype of zero points",
        lambda facts: f"the zero point is cast to {facts.rules.zero_point.zero_point_dtype} after the codes",
        lambda facts: facts.asymmetric and not facts.rules.zero_point.is_integer,
    )
    zero_point_scale: Literal["final", "raw"] = choice(
        "final",
        "computed with the scale before or after it is cast or replaced",
        lambda facts: f"the zero point is computed with the scale before it is {_cast_or_replaced(facts)}",
        lambda facts: (
            _not_in_float64(facts)
            and facts.rules.zero_point.replaced_zero_point == "computed"
            and bool(_cast_or_replaced(facts))
        ),
    )
    replaced_zero_point: Literal["computed", "zero", "zero_if_asymmetric"] = choice(
        "computed",
        "its value where the scale is replaced",
        dict.fromkeys(("zero", "zero_if_asymmetric"), "the zero point of a replaced scale is 0"),
        _replaced_matters,
    )
    nan_zero_point: Literal["lowest", "zero", "wrapped"] = choice(
        "lowest",
        "what replaces NaN",
        lambda facts: f"a zero point of NaN is replaced by {facts.rules.zero_point.of_nan(facts.fmt)}",
        _nan_matters,
    )
    unsigned_symmetric_zero_point: Literal["middle", "observer", "below_middle", "zero"] = choice(
        "middle",
        "its value for symmetric unsigned codes",
        lambda facts: f"the zero point is {facts.middle}",
        lambda facts: facts.integer and facts.symmetric and facts.ranged and facts.middle != facts.fmt.middle,
    )

    @property
    def is_integer(self) -> bool:
        """Whether the zero point is an integer, a code of the format."""
        return self.zero_point_form == "integer"

    @property
    def float_form(self) -> str:
        """The key of `ZERO_POINTS` where 1/s is computed from the range."""
        return "float_rounded" if self.zero_point_form == "float_rounded" else "float"

    @property
    def is_min(self) -> bool:
        """Whether the block's minimum is stored instead and added after the multiplication."""
        return self.zero_point_form in ("min", "below")

    @property
    def is_middle(self) -> bool:
        """Whether the value of the middle code is stored instead and added after the multiplication."""
        return self.zero_point_form == "middle"

    @property
    def is_value(self) -> bool:
        """Whether the zero point is a value of x and added after the multiplication."""
        return self.is_min or self.is_middle

    def middle(self, fmt: Format) -> int:
        """Return the zero_point of a symmetric scheme."""
        choice = self.unsigned_symmetric_zero_point
        if not isinstance(fmt, IntFormat) or fmt.signed or choice == "zero":
            return 0
        if choice == "observer" and fmt.bits not in _OBSERVED_BITS:
            return (fmt.qmin + fmt.qmax) // 2
        return fmt.middle - (choice == "below_middle")

    def middle_formula(self, fmt: Format) -> str:
        """Return the formula of `middle`."""
        choice = self.unsigned_symmetric_zero_point
        if fmt.signed:
            return "0, symmetric and signed"
        if choice == "zero":
            return "0, symmetric"
        if choice == "observer" and fmt.bits not in _OBSERVED_BITS:
            return f"({fmt.qmin} + {fmt.qmax}) // 2, symmetric and unsigned"
        below = " - 1" if choice == "below_middle" else ""
        return f"2^{fmt.bits - 1}{below}, symmetric and unsigned"

    def of_nan(self, fmt: Format) -> int:
        """Return the zero_point used if the arithmetic gives NaN."""
        # -2^31 minus itself, or minus a negative qmin, in 32 bits
        wrapped = fmt.qmin if fmt.qmin == 0 else fmt.qmax
        return {"lowest": -(1 << 31), "zero": 0, "wrapped": wrapped}[self.nan_zero_point]
