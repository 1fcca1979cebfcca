"""What comes of adding and taking off."""

import dataclasses

from quantcore.code_reading.values.arithmetic import UNKNOWN, codes_with, merge, negative, number, single
from quantcore.code_reading.values.known import Back, Codes, Data, Num, Op, Param, Real, Steps, Value

_GUARD = 1e-3  # what is added to a scale only so that it is not 0


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
    return dataclasses.replace(codes_with(a, Op("other", line)), obscured=True)


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
