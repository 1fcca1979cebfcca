"""What comes of adding, multiplying and dividing what code stands for. What is not known stays unknown."""

import dataclasses
import math
from typing import Any

from quantcore.code_reading.values import (
    Back,
    Codes,
    Data,
    Inverse,
    Num,
    Op,
    Param,
    Real,
    Seq,
    Stat,
    Steps,
    Unknown,
    Value,
)

UNKNOWN = Unknown()
_GUARD = 1e-3  # what is added to a scale only so that it is not 0
_SCALE_FACTOR = 0.6  # a smaller factor of an extreme makes it a scale
Terms = tuple[tuple[Stat, float], ...]


def single(value: Value) -> Value:
    """Return the values of a pair of values and places, which torch.max(x, dim) gives."""
    return (
        value.items[0]
        if isinstance(value, Seq) and len(value.items) == 2 and isinstance(value.items[1], Unknown)
        else value
    )


def number(value: float | int, line: int = 0) -> Value:
    """A number, unless it is not finite or far too large."""
    if isinstance(value, int):
        return Num(value, line) if abs(value) < 1 << 70 else UNKNOWN
    return Num(value, line) if math.isfinite(value) else UNKNOWN


def merge(a: Terms, b: Terms, sign: float = 1.0) -> Terms:
    """Add two sums of extremes."""
    found: dict[Stat, float] = dict(a)
    for stat, factor in b:
        found[stat] = found.get(stat, 0.0) + sign * factor
    largest = max((abs(f) for _, f in (*a, *b)), default=0.0)
    return tuple((s, f) for s, f in found.items() if abs(f) > 1e-9 * largest)


def scaled(terms: Terms, factor: float) -> Terms:
    """Multiply a sum of extremes."""
    return tuple((s, f * factor) for s, f in terms) if factor else ()


def negative(a: Value) -> Value:
    """-a."""
    a = single(a)
    match a:
        case Num():
            return Num(-a.value, a.line, a.python)
        case Real():
            return dataclasses.replace(a, terms=scaled(a.terms, -1), const=-a.const)
        case Steps():
            return dataclasses.replace(a, terms=scaled(a.terms, -1), const=-a.const)
        case Inverse():
            return Inverse(a.scale, -a.sign)
    return UNKNOWN


def add(a: Value, b: Value, sign: int, line: int) -> Value:
    """A + b, or a - b where ``sign`` is -1."""
    a, b = single(a), single(b)
    if isinstance(a, Num) and isinstance(b, Num):
        total = number(a.value + sign * b.value)
        return dataclasses.replace(total, python=a.python and b.python) if isinstance(total, Num) else total
    match a, b:
        case (Codes(), _):
            return _add_to_codes(a, b, sign, line)
        case (_, Codes()) if sign == 1:
            return _add_to_codes(b, a, 1, line)
        case (Back(), _) if not isinstance(b, Data | Back):
            return _add_to_back(a, b, sign, line)
        case (_, Back()) if sign == 1 and not isinstance(a, Data):
            return _add_to_back(b, a, 1, line)
        case (Data(), Real()) if b.known and not b.const and not a.shift and not a.absolute:
            return dataclasses.replace(a, shift=tuple((s, sign * f) for s, f in b.terms), caller=False)
        case (Data(), Num()):
            return dataclasses.replace(a, root=f"{a.root}{'+' if sign > 0 else '-'}{b.value}", caller=False)
    if sign < 0:
        b = negative(b)
        sign = 1
    match a, b:
        case (Real(), Real()):
            return dataclasses.replace(
                a, terms=merge(a.terms, b.terms), const=a.const + b.const, known=a.known and b.known
            )
        case (Real(), Num()):
            return _real_and_number(a, b)
        case (Num(), Real()):
            return _real_and_number(b, a)
        case (Steps(), _) | (_, Steps()):
            return _add_steps(a, b, line)
    return UNKNOWN


def _real_and_number(a: Real, b: Num) -> Value:
    if 0 < b.value <= _GUARD:
        return dataclasses.replace(a, guard=True)
    return dataclasses.replace(a, const=a.const + b.value) if b.value else a


def _add_steps(a: Value, b: Value, line: int) -> Value:
    if not isinstance(a, Steps):
        a, b = b, a
    assert isinstance(a, Steps)
    a = dataclasses.replace(a, line=a.line or line)
    if isinstance(b, Num):
        kept = a.rounding if not isinstance(b.value, float) or b.value == int(b.value) else ""
        return dataclasses.replace(a, const=a.const + b.value, rounding=kept)
    if isinstance(b, Steps) and a.scale == b.scale:
        return dataclasses.replace(
            a, terms=merge(a.terms, b.terms), const=a.const + b.const, known=a.known and b.known,
            rounding=a.rounding and b.rounding, python=a.python and b.python,
        )  # fmt: skip
    return dataclasses.replace(a, known=False)


def _add_to_codes(a: Codes, b: Value, sign: int, line: int) -> Value:
    if isinstance(b, Num) and b.value == 0:
        return codes_with(a, Op("add", line, b, sign))
    if isinstance(b, Num | Steps) or (isinstance(b, Param) and b.role == "zero_point"):
        return codes_with(a, Op("add", line, b, sign))
    if isinstance(b, Codes | Back):
        return UNKNOWN
    return dataclasses.replace(codes_with(a, Op("other", line)), fogged=True)


def codes_with(a: Codes, op: Op) -> Codes:
    """The codes after one more step."""
    return dataclasses.replace(a, ops=(*a.ops, op))


def left_of(codes: Codes) -> tuple[tuple[Any, float], ...] | None:
    """What of the zero point is still in codes, as factors: of extremes, of arguments by name, of the scale.

    None where that is not known.
    """
    found: dict[Any, float] = {}
    for stat, factor in codes.data.shift:
        found[stat] = found.get(stat, 0.0) + factor
    for op in codes.of("add"):
        match op.value:
            case Num():
                found["scale"] = found.get("scale", 0.0) + op.sign * op.value.value
            case Param():
                found[op.value.name] = found.get(op.value.name, 0.0) + op.sign
            case Steps() if op.value.known and op.value.scale == codes.scale:
                found["scale"] = found.get("scale", 0.0) + op.sign * op.value.const
                for stat, factor in op.value.terms:
                    found[stat] = found.get(stat, 0.0) + op.sign * factor
            case Steps():
                # the same zero point, whatever it is, taken off again
                found[op.value] = found.get(op.value, 0.0) + op.sign
    return tuple((k, v) for k, v in found.items() if abs(v) > 1e-9)


def _add_to_back(a: Back, b: Value, sign: int, line: int) -> Value:
    match b:
        case Num() if b.value == 0:
            return a
        case Real() if b.known and not b.const:
            left = dict(a.left)
            for stat, factor in b.terms:
                left[stat] = left.get(stat, 0.0) + sign * factor
            if all(abs(v) < 1e-9 for v in left.values()):
                return dataclasses.replace(a, left=())
        case Num() | Steps() | Param():
            return dataclasses.replace(a, loose=(*a.loose, (b, sign, line)))
    return UNKNOWN


def multiply(a: Value, b: Value, line: int) -> Value:
    """A · b."""
    a, b = single(a), single(b)
    for first, second in ((a, b), (b, a)):
        found = _product(first, second, line)
        if found is not None:
            return found
    return UNKNOWN


def _product(a: Value, b: Value, line: int) -> Value | None:
    match a, b:
        case (Num(), Num()):
            total = number(a.value * b.value)
            return (
                dataclasses.replace(total, python=a.python and b.python) if isinstance(total, Num) else total
            )
        case (Real(), Num()):
            divided = line if abs(b.value) < _SCALE_FACTOR else a.divided
            return dataclasses.replace(
                a, terms=scaled(a.terms, b.value), const=a.const * b.value, divided=a.divided or divided
            )
        case (Steps(), Num()) if abs(b.value) == 1:
            return a if b.value == 1 else negative(a)
        case (Real(), Inverse()) if not a.const:
            return Steps(scaled(a.terms, b.sign), b.scale, known=a.known, line=line)
        case (Data(), Inverse()) if b.sign > 0:
            return Codes(a, b.scale, (Op("divide", line, b.scale),), inverse=True)
        case (Data(), Real()) if b.divided and not a.shift:
            return Codes(a, b, (Op("divide", line, b),), multiplied=True)
        case (Data(), Num()) if b.value > 0:
            return Codes(a, Num(1 / b.value), (Op("divide", line, Num(1 / b.value)),), inverse=True)
        case (Codes(), Num()) if (
            a.ops[-1].name == "divide" and b.value > 0 and isinstance(a.scale, Real | Num)
        ):
            scale = divide(a.scale, b, line)
            return dataclasses.replace(a, scale=scale, ops=(Op("divide", line, scale),))
        case (Codes(), _) if b == a.scale and a.rounding:
            left = left_of(a)
            return Back(a, line, left if left is not None else ())
        case (Codes(), Inverse()) if b.scale == a.scale and a.rounding and not a.multiplied:
            return codes_with(a, Op("unscaled", line))
        case (Steps(), Real()) if a.known and b.known and a.scale == b:
            return Real(merge(a.terms, scaled(b.terms, a.const)))
    return None


def divide(a: Value, b: Value, line: int) -> Value:
    """A / b."""
    a, b = single(a), single(b)
    if isinstance(b, Num) and b.value == 0:
        return UNKNOWN
    if isinstance(a, Back) and isinstance(b, Real | Param | Num | Inverse):
        a = again(a)
    if isinstance(a, Codes) and len(a.ops) == 1 and isinstance(b, Real | Param):
        a = as_data(a)
    match a, b:
        case (Num(), Num()):
            total = number(a.value / b.value) if abs(a.value) < 1e300 else UNKNOWN
            return (
                dataclasses.replace(total, python=a.python and b.python) if isinstance(total, Num) else total
            )
        case (Data(), Real() | Num()) if not isinstance(b, Num) or b.value > 0:
            return Codes(a, b, (Op("divide", line, b),))
        case (Data(), Param()) if b.role == "scale":
            return Codes(a, b, (Op("divide", line, b),))
        case (Codes(), Inverse()) if b.scale == a.scale and a.rounding:
            return Back(a, line, left_of(a) or ())
        case (Codes(), _) if b == a.scale and a.rounding and not a.multiplied:
            return codes_with(a, Op("unscaled", line))
        case (Real(), Num()):
            return dataclasses.replace(
                a, terms=scaled(a.terms, 1 / b.value), const=a.const / b.value, divided=a.divided or line
            )
        case (Real(), Unknown()):
            return dataclasses.replace(a, known=False, divided=a.divided or line)
        case (Real(), Real()):
            return Steps(a.terms, b, known=a.known and not a.const, line=line)
        case (Real(), Param()):
            return Steps(a.terms, b, known=a.known and not a.const, line=line)
        case (Num(), Real()) if a.value > 0:
            return Inverse(divide(b, a, line) if a.value != 1 else b)
        case (Num(), Param()) if a.value == 1:
            return Inverse(b)
        case (Num(), Param()) if a.value == 0:
            return a
        case (Unknown(), Real()):
            return Inverse(dataclasses.replace(b, known=False, divided=b.divided or line))
    if isinstance(a, Num) and a.value == 0:
        return a
    if isinstance(a, Num) and isinstance(b, Inverse):
        return multiply(a, b.scale, line)
    return UNKNOWN


def again(back: Back) -> Data:
    """What was dequantized, as a tensor that is to be quantized."""
    return Data(f"{back.codes.data.root}'", layout=back.codes.data.layout, twice=back)


def as_data(codes: Codes) -> Data:
    """What was only divided counts as a tensor again."""
    return Data(
        f"{codes.data.root}/",
        absolute=codes.data.absolute,
        one_sided=codes.data.one_sided,
        rank=codes.data.rank,
    )


def power(a: Value, b: Value) -> Value:
    """A ** b of small numbers."""
    a, b = single(a), single(b)
    if (
        isinstance(a, Num)
        and isinstance(b, Num)
        and abs(a.value) <= 1e6
        and abs(b.value) <= 64
        and (a.value or b.value > 0)
    ):
        if a.value < 0 and b.value != int(b.value):
            return UNKNOWN
        try:
            found = a.value**b.value
        except OverflowError:
            return UNKNOWN
        return number(found)
    return UNKNOWN


def whole(op: str, a: Value, b: Value) -> Value:
    """A shift, a remainder or a division of integers, of small numbers."""
    a, b = single(a), single(b)
    if not (isinstance(a, Num) and isinstance(b, Num)):
        return UNKNOWN
    x, y = a.value, b.value
    if op == "//":
        return number(x // y) if y else UNKNOWN
    if op == "%":
        return number(x % y) if y else UNKNOWN
    if isinstance(x, int) and isinstance(y, int) and 0 <= y <= 64 and abs(x) < 1 << 40:
        return number(x << y if op == "<<" else x >> y)
    return UNKNOWN


def magnitude(a: Value) -> Value:
    """|a|."""
    a = single(a)
    match a:
        case Num():
            return Num(abs(a.value), a.line, a.python)
        case Back():
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
    """The larger of two (``end`` max) or the smaller (min): of extremes, or of an extreme and a number."""
    a, b = single(a), single(b)
    if isinstance(a, Num) and isinstance(b, Num):
        return number(max(a.value, b.value) if end == "max" else min(a.value, b.value))
    if isinstance(a, Real) and isinstance(b, Real):
        ends = {_end(a), _end(b)}
        if end == "max" and ends in ({"max", "-min"}, {"max", "absmin"}) and a.known and b.known:
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
        return dataclasses.replace(real, guard=True)  # as max(scale, eps)
    return UNKNOWN


def bounded(real: Real, limit: Num, end: str) -> Value:
    """An extreme that is kept above (max) or below (min) a number: 0 in the range, or a guard against 0."""
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
