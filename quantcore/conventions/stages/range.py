"""How the range is changed before the scale is computed from it."""

from dataclasses import dataclass
from typing import Literal

from quantcore.conventions.choice import Case, Stage, choice, exactly

_FLOAT32_MAX = "3.4e38"


def _widened(case: Case) -> str:
    fmt, step = case.fmt, exactly(case.rules.scale.eps)
    steps = fmt.qmax - fmt.qmin
    start = f"a range with (high - low) / {steps} < {step} is widened"
    if not case.symmetric:
        return f"{start} by {steps} · {step} above"
    return f"{start} by {-(-steps // 2)} · {step} below and {steps // 2} · {step} above"


def _at_least(case: Case) -> str:
    what = case.amax if case.symmetric else "high - low"
    return f"{what} is at least {exactly(case.rules.range.min_range)}"


@dataclass(frozen=True)
class RangeStage(Stage):
    """How the range is widened.

    ================  ================================================================================
    zero_in_range     "both" low = min(low, 0) and high = max(high, 0) · "low" only the former · "no"
    finite_range      infinite bounds become the largest float32
    widen_to_eps      a range too narrow for the smallest scale, `ScaleStage.eps`, is widened by N·eps
    min_range         the minimum of max|x|, or of high - low
    ================  ================================================================================
    """

    zero_in_range: Literal["both", "low", "no"] = choice(
        "both",
        "whether the range must include 0",
        {
            "low": "the range is extended down to 0, but not up to 0",
            "no": "the range need not include 0",
        },
        lambda case: case.asymmetric,
    )
    finite_range: bool = choice(
        False,
        "whether infinite bounds are made finite",
        {True: f"infinity in x is replaced by {_FLOAT32_MAX}, the largest float32"},
        lambda case: case.asymmetric and case.min_max and case.takes_nonfinite,
    )
    widen_to_eps: bool = choice(
        False, "whether a narrow range is widened", _widened, lambda case: case.ranged
    )
    min_range: float = choice(0.0, "the smallest range", _at_least, lambda case: case.ranged)
