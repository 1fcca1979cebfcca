"""Sums, differences, products and quotients: scales, codes, dequantized values."""

import dataclasses
from typing import Any

from quantcore.code_reading.values.arithmetic import (
    again,
    as_data,
    codes_with,
    merge,
    negative,
    number,
    scaled,
    single,
)
from quantcore.code_reading.values.python import UNKNOWN, Num, Param, Unknown, Value
from quantcore.code_reading.values.quantities import Codes, Data, Dequantized, Inverse, Op, Real, Steps

_GUARD = 1e-3  # a smaller number added to a scale only keeps it above 0
_SCALE_FACTOR = 0.6  # an extreme times a smaller factor is a scale


def left_of(codes: Codes) -> tuple[tuple[Any, float], ...] | None:
    """Return how much of the zero point is still in the codes, None if unknown.

    As factors of extremes, named arguments and the scale.
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
                # the same unknown zero point, subtracted again
                found[op.value] = found.get(op.value, 0.0) + op.sign
    return tuple((k, v) for k, v in found.items() if abs(v) > 1e-9)


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
            return Dequantized(a, line, left if left is not None else ())
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
    if isinstance(a, Dequantized) and isinstance(b, Real | Param | Num | Inverse):
        a = again(a)
    if isinstance(a, Codes) and len(a.ops) == 1 and isinstance(b, Real | Param):
        a = as_data(a)
    found = _quotient(a, b, line)
    if found is not None:
        return found
    if isinstance(a, Num) and a.value == 0:
        return a
    if isinstance(a, Num) and isinstance(b, Inverse):
        return multiply(a, b.scale, line)
    return UNKNOWN


def _quotient(a: Value, b: Value, line: int) -> Value | None:
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
            return Dequantized(a, line, left_of(a) or ())
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
    return None


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
        case (Dequantized(), _) if not isinstance(b, Data | Dequantized):
            return _add_to_dequantized(a, b, sign, line)
        case (_, Dequantized()) if sign == 1 and not isinstance(a, Data):
            return _add_to_dequantized(b, a, 1, line)
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
    if isinstance(b, Codes | Dequantized):
        return UNKNOWN
    return dataclasses.replace(codes_with(a, Op("other", line)), obscured=True)


def _add_to_dequantized(a: Dequantized, b: Value, sign: int, line: int) -> Value:
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
