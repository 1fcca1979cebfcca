"""Arithmetic helpers on known values; anything unknown stays unknown."""

import dataclasses
import math

from quantcore.code_reading.values.python import UNKNOWN, Num, Seq, Unknown, Value
from quantcore.code_reading.values.quantities import Codes, Data, Dequantized, Inverse, Op, Real, Stat, Steps

Terms = tuple[tuple[Stat, float], ...]


def single(value: Value) -> Value:
    """Return the values of a (values, indices) pair, as torch.max(x, dim) returns it."""
    return (
        value.items[0]
        if isinstance(value, Seq) and len(value.items) == 2 and isinstance(value.items[1], Unknown)
        else value
    )


def number(value: float | int, line: int = 0) -> Value:
    """A number; unknown if it is not finite, or an integer beyond the 64 bits that PyTorch takes."""
    if isinstance(value, int):
        return Num(value, line) if abs(value) < 1 << 63 else UNKNOWN
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


def codes_with(a: Codes, op: Op) -> Codes:
    """Return the codes after one more step."""
    return dataclasses.replace(a, ops=(*a.ops, op))


def again(back: Dequantized) -> Data:
    """Return dequantized values as a tensor to be quantized again."""
    return Data(f"{back.codes.data.root}'", layout=back.codes.data.layout, twice=back)


def as_data(codes: Codes) -> Data:
    """Return values that were divided but not rounded, as a tensor."""
    return Data(
        f"{codes.data.root}/",
        absolute=codes.data.absolute,
        one_sided=codes.data.one_sided,
        rank=codes.data.rank,
    )


def power(a: Value, b: Value) -> Value:
    """A ** b, for small numbers."""
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


def integer_operation(op: str, a: Value, b: Value) -> Value:
    """A shift, remainder or integer division, for small numbers."""
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
