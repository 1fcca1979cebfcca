"""A trace as lines of arithmetic, one operation per line."""

from quantcore.conventions import Z
from quantcore.displayed import Displayed
from quantcore.expressions import ADD, MAXIMUM, Applied
from quantcore.formats import CodebookFormat, FloatFormat, IntFormat
from quantcore.programs import ReadLine
from quantcore.tracing.record import ElementNumbers, Step
from quantcore.tracing.searches import search_steps
from quantcore.tracing.text import (
    code_formula,
    factor_formula,
    largest,
    number,
    rule,
    scale_formula,
    signed,
    zero_point_formula,
)


class Trace(Displayed, ElementNumbers):
    """`ElementNumbers` with the arithmetic that led to them."""

    def steps(self) -> list[Step]:
        """Return the arithmetic as lines for display; every number reads back as the same float32."""
        steps = [Step("x", "", number(self.x)), *search_steps(self)]
        steps.append(Step("scale s", scale_formula(self), number(self.scale)))
        fmt = self.scheme.format
        if isinstance(fmt, IntFormat):
            steps.append(Step("zero point z", zero_point_formula(self), number(self.zero_point)))
            if self.overflow != "searched":
                steps += _lines(self)
            steps.append(Step(*code_formula(self), number(self.code)))
        else:
            steps += [*_lines(self), *_to_value(self, fmt)]
        steps += _dequantized(self)
        error = f"{number(self.x)} - {signed(self.dequantized)}"
        return [*steps, Step("error x - x̂", error, number(self.error))]


def _lines(t: ElementNumbers) -> list[Step]:
    """Return a step for each line from x to the code before it is brought into the format.

    A line that changes nothing is left out.
    """
    steps, before = [], ""
    for line in t.coding:
        of = line.line.of
        names = line.term.names.text
        if line.name == "x":
            steps.append(Step(names, line.text, number(float(line.value))))
        elif line.name == "divisor":
            steps.append(Step("divisor", line.text, number(float(line.value))))
        elif line.name == "u" and not is_bound(line):
            assert isinstance(of, Applied)
            if of.operation is ADD and of.operands[1] is Z and not t.shift:
                continue
            if any("1/s" in operand.names for operand in of.operands):
                assert t.factor is not None
                steps.append(Step("1/s", factor_formula(t), number(t.factor)))
            steps.append(Step(names.removeprefix(before).strip(), line.text, number(float(line.value))))
        elif line.name == "v" and of.names == {"u"}:
            steps.append(Step("round", f"round({number(t.unrounded)}), {rule(t)}", number(float(line.value))))
        elif line.name == "v" and not is_bound(line) and t.shift:
            steps.append(Step("+ z", line.text, number(float(line.value))))
        before = names
    return steps


def is_bound(line: ReadLine) -> bool:
    """Whether a line is the least of an unclamped value."""
    return isinstance(line.line.of, Applied) and line.line.of.operation is MAXIMUM and line.name in ("u", "v")


def _to_value(t: ElementNumbers, fmt: FloatFormat | CodebookFormat) -> list[Step]:
    """Return the steps from x / s to the value of a float or codebook format, and its code."""
    if isinstance(fmt, FloatFormat):
        name, how, code = str(fmt), rule(t), _bits(fmt, t.code)
        clipped = f", clipped to the largest magnitude, {number(fmt.max)}"
    else:
        name, how = fmt.name or "the codebook", fmt.nearest
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


def _dequantized(t: ElementNumbers) -> list[Step]:
    """Return a step for each line from the code to x̂; one for each operation if each is rounded."""
    *before, last = t.decoding
    steps = [Step(line.term.names.text, line.text, number(float(line.value))) for line in before]
    known = frozenset().union(*(line.line.of.names for line in t.decoding))
    words = ["the stored 1/s"] if "1/s" in known else []
    if "max|x|" in known:
        words = [f"{largest(t)} and 1 / {number(t.scheme.format.symmetric_max)}"]
    if t.center is not None:
        words.append("the mean")
    text = ", ".join(filter(None, (last.text, " and ".join(words))))
    return [*steps, Step("dequantized x̂", text, number(t.dequantized))]


def _bits(fmt: FloatFormat, code: int) -> str:
    parts = fmt.fields(code)
    bits = [
        "" if parts.sign is None else f"sign {parts.sign}",
        f"exponent {parts.exponent:0{fmt.exponent}b}",
        f"mantissa {parts.mantissa:0{fmt.mantissa}b}" if fmt.mantissa else "",
    ]
    return ", ".join(filter(None, bits))
