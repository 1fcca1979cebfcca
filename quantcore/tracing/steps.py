"""A trace as lines of arithmetic, one operation per line."""

import math
from dataclasses import replace

import numpy as np
import torch

from quantcore.conventions import DECODINGS
from quantcore.expressions import ADD, Applied, Name, Term, Text, chain, without
from quantcore.formats import CodebookFormat, FloatFormat, IntFormat
from quantcore.tracing.record import ElementNumbers, Step
from quantcore.tracing.searches import search_steps
from quantcore.tracing.text import (
    code_formula,
    dividend,
    factor_formula,
    formula,
    largest,
    number,
    rule,
    scale_formula,
    signed,
    term,
    zero_point_formula,
)


class Trace(ElementNumbers):
    """`ElementNumbers` with the arithmetic that led to them."""

    def steps(self) -> list[Step]:
        """Return the arithmetic as lines for display; every number reads back as the same float32."""
        steps = [Step("x", "", number(self.x)), *search_steps(self)]
        steps.append(Step("scale s", scale_formula(self), number(self.scale)))
        fmt = self.scheme.format
        if isinstance(fmt, IntFormat):
            steps.append(Step("zero point z", zero_point_formula(self), number(self.zero_point)))
            if self.overflow != "searched":
                steps += [*_before_rounding(self), *_to_code(self)]
            steps.append(Step(*code_formula(self), number(self.code)))
        else:
            steps += [*_before_rounding(self), *_to_value(self, fmt)]
        steps.append(Step("dequantized x̂", _dequantized(self), number(self.dequantized)))
        error = f"{number(self.x)} - {signed(self.dequantized)}"
        return [*steps, Step("error x - x̂", error, number(self.error))]


def _before_rounding(t: ElementNumbers) -> list[Step]:
    """Return the steps from x to the value that is rounded."""
    steps, x = [], number(t.x)
    if t.center is not None:
        steps.append(Step("x - mean", f"{x} - {signed(t.center)}", number(t.operand)))
    elif t.convention.scale.divisor != 1:
        steps.append(Step("x / d", f"{x} / {number(t.convention.scale.divisor)}", number(t.operand)))
    last = replace(term("", t.operand, first=True), names=Text(dividend(t)))
    for operation in chain(t.kernel.unrounded if t.scheme.format.has_zero_point else t.kernel.quotient):
        if operation.operation is ADD and t.kernel.adds_z_last and not t.shift:
            continue  # a 0 is not added
        if "1/s" in operation.names - operation.operands[0].names:
            assert t.factor is not None
            steps.append(Step("1/s", factor_formula(t), number(t.factor)))
        found, value = _rounded(_applied(operation, last, t), t)
        text = ", ".join(filter(None, (found.numbers.text, found.note)))
        steps.append(Step(found.names.text.strip(), text, value))
        last = replace(found, numbers=Text(value), note="")
    return steps


def _rounded(found: Term, t: ElementNumbers) -> tuple[Term, str]:
    """Return a result with its rounding to the dtype in which codes are computed, and as text."""
    dtype, exact = t.convention.coding.coding_dtype, float(found.value)
    value = np.float32(torch.tensor(exact).to(getattr(torch, dtype)).float())
    if dtype in ("float32", "float64") or value == exact:
        return found, number(exact)
    note = f"rounded to {dtype}" + f", {found.note}" * bool(found.note)
    text = Text(f"{found.numbers.text} = {number(exact)}")
    return replace(found, numbers=text, value=value, note=note), number(float(value))


def _applied(operation: Applied, last: Term, t: ElementNumbers) -> Term:
    """Return the operation on the result of the one before; what is added has a line of its own."""
    before = replace(last, names=Text("")) if operation.operation is ADD else last
    numbers: dict[str, float | Term | None] = {"before": before, "z": t.shift, "s": t.coded_scale, "1/s": t.factor, "½": 0.5}
    return formula(operation.operation(Name("before"), *operation.operands[1:]), numbers)


def _to_code(t: ElementNumbers) -> list[Step]:
    steps = [Step("round", f"round({number(t.unrounded)}), {rule(t)}", number(t.rounded))]
    if t.shift and not t.kernel.shift_first:
        text = f"{number(t.rounded)} + {signed(t.shift)}"
        exact = float(np.float32(t.rounded) + np.float32(t.shift))
        if t.shifted != exact and not math.isnan(exact):
            text += f" = {number(exact)}, rounded to {t.convention.coding.coding_dtype}"
        steps.append(Step("+ z", text, number(t.shifted)))
    return steps


def _to_value(t: ElementNumbers, fmt: FloatFormat | CodebookFormat) -> list[Step]:
    """Return the steps from x / s to the value of a float or codebook format, and its code."""
    if isinstance(fmt, FloatFormat):
        name, how, code = str(fmt), rule(t), _bits(fmt, t.code)
        clipped = f", clipped to the largest magnitude, {number(fmt.max)}"
    else:
        name, how = fmt.name or "the codebook", f"ties: {fmt.tie}"
        code = f"index {t.code} in a table of {len(fmt.values)} values"
        clipped = f", clipped to the outermost value, {number(t.rounded)}"
    least, instead = t.convention.coding.clamp_min, t.convention.coding.zero_replacement
    quotient = number(t.quotient)
    if least and t.quotient < least:
        quotient, clipped = f"max({quotient}, {number(least)})", ""
    text = f"{quotient} rounded to {name}, {how}{clipped if t.overflow == 'saturate' else ''}"
    if instead and t.rounded == fmt.round_value(instead) and fmt.round_value(t.quotient) == 0:
        text += f"; {number(t.rounded)} instead of 0"
    if t.overflow == "stored":
        text = f"as stored; {number(t.quotient)} would be rounded to {number(fmt.round_value(t.quotient))}"
    elif t.overflow == "cast":
        text = f"{number(t.quotient)} cast by {t.convention.library}"
    return [Step("value v", text, number(t.rounded)), Step("code q", code, number(t.code))]


def _dequantized(t: ElementNumbers) -> str:
    words = {
        "divided": "the stored 1/s",
        "of_largest": f"{largest(t)} and 1 / {number(t.scheme.format.symmetric_max)}",
    }.get(t.decoding, "")
    if t.center is not None:
        words = f"{words} and the mean" if words else "the mean"
    dtype, last = t.convention.decoding.decoding_dtype, t.convention.decoding.value_dtype
    rounded = f"each result rounded to {dtype}" if dtype != "float32" else f"rounded to {last}" if last != dtype else ""
    words = "; ".join(filter(None, (words, rounded)))
    return ", ".join(filter(None, (_scaled_back(t), words)))


def _scaled_back(t: ElementNumbers) -> str:
    integer = t.scheme.format.has_zero_point
    numbers: dict[str, float | Term | None] = {
        "q": term("q", t.code if integer else t.rounded, first=integer), "s": t.scale, "z": t.zero_point,
        "1/s": t.decoded_with, "max|x|": t.decoded_with, "1/max": t.constant, "mean": t.center,
    }  # fmt: skip
    present = {"z": t.zero_point or t.decoding == "shifted", "mean": t.center is not None}
    value = without(DECODINGS[t.decoding], *(name for name, given in present.items() if not given))
    return formula(value, numbers).numbers.text


def _bits(fmt: FloatFormat, code: int) -> str:
    parts = fmt.fields(code)
    bits = [
        "" if parts.sign is None else f"sign {parts.sign}",
        f"exponent {parts.exponent:0{fmt.exponent}b}",
        f"mantissa {parts.mantissa:0{fmt.mantissa}b}" if fmt.mantissa else "",
    ]
    return ", ".join(filter(None, bits))
