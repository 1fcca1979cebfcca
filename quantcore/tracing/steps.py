"""A trace as lines of arithmetic, one operation per line."""

from quantcore.formats import CodebookFormat, FloatFormat, IntFormat
from quantcore.tracing.record import Numbers, Step
from quantcore.tracing.scale_formula import scale_formula
from quantcore.tracing.searches import search_steps
from quantcore.tracing.text import (
    code_formula,
    dividend,
    factor_formula,
    largest,
    number,
    rule,
    signed,
    zero_point_formula,
)


class Trace(Numbers):
    """`Numbers` with the arithmetic that led to them."""

    def steps(self) -> list[Step]:
        """Return the arithmetic as lines for display; every number reads back as the same float32."""
        steps = [Step("x", "", number(self.x)), *search_steps(self)]
        steps.append(Step("scale s", scale_formula(self), number(self.scale)))
        fmt = self.scheme.format
        if isinstance(fmt, IntFormat):
            steps.append(Step("zero point z", zero_point_formula(self), number(self.zero_point)))
            if self.overflow != "searched":
                steps += [*_quotient(self), *_to_code(self)]
            steps.append(Step(*code_formula(self), number(self.code)))
        else:
            steps += [*_quotient(self), *_to_value(self, fmt)]
        steps.append(Step("dequantized x̂", _dequantized(self), number(self.dequantized)))
        error = f"{number(self.x)} - {signed(self.dequantized)}"
        return [*steps, Step("error x - x̂", error, number(self.error))]


def _quotient(t: Numbers) -> list[Step]:
    """From x to the value that is rounded; a z added after rounding is left out."""
    kernel, operand, steps = t.kernel, number(t.operand), []
    integer = t.scheme.format.has_zero_point
    over = dividend(t)
    if over == "(x - z)":
        steps.append(Step("x - z", f"{number(t.x)} - {signed(t.shift)}", operand))
    elif t.center is not None:
        steps.append(Step("x - mean", f"{number(t.x)} - {signed(t.center)}", operand))
    elif over == "(x / d)":
        steps.append(Step("x / d", f"{number(t.x)} / {number(t.convention.scale.divisor)}", operand))
    if t.factor is None:
        name, product = f"{over} / s", f"{operand} / {signed(t.coded_scale)}"
    else:
        name, product = f"{over} · (1/s)", f"{operand} · {signed(t.factor)}"
        steps.append(Step("1/s", factor_formula(t), number(t.factor)))
    if kernel.fused and integer:
        fused = f"{product} + {signed(t.shift)}, rounded once"
        return [*steps, Step(f"{name} + z", fused, number(t.summed or 0.0))]
    steps.append(Step(name, product, number(t.quotient)))
    if t.summed is not None:
        steps += _sum(t)
    return steps


def _sum(t: Numbers) -> list[Step]:
    """The addition before rounding; no step where 0 is added."""
    shift = "" if t.kernel.subtracts else signed(t.shift)
    if t.kernel.half:
        name, added = ("+ (z + ½)", f"({shift} + 0.5)") if shift else ("+ ½", "0.5")
    elif shift and t.shift:
        name, added = "+ z", shift
    else:
        return []
    return [Step(name, f"{number(t.quotient)} + {added}", number(t.summed or 0.0))]


def _to_code(t: Numbers) -> list[Step]:
    steps = [Step("round", f"round({number(t.unrounded)}), {rule(t)}", number(t.rounded))]
    if t.shift and not t.kernel.shift_first:
        steps.append(Step("+ z", f"{number(t.rounded)} + {signed(t.shift)}", number(t.shifted)))
    return steps


def _to_value(t: Numbers, fmt: FloatFormat | CodebookFormat) -> list[Step]:
    """From x / s to the value of a float or codebook format, and its code."""
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


def _dequantized(t: Numbers) -> str:
    formula, _, words = _scaled_back(t).partition(", ")
    if t.center is not None:
        formula, words = f"{formula} + {signed(t.center)}", f"{words} and the mean" if words else "the mean"
    dtype = t.convention.decoding.decoding_dtype
    if dtype != "float32":
        words = "; ".join(filter(None, (words, f"each result rounded to {dtype}")))
    return f"{formula}, {words}" if words else formula


def _scaled_back(t: Numbers) -> str:
    integer = t.scheme.format.has_zero_point
    q, s, z = number(t.code) if integer else signed(t.rounded), signed(t.scale), signed(t.zero_point)
    if t.decoding == "shifted":
        return f"{q} · {s} + {z}"
    inner = f"({q} - {z})" if t.zero_point else q
    if t.decoded_with is None:
        return f"{inner} · {s}"
    if t.decoding == "divided":
        return f"{inner} / {signed(t.decoded_with)}, the stored 1/s"
    divisor = number(t.scheme.format.symmetric_max)
    return f"({inner} · {number(t.decoded_with)}) · {number(t.constant)}, {largest(t)} and 1 / {divisor}"


def _bits(fmt: FloatFormat, code: int) -> str:
    parts = fmt.fields(code)
    bits = [
        "" if parts.sign is None else f"sign {parts.sign}",
        f"exponent {parts.exponent:0{fmt.exponent}b}",
        f"mantissa {parts.mantissa:0{fmt.mantissa}b}" if fmt.mantissa else "",
    ]
    return ", ".join(filter(None, bits))
