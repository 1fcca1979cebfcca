"""The formulas of a trace, with the numbers of one element and its block."""

import math
from dataclasses import replace

import numpy as np

from quantcore.conventions import ZERO_POINTS, SchemeFacts
from quantcore.expressions import ATOM, LOOSE, PRODUCT, Element, Term, Text, written
from quantcore.numerics import WORDS, decimal
from quantcore.programs import HALF, range_program
from quantcore.range_setting import Stored
from quantcore.scheme import facts_of
from quantcore.tracing.record import ElementNumbers

number = decimal  # how a trace writes a number
_NONE = Text("")
_FIRST = (
    "high",
    "max|x|",
    "extreme",
    "qmin",
)  # no formula has them where a negative number needs parentheses


def signed(value: float) -> str:
    """Write a number, in parentheses if it is negative."""
    return term("", value).numbers.within(ATOM)


def term(name: str, value: float | None, first: bool = False) -> Term:
    """Return a number of a line under its name; ``first``: it begins the line and needs no parentheses."""
    assert value is not None
    names = Text(name, PRODUCT if "/" in name else ATOM)
    numbers = Text(number(value), LOOSE if value < 0 and not first else ATOM)
    return Term(names, numbers, names, value if isinstance(value, np.float64) else np.float32(value))


def rule(t: ElementNumbers) -> str:
    """Say how the convention rounds."""
    name = t.scheme.convention.coding.rounding
    if t.kernel.half and name == "toward_zero":
        return "truncated"
    if name.endswith("_of_sum"):
        return f"{WORDS[name.removesuffix('_of_sum')]}, of |v| + 0.5 in float32"
    return WORDS.get(name, "stochastic")


def dividend(t: ElementNumbers) -> str:
    """Return what the kernel takes as x: ``x``, or what is computed from it first."""
    if t.center is not None:
        return "(x - mean)"
    return "x" if t.convention.scale.divisor == 1 else "(x / d)"


def largest(t: ElementNumbers) -> str:
    """Return what a symmetric scale is computed from: ``max|x|``, or what stands for it."""
    return facts_of(t.scheme).amax


def factor_formula(t: ElementNumbers) -> str:
    """Say how the factor that x is multiplied by was computed."""
    c = t.convention
    of_range = t.high is not None and t.raw_scale is None  # of a stored scale, 1/s is computed
    if of_range and range_program(t.scheme).binds("1/s"):
        return said(line(t, "1/s"))
    if c.scale.inverse == "of_levels" and t.raw_scale is not None:
        return "(1 / the scale of the scales) / the value of the scale's code, used instead of 1 / s"
    own = next(line for line in t.coding if line.name == "1/s")
    text = own.text if own.line.dtype in HALF else f"{own.text}, {str(own.line.dtype).removeprefix('torch.')}"
    # compared as text, NaN equals itself
    if number(t.coded_scale) == number(t.scale) or any(line.name == "divisor" for line in t.coding):
        return text
    if c.storage.quantize_with == "raw" and t.coded_scale == t.raw_scale:
        return f"{text}; the scale before it is stored"
    return f"{text}; used instead of s = {number(t.scale)}"


def said(found: Term) -> str:
    """Return a formula in symbols, then with numbers, and its note."""
    texts = dict.fromkeys((found.names.text, found.numbers.text))
    return ", ".join(filter(None, (" = ".join(texts), found.note)))


def line(t: ElementNumbers, name: str, **more: Term) -> Term:
    """Return a line of the program for the element's block, from the ends of the range as they become.

    ``more``: other numbers that are known.
    """
    assert t.low is not None
    assert t.high is not None
    program = range_program(t.scheme)
    names = {"N": f"{program.constants['N']:g}"}
    numbers: dict[str, float] = {"low": t.low, "high": t.high, "-low": -t.low, **program.constants}
    if t.scheme.symmetric:
        numbers |= {"max|x|": t.high, "extreme": math.copysign(t.high, -_raw(t))}
        names |= facts_of(t.scheme).names

    def known(name: str) -> Term | None:
        if name in more or name not in numbers:
            return more.get(name)
        return term(names.get(name, name), numbers[name], first=name in _FIRST)

    return program.read(name, known)


def in_words(precision: str) -> str:
    """Say in which dtype the operations of a formula are; empty for float32."""
    return "" if precision == "float32" else f", in {precision}"


def given_by(t: ElementNumbers) -> str:
    """Name the source of parameters that were not computed."""
    setting = t.scheme.range_setting
    return f"read from {setting.origin}" if isinstance(setting, Stored) else "given"


def zero_point_formula(t: ElementNumbers) -> str:
    """Say how the zero_point was computed from the range and the scale."""
    fmt, c = t.scheme.format, t.convention
    if t.scheme.range_setting.gives_parameters or t.low is None:
        return given_by(t)
    if t.search is not None and t.search.of_min is not None:
        return f"-min = -({t.search.of_min.code} · {signed(t.search.of_min.stored)})"
    if t.replaced and c.zero_point.replaced_zero_point != "computed" and t.zero_point == 0:
        return "0, since the scale was replaced"
    if t.scheme.symmetric:
        return c.zero_point.middle_formula(fmt)
    if c.zero_point.is_min:
        if t.search is not None:
            return f"-min, quantized ({t.scheme.scales})"
        stored = "" if t.scheme.scales is None else f", quantized ({t.scheme.scales})"
        return f"low = {number(t.low)}{stored}"
    if c.scale.asymmetric_scale == "inverse_range":
        return _float_zero_point(t, t.low)
    away = c.zero_point.zero_point_order == "round_away"
    end = f", {WORDS['half_away']}" * away + in_words(c.zero_point.zero_point_precision)
    end += "" if t.raw_scale is None else ", with s before it is stored"
    divisor = before = term("s", _raw(t))  # the zero point is computed before s is stored
    if c.zero_point.zero_point_scale == "raw":
        raw = line(t, "raw")
        before = replace(raw, names=divisor.names)
        if c.scale.scale_precision != "float64":  # else its number is not one of float32
            before = term("s", float(raw.value), first=True)
    found = line(t, "z", s=divisor, raw=before, replaced=Term(_NONE, _NONE, _NONE, int(t.replaced)))
    if not found.note:
        return said(found) + end
    return said(found) + " before s is replaced" * (t.replaced and c.zero_point.zero_point_scale == "raw")


def _float_zero_point(t: ElementNumbers, low: float) -> str:
    """Write hqq's zero point, from the 1/s of the range."""
    stored = t.raw_scale is not None
    end = ", where 1 / r is the scale before it is stored" if stored else ""
    adjusted = t.scheme.range_setting.moves_zero_point
    form = "float" if adjusted else t.convention.zero_point.float_form
    inverse = term("r" if stored else "1/s", float(line(t, "1/s").value))
    numbers = {"-low": term("-low", -low), "1/s": inverse}
    text = said(Element(numbers.__getitem__).of(ZERO_POINTS[form]))
    cast = t.convention.zero_point.zero_point_dtype
    last = "" if cast == "float32" else f", cast to {cast} once the codes are computed"
    return f"{text}{', then adjusted by half_quadratic' if adjusted else ''}{end}{last}"


def code_formula(t: ElementNumbers) -> tuple[str, str]:
    """Name and formula of the step that gives the code."""
    fmt = t.scheme.format
    if t.overflow == "searched":
        why = "since the scale is stored as 0" if t.scale == 0 else "whose codes are stored directly"
        return "code q (searched)", f"chosen by the search, {why}"
    if t.overflow == "stored":
        clamped = min(max(t.shifted, fmt.qmin), fmt.qmax)
        return "code q (stored)", f"as stored; rounding would give {number(clamped)}"
    if t.overflow == "cast":
        return "code q (cast)", f"{number(t.shifted)} cast by {t.scheme.convention.library}"
    if t.scheme.convention.coding.overflow == "saturate":
        what, how = "clamp", f"clamp({number(t.shifted)}, {fmt.qmin}, {fmt.qmax})"
    else:
        what, how = "wrap", f"{number(t.shifted)} modulo 2^{fmt.bits}, in {fmt.qmin - fmt.narrow}..{fmt.qmax}"
    return f"code q ({what})", how + (", since the value is out of range" if t.overflow else "")


def scale_formula(t: ElementNumbers) -> str:
    """Say how the scale was computed from the block's range, and then quantized, if it was."""
    if t.search is not None and t.search.of_scale is not None:
        return f"{t.search.of_scale.code} · {signed(t.search.of_scale.stored)}"
    own = _own_scale_formula(t) if t.search is None else "what the search found"
    if t.raw_scale is None:
        return own
    raw = number(t.raw_scale)
    return f"{raw} quantized ({t.scheme.scales}), where {raw} is {own}"


def _own_scale_formula(t: ElementNumbers) -> str:
    if t.low is None or t.high is None:
        return given_by(t)
    c = t.convention
    if t.low == t.high == 0 and t.replaced:
        return f"{number(c.scale.eps_replacement)}, since the range is 0"
    formula = _symmetric(t, t.high) if t.scheme.symmetric else said(line(t, "raw"))
    if t.center is not None and "mean" not in formula:  # low and high are bounds
        formula += ", of x - mean"
    formula += in_words(c.scale.scale_precision)
    if c.scale.scale_dtype not in ("float32", c.scale.scale_precision):
        formula += f", cast to {c.scale.scale_dtype}"
    if t.replaced:
        precision = c.scale.scale_precision if c.scale.scale_precision != "float64" else "float32"
        smallest = f"= 0 in {precision}" if c.scale.eps < 1e-44 else f"< {number(c.scale.eps)}"
        formula += f" {smallest}; {number(c.scale.eps_replacement)} instead"
    return formula


def _symmetric(t: ElementNumbers, high: float) -> str:
    """Return the rule's formula in symbols, then with the block's numbers."""
    facts = facts_of(t.scheme)
    rule = facts.symmetric_rule
    if rule.step is not None:
        return f"{said(line(t, 'raw'))}, on the grid of step {written(rule.step.of)}"
    limit = _end_of_powers(t, facts, high) if t.convention.scale.is_power else ""
    return limit or said(line(t, "raw"))


def _raw(t: ElementNumbers) -> float:
    return t.scale if t.raw_scale is None else t.raw_scale


def _end_of_powers(t: ElementNumbers, facts: SchemeFacts, high: float) -> str:
    """Return the formula at the limits of the powers of two; empty elsewhere."""
    raw, k = _raw(t), facts.fmt.symmetric_max_exponent
    if math.isinf(high) and raw == 2.0 ** (128 - k):
        return f"2^(128 - {k}), where ∞ counts as 2^128"
    significand, exponent = math.frexp(raw)
    # the range of e8m0; integer codes are digits after the binary point, so their scales are smaller by 2^k
    unit = k if facts.integer else 0
    if not math.isfinite(raw) or significand != 0.5 or abs(exponent - 1 + unit) >= 127 or high == 0:
        return f"{number(raw)}, at the limits of the powers of two, for {facts.amax} = {number(high)}"
    return ""
