"""A convention's kernel as an expression in torch, with what becomes of values that no integer holds."""

from quantcore.conventions import Convention
from quantcore.errors import QuantError
from quantcore.numerics import KERNELS
from quantcore.quantization import Quantized, may_leave_integers

_CAST_ENDS = {"int32": "2.0**31", "int64": "2.0**63"}


def kernel_source(result: Quantized, scale: str, zero_point: str) -> tuple[list[str], str]:
    """Return lines that come first, and the expression of the codes before they are clamped.

    ``scale`` and ``zero_point`` are expressions that broadcast with x; an empty zero_point stands for 0.
    """
    convention = result.scheme.rules
    kernel = KERNELS[convention.coding.kernel]
    before, plus = [], f" + {zero_point}" if zero_point else ""
    if result.scales is not None and bool((result.scale == 0).any()):
        zeros = f"torch.where({scale} == 0, torch.inf, {scale})"
        before.append(f"divisor = {zeros}  # a scale that became 0 brings every code to the one of 0")
        scale = "divisor"
    if kernel.inverse and result.params.inverse is None:
        before.append(f"inverse = 1 / {scale}")
    product = "x * inverse" if kernel.inverse else f"x / {scale}"
    if kernel.fused and zero_point:
        # alpha makes it one operation with one rounding, as the library's is
        product = f"torch.add(torch.tensor(float({zero_point})), x, alpha=inverse.item())"
        plus = ""
    round_, rule = _rounding(convention.coding.rounding)
    before += rule
    rounded = f"{round_}({product}{plus})" if kernel.shift_first else f"{round_}({product}){plus}"
    needs_brackets = plus and not kernel.shift_first
    if _all_are_integers(result, convention):
        return before, f"({rounded})" if needs_brackets else rounded
    return [*before, f"values = {rounded}", *_settled(result, convention, zero_point)], "values"


_HALF_UP = ["def half_up(v):", "    return v.floor() + (v - v.floor() >= 0.5)"]
_ROUNDINGS = {
    "half_even": ("torch.round", []),
    "floor": ("torch.floor", []),
    "ceil": ("torch.ceil", []),
    "toward_zero": ("torch.trunc", []),
    "half_up": ("half_up", _HALF_UP),
    "half_away": (
        "half_away",
        [
            "def half_away(v):",
            "    return (v.abs().floor() + (v.abs() - v.abs().floor() >= 0.5)).copysign(v)",
        ],
    ),
    "half_away_of_sum": (
        "half_away_of_sum",
        ["def half_away_of_sum(v):", "    return (v.abs() + 0.5).floor().copysign(v)"],
    ),
    "half_even_of_sum": (
        "half_even_of_sum",
        [
            "def half_even_of_sum(v):",
            "    ties = (v.abs() - 0.5) % 2 == 0",
            "    return ((v.abs() + 0.5).floor() - ties.float()).copysign(v)",
        ],
    ),
}


def _rounding(name: str) -> tuple[str, list[str]]:
    """The function that rounds, and lines that define it."""
    if name not in _ROUNDINGS:
        raise QuantError(
            "Rounding by chance follows quantcore's own sequence of random numbers; use the quantcore script."
        )
    return _ROUNDINGS[name]


def _all_are_integers(result: Quantized, convention: Convention) -> bool:
    """Whether no value is NaN, infinite or too large for a cast."""
    if convention.refuses_nonfinite:
        return True
    return not may_leave_integers(result.x, result.params, result.scheme, convention)


def _settled(result: Quantized, convention: Convention, zero_point: str) -> list[str]:
    """Lines that replace what the library's cast to an integer would not keep."""
    if convention.nonfinite.cast == "none":
        code = {"qmin": "qmin", "qmax": "qmax"}.get(convention.nonfinite.nan, "0")
        return [f"values = torch.where(values.isnan(), {code}, values)  # NaN, cast to an integer"]
    lines = [
        f"lost = ~(values.abs() < {_CAST_ENDS[convention.nonfinite.cast]})  # what no {convention.nonfinite.cast} holds",
        "values = torch.where(lost, qmin, values)",
    ]
    if convention.nonfinite.cast == "int32" and zero_point and bool((result.params.zero_point < 0).any()):
        lines.append(f"values = torch.where(lost & (torch.tensor({zero_point}) < 0), qmax, values)")
    return lines
