"""How findings write numbers, bounds, scales and the order of operations."""

from quantcore.code_reading.quantizer import Quantizer
from quantcore.code_reading.values.python import Num, Param, Value
from quantcore.code_reading.values.quantities import Real, Stat


def number(value: float) -> str:
    """A number, without a decimal point if it is an integer."""
    return f"{int(value)}" if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"


def bound(value: float | str | None) -> str:
    """A bound of a clamp; None means unbounded."""
    return "open" if value is None else "unknown" if isinstance(value, str) else number(value)


def extreme(stat: Stat) -> str:
    """An extreme: ``max|x|``, ``99.9th percentile of x``."""
    of = f"|{stat.data.root}|" if stat.absolute else stat.data.root
    of = of if len(of) <= 24 else "|x|" if stat.absolute else "x"
    if stat.p is not None:
        return f"{stat.p:g}th percentile of {of}"
    if stat.absolute:
        return f"max{of}"
    return f"{'min' if stat.end in ('min', 'absmin') else 'max'}({of})"


def scale_formula(value: Value) -> str:
    """A scale, as a formula."""
    match value:
        case Real() if value.known and value.terms:
            divisor = 1 / abs(value.terms[0][1])
            ordered = sorted(value.terms, key=lambda term: -term[1])
            signs = [extreme(s) if f > 0 else f"- {extreme(s)}" for s, f in ordered]
            above = " ".join(signs)
            above = f"({above})" if len(signs) > 1 else above
            return above if abs(divisor - 1) < 1e-9 else f"{above} / {number(round(divisor, 6))}"
        case Real() if value.terms:
            return f"{extreme(value.terms[0][0])} divided by an unknown number"
        case Num():
            return f"{value.value:.6g}"
        case Param():
            return f"the argument {value.name}"
    return "not recognized"


def granularity_of(value: Value) -> str:
    """Which elements share a scale, if known."""
    if not isinstance(value, Real) or not value.terms:
        return ""
    stat = value.terms[0][0]
    if stat.axes is not None:
        axes = ", ".join(map(str, stat.axes))
        return f", reduced over axis {axes}"
    return "" if stat.data.layout else ", per-tensor"


def recognized(quantizer: Quantizer) -> list[str]:
    """The recognized parts of a quantizer, each with its line."""
    codes, found = quantizer.stored, list[str]()
    made = codes.scale
    first = codes.ops[0].line
    if isinstance(made, Real):
        found.append(f"scale (line {made.divided or first}) {scale_formula(made)}{granularity_of(made)}")
    else:
        found.append(f"scale (line {first}) {scale_formula(made)}")
    found += [kernel(quantizer)] if codes.of("round") else []
    for op in codes.ops:
        if op.name == "clamp":
            found.append(f"clamp (line {op.line}) {'..'.join(map(bound, op.value))}")
        elif op.name == "cast" and not op.value.floating:
            found.append(f"cast (line {op.line}) {op.value}")
    for op in quantizer.steps:
        found.append(f"zero point (line {op.value.line or op.line})")
    if quantizer.dequantized is not None:
        found.append(f"dequantize (line {quantizer.dequantized.line})")
    return found


def kernel(quantizer: Quantizer) -> str:
    """The order of division, rounding and zero point, with the letter of the convention's kernel."""
    codes = quantizer.stored
    product = "x · scale" if codes.multiplied else "x · (1 / scale)" if codes.inverse else "x / scale"
    place = next(i for i, op in enumerate(codes.ops) if op.name == "round")
    before = any(op.name == "add" and not _is_zero(op.value) for op in codes.ops[:place])
    after = any(op.name == "add" and not _is_zero(op.value) for op in codes.ops[place:])
    rule = {"half_even": "round", "floor": "floor", "ceil": "ceil", "half_up": "half up"}.get(
        codes.rounding, "truncate"
    )
    letter = {(False, False): "A", (False, True): "C", (True, False): "B", (True, True): "D"}[
        codes.inverse, before
    ]
    text = f"{rule}({product} + z)" if before else f"{rule}({product}) + z" if after else f"{rule}({product})"
    named = f", kernel {letter}" if rule == "round" and not codes.multiplied and (before or after) else ""
    return f"codes (line {codes.ops[place].line}) {text}{named}"


def _is_zero(value: Value) -> bool:
    return isinstance(value, Num) and value.value == 0
