"""Why two libraries' codes differ, as sentences with the numbers of one element."""

from collections.abc import Mapping

from quantcore.comparison.ties import PARITY, TIE
from quantcore.conventions import CHOICES
from quantcore.quantization import Quantized
from quantcore.range_setting import MinMax
from quantcore.tracing import Trace, number, scale_formula, signed, trace, zero_point_formula

_PARAMETERS = {"scale": "scale", "zero_point": "zero point"}
_KERNEL_KINDS = {TIE: "tie", PARITY: "tie with an odd zero point"}


def kind_of(ingredients: tuple[str, ...], kernel_kind: int) -> str:
    """``scale``, ``tie``, ``scale and zero point``: the reason in a word or two."""
    if ingredients == ("kernel",):
        return _KERNEL_KINDS.get(kernel_kind, "kernel")
    words = list(dict.fromkeys(_PARAMETERS.get(name) or CHOICES[name].kind for name in ingredients))
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def sentence(
    a: Quantized,
    b: Quantized,
    index: tuple[int, ...],
    ingredients: tuple[str, ...],
    choices: Mapping[str, tuple[str, ...]],
    kernel_kind: int,
) -> str:
    """Return a sentence that says why the codes of one element differ.

    Args:
        choices: for each of scale and zero_point among the ingredients, the choices that change it.
        kernel_kind: see `ties.kernel_kinds`.
    """
    sides = (name(a), trace(a, index)), (name(b), trace(b, index))
    parts = [_parameter(sides, p, choices[p]) for p in ("scale", "zero_point") if p in ingredients]
    coding = [i for i in ingredients if i not in ("scale", "zero_point")]
    if coding:
        parts.append(_coding(sides, coding, kernel_kind if ingredients == ("kernel",) else None))
    else:
        (_, of_a), (_, of_b) = sides
        parts.append(f"so {number(of_a.x)} becomes {of_a.code} against {of_b.code}")
    return "; ".join(parts) + "."


Sides = tuple[tuple[str, Trace], tuple[str, Trace]]


def _parameter(sides: Sides, ingredient: str, choices: tuple[str, ...]) -> str:
    """``scale: a max|x| / 127.5 = … against b max|x| / 127 = …``, of the element's block."""
    formula = scale_formula if ingredient == "scale" else zero_point_formula
    values = [getattr(t, ingredient) for _, t in sides]
    stakes = list(dict.fromkeys(CHOICES[c].at_stake for c in choices))
    setting = sides[0][1].scheme.range_setting
    if not stakes and not isinstance(setting, MinMax) and sides[0][1].low is not None:
        stakes = ["the range setting finds a different range for each library"]
    if values[0] == values[1]:
        stakes = ["1/s is computed separately"]
    phrases = [f"{who} {formula(t)} = {number(v)}" for (who, t), v in zip(sides, values, strict=True)]
    what = ingredient.replace("_", " ")
    if stakes:
        what += f" ({'; '.join(stakes)})"
    return f"{what}: " + " against ".join(phrases)


def _coding(sides: Sides, ingredients: list[str], kernel_kind: int | None) -> str:
    if set(ingredients) & {"nan", "cast"}:
        return "not representable in the integer cast: " + ", ".join(
            f"{who} converts {number(t.shifted)} to {t.code}" for who, t in sides
        )
    if ingredients == ["overflow"]:
        return "out of range: " + ", ".join(
            f"{who} converts {number(t.shifted)} to {t.code}" for who, t in sides
        )
    return _rounded(sides, ingredients, kernel_kind)


def _rounded(sides: Sides, ingredients: list[str], kernel_kind: int | None) -> str:
    """``tie: a rounds x / s = 7.5 to 8, b rounds x · (1/s) = 7.4999995 to 7``."""
    if not sides[0][1].scheme.format.has_zero_point:
        phrases = [f"{who} rounds {number(t.quotient)} to {number(t.rounded)}" for who, t in sides]
        return "near a tie: " + ", ".join(phrases)
    phrases = [_side(who, t) for who, t in sides]
    if "rounding" in ingredients:
        rules = " against ".join(t.scheme.convention.coding.rounding for _, t in sides)
        return f"rounding rule, {rules}: " + ", ".join(phrases)
    if kernel_kind is None:  # scale and zero_point differ too
        return "so " + ", ".join(phrases)
    what = {TIE: "tie", PARITY: "tie, and z is odd"}.get(kernel_kind, "near a tie")
    return f"{what}: " + ", ".join(phrases)


def _side(who: str, t: Trace) -> str:
    kernel = t.kernel
    text = f"{who} rounds {kernel.rounded} = {number(_before(t))} to {number(t.rounded)}"
    if t.zero_point and not kernel.shift_first:
        text += f", + {signed(t.zero_point)} = {number(t.shifted)}"
    return text


def _before(t: Trace) -> float:
    """Return the value that is rounded."""
    return t.quotient if t.summed is None else t.summed


def name(result: Quantized) -> str:
    """The convention's name, with its changed choices."""
    return str(result.scheme.convention)
