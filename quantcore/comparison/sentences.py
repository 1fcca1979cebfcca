"""Why two libraries' codes differ, as sentences with the numbers of one element."""

from collections.abc import Callable, Mapping
from functools import partial

import torch

from quantcore.comparison.causes import NEAR, PARITY, ROUNDING, TIE, Choices
from quantcore.conventions import CHOICES
from quantcore.expressions import written
from quantcore.quantization import Quantized
from quantcore.tensors import DTYPES
from quantcore.tracing import Trace, dividend, number, signed, trace
from quantcore.wording import joined

_PARAMETERS = {"scale": "scale", "zero_point": "zero point"}
_KERNEL_KINDS = {TIE: "tie", PARITY: "tie with an odd zero point"}
_TIES = {TIE: "tie", PARITY: "tie, and z is odd", NEAR: "near a tie"}
_LOST, _OUTSIDE = "not representable in the integer cast", "out of range"
_LEAST_LOST = 2.0**31  # too large for the narrowest of the integer types that values are cast to
_ENDS = {"saturate": "clamped to", "wrap": "wrapped to", "cast": "cast to", "stored": "stored as"}
Sides = tuple[tuple[str, Trace], tuple[str, Trace]]


def kind_of(ingredients: tuple[str, ...], kernel_kind: int) -> str:
    """Name the reason in a word or two: ``scale``, ``tie``, ``scale and zero point``."""
    if ingredients == ("kernel",):
        return _KERNEL_KINDS.get(kernel_kind, "kernel")
    return joined(list(dict.fromkeys(_PARAMETERS.get(name) or CHOICES[name].kind for name in ingredients)))


def sentence(
    a: Quantized,
    b: Quantized,
    index: tuple[int, ...],
    ingredients: tuple[str, ...],
    choices: Mapping[str, Choices],
    kernel_kind: int,
) -> str:
    """Return a sentence that says why the codes of one element differ.

    Args:
        choices: for each of scale and zero_point among the ingredients, the choices that change it.
        kernel_kind: see `causes.kernel_kinds`.
    """
    sides = (str(a.scheme.convention), trace(a, index)), (str(b.scheme.convention), trace(b, index))
    stake = partial(_stake, a, b)
    differing = [p for p in _PARAMETERS if p in ingredients and _differs(sides, p)]
    parts = [_parameter(sides, p, choices[p], stake) for p in differing]
    coding = [i for i in ingredients if i not in _PARAMETERS]
    if coding:
        lead = _lead(sides, coding, kernel_kind, stake, alone=not parts)
        converts = lead in (_LOST, _OUTSIDE)
        phrases = ", ".join((_converted if converts else _rounded)(who, t) for who, t in sides)
        parts.append(f"so {phrases}" if lead == "so" else f"{lead}: {phrases}")
    else:
        (_, of_a), (_, of_b) = sides
        parts.append(f"so {number(of_a.x)} becomes {of_a.code} against {of_b.code}")
    return "; ".join(parts) + "."


def _stake(a: Quantized, b: Quantized, choice: str) -> str:
    """Say what depends on a choice; of a dtype, also which one each library has."""
    values = [r.computed.rules.choices[choice] for r in (a, b)]
    dtypes = f", {values[0]} against {values[1]}" if all(value in DTYPES for value in values) else ""
    return CHOICES[choice].at_stake + dtypes


def _differs(sides: Sides, ingredient: str) -> bool:
    """Tell whether a parameter, or the number used for it in the arithmetic, differs in this block."""
    (_, a), (_, b) = sides
    if ingredient == "zero_point":
        return a.zero_point != b.zero_point
    return (a.scale, a.raw_scale, _inverse(a)) != (b.scale, b.raw_scale, _inverse(b))


def _inverse(t: Trace) -> float:
    return float(torch.tensor(t.coded_scale).reciprocal()) if t.factor is None else t.factor


def _parameter(sides: Sides, ingredient: str, choices: Choices, stake: Callable[[str], str]) -> str:
    """Say ``scale (what max|x| is divided by): a 0.0166 against b 0.0167``, of the element's block.

    It is the first number that differs. How each was computed is said by the steps of its trace.
    """
    traces = [t for _, t in sides]
    if choices is None:
        stakes = ["the range setting finds a different range for each library"]
    else:
        stakes = list(dict.fromkeys(map(stake, choices)))
    name, values = _PARAMETERS[ingredient], [getattr(t, ingredient) for t in traces]
    if ingredient == "scale" and traces[0].raw_scale == traces[1].raw_scale:
        if values[0] == values[1]:
            name, values, stakes = "1/s", [_inverse(t) for t in traces], ["computed separately"]
        elif traces[0].raw_scale is not None:
            stakes = ["the scale of the scales"]
    elif ingredient == "scale" and values[0] == values[1]:
        name, values = "scale before it is quantized", [t.raw_scale for t in traces]
    what = f"{name} ({'; '.join(stakes)})" if stakes else name
    told = [f"{who} {number(value)}" for (who, _), value in zip(sides, values, strict=True)]
    return f"{what}: {' against '.join(told)}"


def _lead(sides: Sides, coding: list[str], kernel_kind: int, stake: Callable[[str], str], alone: bool) -> str:
    """Say what the codes depend on; ``alone``: scale and zero point are not among the ingredients."""
    lost = any(t.scheme.format.has_zero_point and not abs(t.rounded) < _LEAST_LOST for _, t in sides)
    if set(coding) & {"nan", "cast"} and lost:
        return _LOST
    if coding == ["overflow"] and alone:
        return _OUTSIDE
    if "rounding" in coding:
        return f"rounding rule, {' against '.join(t.scheme.convention.coding.rounding for _, t in sides)}"
    if coding != ["kernel"]:
        return "; ".join(dict.fromkeys(map(stake, coding)))
    if not alone:
        return "so"
    if kernel_kind in _TIES or _near_tie(*(t for _, t in sides)):
        return _TIES.get(kernel_kind, "near a tie")
    return CHOICES["kernel"].at_stake


def _near_tie(a: Trace, b: Trace) -> bool:
    """Tell whether two quotients lie next to the middle of the values of a table that they are rounded to."""
    if a.scheme.format.has_zero_point or a.rounded == b.rounded:  # as -0 and 0 are
        return False
    middle = (a.rounded + b.rounded) / 2
    return all(abs(t.quotient - middle) <= ROUNDING * abs(middle) for t in (a, b))


def _converted(who: str, t: Trace) -> str:
    return f"{who} converts {number(t.shifted)} to {t.code}"


def _rounded(who: str, t: Trace) -> str:
    """Return ``a rounds x / s = 7.4999995 to 7, + 3 = 10``, and what becomes of a value out of range."""
    kernel = t.kernel
    if t.overflow == "searched":
        return f"the search of {who} chooses {t.code}"
    if not t.scheme.format.has_zero_point:
        quotient = written(kernel.quotient, names={"x": dividend(t)})
        return f"{who} rounds {quotient} = {number(t.quotient)} to {number(t.rounded)}"
    verb = "truncates" if kernel.half and t.scheme.convention.coding.rounding == "toward_zero" else "rounds"
    rounded = written(t.scheme.rules.unrounded, names={"x": dividend(t)} if t.center is not None else {})
    text = f"{who} {verb} {rounded} = {number(t.unrounded)} to {number(t.rounded)}"
    if t.shift and not kernel.shift_first:
        text += f", + {signed(t.shift)} = {number(t.shifted)}"
    return f"{text}, {_ENDS[t.overflow]} {t.code}" if t.overflow else text
