"""|a|, and the larger or smaller of two values: the bounds of a range."""

import dataclasses

from quantcore.code_reading.values.arithmetic import again, number, single
from quantcore.code_reading.values.python import UNKNOWN, Num, Unknown, Value
from quantcore.code_reading.values.quantities import Codes, Data, Dequantized, Real


def magnitude(a: Value) -> Value:
    """|a|."""
    a = single(a)
    match a:
        case Num():
            return Num(abs(a.value), a.line, a.python)
        case Dequantized():
            return magnitude(again(a))
        case Data():
            return (
                dataclasses.replace(a, absolute=True, one_sided=True, caller=False)
                if not a.shift
                else UNKNOWN
            )
        case Real() if len(a.terms) == 1 and not a.const:
            ((stat, factor),) = a.terms
            end = "absmin" if stat.end == "min" and not stat.absolute else stat.end
            return dataclasses.replace(a, terms=((dataclasses.replace(stat, end=end), abs(factor)),))
        case Codes() if len(a.ops) == 1:
            return dataclasses.replace(
                a, data=dataclasses.replace(a.data, absolute=True, one_sided=True, caller=False)
            )
    return UNKNOWN


def larger(a: Value, b: Value, end: str) -> Value:
    """The larger (``end`` max) or smaller (min) of two extremes, or of an extreme and a number."""
    a, b = single(a), single(b)
    if isinstance(a, Num) and isinstance(b, Num):
        return number(max(a.value, b.value) if end == "max" else min(a.value, b.value))
    if isinstance(a, Real) and isinstance(b, Real):
        which = {_end(a), _end(b)}
        if end == "max" and which in ({"max", "-min"}, {"max", "absmin"}) and a.known and b.known:
            first: Real = a if _end(a) == "max" else b
            other: Real = b if first is a else a
            ((stat, factor),) = first.terms
            same = (
                abs(abs(other.terms[0][1]) - factor) < 1e-9 * factor and other.terms[0][0].data == stat.data
            )
            if same:
                return dataclasses.replace(first, terms=((dataclasses.replace(stat, absolute=True), factor),))
        return UNKNOWN
    real, limit = (a, b) if isinstance(a, Real) else (b, a)
    if isinstance(real, Real) and isinstance(limit, Num):
        return bounded(real, limit, end)
    if isinstance(real, Real) and isinstance(limit, Unknown) and end == "max" and real.divided:
        return dataclasses.replace(real, guard=True)  # like max(scale, eps)
    return UNKNOWN


def bounded(real: Real, limit: Num, end: str) -> Value:
    """An extreme bounded by a number from below (max) or above (min).

    The bound includes 0 in the range, or keeps a scale above 0.
    """
    if limit.value == 0 and len(real.terms) == 1:
        ((stat, factor),) = real.terms
        return dataclasses.replace(real, terms=((dataclasses.replace(stat, zero=True), factor),))
    if end == "max" and limit.value > 0:
        return dataclasses.replace(real, guard=True)
    return UNKNOWN


def _end(real: Real) -> str:
    if len(real.terms) != 1 or real.const:
        return ""
    ((stat, factor),) = real.terms
    if stat.absolute:
        return ""
    return stat.end if factor > 0 else f"-{stat.end}"
