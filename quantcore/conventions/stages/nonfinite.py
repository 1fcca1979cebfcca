"""How NaN, infinity, and numbers too large for a cast are handled."""

import math
from dataclasses import dataclass
from typing import Literal

import torch

from quantcore.conventions.choice import SchemeFacts, Stage, choice
from quantcore.formats import IntFormat
from quantcore.numerics import decimal

_NAN = {
    "zero": "{} becomes code {zero}",
    "qmin": "{} becomes code {qmin}",
    "qmax": "{} becomes code {qmax}",
    "undefined": "{} has no code; {zero} is shown",
}
_CAST = {
    "int32": "the code of {} is {qmin}{wrapped}",
    "int64": "values beyond 2^63 become code {qmin}",
    "low_bits": "values beyond 2^31 become code {zero}",
}


def _nan(facts: SchemeFacts) -> str:
    rules, fmt = facts.rules.nonfinite, facts.fmt
    if isinstance(fmt, IntFormat):
        zero = max(0, fmt.qmin)  # clamped like any other
        if rules.cast != "none":
            return f"{facts.nan} becomes code {zero if rules.cast == 'low_bits' else fmt.qmin}"
        return _NAN[rules.nan].format(facts.nan, zero=zero, qmin=fmt.qmin, qmax=fmt.qmax)
    if rules.cast == "low_bits":
        code = int(fmt.encode(0.0))
        what = "NaN and infinity become" if facts.takes_nonfinite else "an x / s that is infinite becomes"
        return f"{what} code {code} (value {decimal(float(fmt.decode(torch.tensor(code))))})"
    if rules.nan_replacement:
        return f"NaN becomes {decimal(rules.nan_replacement)} with the sign of the NaN"
    code = int(fmt.encode(math.nan))
    value = float(fmt.decode(torch.tensor(code)))
    becomes = f"{facts.nan} becomes code {code} (value {decimal(value)})"
    return "NaN stays NaN" if math.isnan(value) else becomes


def _nan_matters(facts: SchemeFacts) -> bool:
    if facts.rules.nonfinite.cast == "int32" and _cast_matters(facts):
        return False  # covered by the sentence of cast
    if not facts.integer and facts.rules.nonfinite.cast == "low_bits":
        return facts.takes_nonfinite or not facts.min_max or facts.inverts  # finite x / s may overflow
    return facts.takes_nonfinite and not (facts.min_max and facts.rules.scale.bad_scale == "nonfinite")


def _cast(facts: SchemeFacts) -> str:
    fmt = facts.fmt
    lost = facts.nan if facts.min_max and facts.stored is None else "NaN and values beyond 2^31"
    wrapped = f", or {fmt.qmax} where z is negative" if facts.shifted else ""
    return _CAST[facts.rules.nonfinite.cast].format(
        lost, zero=max(0, fmt.qmin), qmin=fmt.qmin, wrapped=wrapped
    )


def _cast_matters(facts: SchemeFacts) -> bool:
    """Whether an unclamped value can be too large for the cast.

    With min-max, x / s stays within the codes, except if 1/s overflows, for infinity if the range is finite,
    and for ∞ / ∞, which is NaN.
    """
    cast = facts.rules.nonfinite.cast
    exact = facts.min_max and facts.stored is None  # a stored scale may be far too small
    if not facts.integer or (exact and not facts.takes_nonfinite):
        return False
    if not exact or cast == "low_bits":
        return True
    if cast == "int64":
        return facts.rules.range.finite_range and not facts.symmetric
    return cast == "int32" and facts.fmt.signed and not facts.symmetric


@dataclass(frozen=True)
class NonfiniteStage(Stage):
    """How NaN, infinity, and numbers too large for a cast are handled.

    ===============  =========================================================================================
    nan              "refuse" NaN and infinity in x · the code of NaN: "zero" · "qmin" · "qmax" · "undefined"
                     (stays NaN in the library; code 0 here)
    nan_replacement  what NaN becomes in a small float without NaN, with the sign of the NaN
    cast             "none" · the integer type that the rounded value is cast to before the clamp; values too
                     large become its lowest: "int64" after z is added · "int32" before that, so that adding
                     a negative z wraps around · "low_bits" int32, of which only the lowest bits are kept: 0
    ===============  =========================================================================================
    """

    ALTERS = "codes"

    nan: Literal["refuse", "zero", "qmin", "qmax", "undefined"] = choice(
        "refuse", "what NaN becomes", _nan, _nan_matters, "NaN"
    )
    nan_replacement: float = choice(  # changes the sentence of nan
        0.0, "what NaN becomes", {}, lambda facts: False, "NaN"
    )
    cast: Literal["none", "int32", "int64", "low_bits"] = choice(
        "none", "how values too large for the cast are handled", _cast, _cast_matters, "cast overflow"
    )
