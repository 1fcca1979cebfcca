"""Clamps, rounding, casts and changes of axes, applied to known values."""

import dataclasses

from quantcore.code_reading.values import extremes
from quantcore.code_reading.values.arithmetic import codes_with, single
from quantcore.code_reading.values.python import UNKNOWN, DType, Nothing, Num, Param, Value
from quantcore.code_reading.values.quantities import Codes, Data, Dequantized, Inverse, Op, Real, Steps

DTYPES = {
    **{f"{s}int{b}": DType(b, not s) for s in ("", "u") for b in (8, 16, 32, 64)},
    **{f"q{s}int8": DType(8, not s) for s in ("", "u")},
    **{f"float{b}": DType(b, True, True) for b in (16, 32, 64)},
    "half": DType(16, True, True), "float": DType(32, True, True), "double": DType(64, True, True),
    "single": DType(32, True, True), "bfloat16": DType(32, True, True), "float_": DType(64, True, True),
    "int": DType(32), "short": DType(16), "long": DType(64), "char": DType(8), "byte": DType(8, False),
    "int_": DType(64), "ubyte": DType(8, False),
}  # fmt: skip


def clamp(value: Value, low: Value | None, high: Value | None, line: int, in_place: bool = False) -> Value:
    """A clamp; None for an omitted bound."""
    value = single(value)
    low, high = (None if isinstance(b, Nothing) else b for b in (low, high))
    match value:
        case Codes():
            return codes_with(value, Op("clamp", line, (_bound(low), _bound(high))))
        case Steps():
            return dataclasses.replace(value, clamped=True)
        case Data() if not value.shift and any(b is not None and not isinstance(b, Num) for b in (low, high)):
            # clipped to an unknown bound: another tensor
            return dataclasses.replace(value, root=f"{value.root} clipped", caller=value.caller and in_place)
        case Data() if not value.shift:
            bounds = [b.value if isinstance(b, Num) else None for b in (low, high)]
            one_sided = value.one_sided or (bounds[0] is not None and bounds[0] >= 0)
            bounds = [
                new if new is not None else old
                for new, old in zip(bounds, (value.low, value.high), strict=True)
            ]
            return dataclasses.replace(
                value, low=bounds[0], high=bounds[1], one_sided=one_sided, caller=value.caller and in_place
            )
        case Real():
            for bound, end in ((low, "max"), (high, "min")):
                if bound is not None:
                    value = extremes.larger(value, bound, end)
            return value
        case Num():
            if isinstance(low, Num) and isinstance(high, Num):
                return Num(min(max(value.value, low.value), high.value))
    return UNKNOWN


def _bound(value: Value | None) -> float | str | None:
    """A number; None if there is no bound, "?" if it is unknown."""
    return None if value is None else value.value if isinstance(value, Num) else "?"


def rounded(value: Value, rule: str, line: int, cast: bool = False) -> Value:
    """Round; ``cast``: by a cast to an integer, which truncates."""
    value = single(value)
    match value:
        case Codes():
            last = value.ops[-1]
            half = last.name == "add" and isinstance(last.value, Num) and abs(last.value.value) == 0.5
            if half and rule in ("floor", "toward_zero"):
                value = dataclasses.replace(value, ops=value.ops[:-1])
                rule = "half_up"
            return codes_with(value, Op("round", line, rule, -1 if cast else 1))
        case Steps():
            return dataclasses.replace(value, rounding=value.rounding or rule, line=value.line or line)
        case Num():
            integer = {"floor": value.value // 1, "ceil": -(-value.value // 1)}.get(rule, round(value.value))
            return Num(int(value.value if cast else integer), value.line, value.python)
    return UNKNOWN


def cast(value: Value, dtype: DType, line: int, python: bool = False) -> Value:
    """A cast to a dtype; ``python``: to a Python number."""
    value = single(value)
    match value:
        case Codes():
            if not dtype.floating and not value.of("round"):
                found = rounded(value, "toward_zero", line, cast=True)
                assert isinstance(found, Codes)
                value = found
            return codes_with(value, Op("cast", line, dtype))
        case Steps():
            if dtype.floating:
                return dataclasses.replace(value, dtype=None, python=python)
            rule = value.rounding or "toward_zero"
            return dataclasses.replace(value, rounding=rule, dtype=dtype, python=python)
        case Real() if dtype.floating:
            return (
                dataclasses.replace(value, half=value.half or line)
                if dtype.bits == 16 and value.divided
                else value
            )
        case Num():
            return dataclasses.replace(
                value, value=value.value if dtype.floating else int(value.value), python=python
            )
        case Data() if dtype.floating:
            return value
        case Dequantized() | Param() | Inverse():
            return value
    return UNKNOWN


def placed(value: Value, how: str) -> Value:
    """A value after a change of axes."""
    if isinstance(value, Data):
        return dataclasses.replace(value, layout=(*value.layout, how), rank=None)
    if isinstance(value, Real):
        terms = tuple((dataclasses.replace(s, placed=f"{s.placed} {how}".strip()), f) for s, f in value.terms)
        return dataclasses.replace(value, terms=terms)
    return value
