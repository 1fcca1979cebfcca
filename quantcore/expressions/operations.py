"""The operations besides + - · / mod and >>, which `nodes` has for Python's operators.

Powers of two and exponents work on the bits of a number's exponent: exp2 of NumPy is inexact at integers, and
log2 of NumPy and of torch differ in 0.5 % of values. A library that calls log2 itself gets `LOG2`.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.expressions.nodes import (
    ADD,
    ATOM,
    LOOSE,
    PRODUCT,
    SUBTRACT,
    SUM,
    Applied,
    Explained,
    Expression,
    Let,
    Name,
    Number,
    Operation,
    Where,
)
from quantcore.numerics import Rounding, half_even, round_to, rounding

Tensors = Callable[..., Tensor]
Numbers = Callable[..., Any]
_LARGEST_EXPONENT = 1023  # of float64, in which powers of two are put together


def _call(name: str, torch_name: str, numpy_name: str, tensors: Tensors, numbers: Numbers) -> Operation:
    """Return an operation that is written as a call."""
    return Operation(f"{name}({{0}})", torch_name + "({0})", numpy_name + "({0})", tensors, numbers)


def _of_two(name: str, torch_function: Callable[..., Tensor], numpy_name: str, bound: str) -> Operation:
    """Return min or max of two numbers; NaN if one is NaN. ``bound``: the argument of torch's clamp."""
    number: Numbers = getattr(np, numpy_name)

    least = bound == "min"

    def tensors(a: Tensor, b: Any, out: Tensor | None = None) -> Tensor:
        if isinstance(b, Tensor):
            return torch_function(a, b.to(a.dtype), out=out)
        return torch.clamp(a, min=b, out=out) if least else torch.clamp(a, max=b, out=out)

    in_torch, in_numpy = f"torch.clamp({{0}}, {bound}={{1}})", f"np.{numpy_name}({{0}}, {{1}})"
    return Operation(f"{name}({{0}}, {{1}})", in_torch, in_numpy, tensors, number)


def _test(text: str, code: str, tensors: Callable[..., Tensor], numbers: Numbers) -> Operation:
    """Return a question about numbers, for the test of a `Where`: 1 or 0. ``code``: in torch."""
    in_torch, in_numpy = code, code.replace("torch.", "np.")
    return Operation(
        text, in_torch, in_numpy, lambda *v, out=None: tensors(*v), lambda *v: int(numbers(*v)), LOOSE
    )


# parentheses that show an order which would hold without them
GROUPED = Operation("({0})", "({0})", "({0})", lambda x, out=None: x, lambda x: x)
MINIMUM = _of_two("min", torch.minimum, "minimum", "max")
MAXIMUM = _of_two("max", torch.maximum, "maximum", "min")
# the larger of two numbers, the second if they are equal or one is NaN, as torch.where(a > b, a, b)
LARGER = Operation(
    "max({0}, {1})", "torch.where({0} > {1}, {0}, {1})", "np.where({0} > {1}, {0}, {1})",
    lambda a, b, out=None: torch.where(a > b, a, b), lambda a, b: a if a > b else b, needs=(SUM, SUM),
)  # fmt: skip


def _clamped(x: Any, low: Any, high: Any) -> Explained:
    value, least, most = (term.numbers.text for term in (x, low, high))
    return Explained(f"clamp({x.names.text})", f"clamp({value}, {least}, {most})", x.note)


CLAMP = Operation(
    "clamp({0}, {1}, {2})", "torch.clamp({0}, {1}, {2})", "np.clip({0}, {1}, {2})",
    lambda x, low, high, out=None: torch.clamp(x, low, high, out=out),
    lambda x, low, high: np.minimum(np.maximum(x, low), high), explain=_clamped,
)  # fmt: skip
_CAST_LIMIT = float(1 << 62)  # beyond 2^62 (2^63, with a margin) casts to int64 are undefined


def wrap(x: Tensor, low: int, high: int) -> Tensor:
    """Return integers modulo the number of codes from low to high, a power of two; beyond ±2^62 as ±2^62."""
    integer = x.clamp(-_CAST_LIMIT, _CAST_LIMIT).to(torch.int64)
    return integer.sub_(low).bitwise_and_(high - low).add_(low)


WRAP = Operation(
    "wrap({0}, {1}, {2})", "({0}.long() - {1}) % ({2} - {1} + 1) + {1}",
    "(np.int64({0}) - {1}) % ({2} - {1} + 1) + {1}",

    lambda x, low, high, out=None: wrap(x, low, high) if out is None else out.copy_(wrap(x, low, high)),
    lambda x, low, high: np.float32(int(wrap(torch.tensor([float(x)]), low, high))),
    needs=(SUM, SUM, SUM), exact=True,
)  # fmt: skip
LESS = _test("{0} < {1}", "{0} < {1}", torch.lt, lambda a, b: a < b)
AT_MOST = _test("{0} <= {1}", "{0} <= {1}", torch.le, lambda a, b: a <= b)
EQUAL = _test("{0} is {1}", "{0} == {1}", torch.eq, lambda a, b: a == b)
IS_FINITE = _test("{0} is finite", "torch.isfinite({0})", torch.isfinite, np.isfinite)
IS_INFINITE = _test("{0} is infinite", "torch.isinf({0})", torch.isinf, np.isinf)
IS_NAN = _test("{0} is NaN", "torch.isnan({0})", torch.isnan, np.isnan)
MAGNITUDE = Operation("|{0}|", "{0}.abs()", "abs({0})", torch.abs, abs, needs=(ATOM,), exact=True)
RECIPROCAL = Operation(
    "1 / {0}",
    "1 / {0}",
    "1 / {0}",
    lambda x, out=None: torch.reciprocal(x, out=out),
    lambda x: type(x)(1) / x if isinstance(x, np.floating) else np.float32(1) / np.float32(x),
    PRODUCT,
    (ATOM,),
)
NEGATIVE = Operation("-{0}", "-{0}", "-{0}", torch.neg, operator.neg, PRODUCT, (PRODUCT,), exact=True)


def rounded(rule: str | Rounding) -> Operation:
    """Return rounding to integers by a rule or its name, written as round, floor, ceil or trunc."""
    return _rounded(rounding(rule) if isinstance(rule, str) else rule)


_WRITTEN = {"half_even": "round", "floor": "floor", "ceil": "ceil", "toward_zero": "trunc"}
# roundings that torch does not have -> the lines that define them
DEFINITIONS = {
    "half_up": """
def half_up(v):
    return v.floor() + (v - v.floor() >= 0.5)
""",
    "half_away": """
def half_away(v):
    return (v.abs().floor() + (v.abs() - v.abs().floor() >= 0.5)).copysign(v)
""",
    "half_away_of_sum": """
def half_away_of_sum(v):
    return (v.abs() + 0.5).floor().copysign(v)
""",
    "half_even_of_sum": """
def half_even_of_sum(v):
    ties = (v.abs() - 0.5) % 2 == 0
    return ((v.abs() + 0.5).floor() - ties.float()).copysign(v)
""",
}


def _rounded(rule: Rounding) -> Operation:
    name = getattr(rule, "__name__", "")
    word, call = _WRITTEN.get(name, "round"), f"torch.{_WRITTEN[name]}" if name in _WRITTEN else name

    def tensors(x: Tensor, out: Tensor | None = None) -> Tensor:
        if out is None:
            return rule(x.clone())
        return rule(out if out is x else out.copy_(x))

    number: Numbers = np.rint if rule is half_even else _one_by_one(rule)
    return replace(_call(word, call, call.replace("torch.", "np."), tensors, number), exact=True)


def _one_by_one(rule: Callable[[Tensor], Tensor]) -> Numbers:
    def number(x: Any) -> Any:
        return np.float32(float(rule(torch.tensor([float(x)]))))

    return number


def _bfloat16(x: Any) -> Any:
    if np.isnan(x):
        return np.float32(x)
    bits = int(np.float32(x).view(np.uint32))
    rounded = bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000
    return np.uint32(rounded).view(np.float32)


_NARROW: dict[torch.dtype, Numbers] = {
    torch.float16: lambda x: np.float32(np.float16(np.float32(x))), torch.bfloat16: _bfloat16
}  # fmt: skip


@cache
def to(dtype: torch.dtype) -> Operation:
    """Return rounding of a result to a dtype, half to even; the number stays a float32, but for float64."""
    name = str(dtype).removeprefix("torch.")
    if dtype == torch.float64:
        wide: Numbers = np.float64
        return _call(name, "torch.Tensor.double", "np.float64", lambda x, out=None: x.to(dtype), wide)

    def tensors(x: Tensor, out: Tensor | None = None) -> Tensor:
        if x.dtype != torch.float32:
            return x.to(dtype).to(torch.float32)
        return round_to(x.clone() if out is None else out if out is x else out.copy_(x), dtype)

    return _call(name, name, name, tensors, _NARROW.get(dtype, np.float32))


def _fused(x: Tensor, factor: Any, added: Any, out: Tensor | None = None) -> Tensor:
    """torch.add with alpha is a fused multiply-add; a test compares it with exact arithmetic."""
    shift = torch.as_tensor(0.0 if added is None else added, dtype=x.dtype).reshape(())
    return torch.add(shift, x, alpha=float(factor), out=out)


def _fused_exactly(x: Any, factor: Any, added: Any) -> Any:
    """Round once: in exact fractions where all numbers are finite."""
    x, factor, added = (np.float32(n) for n in (x, factor, 0.0 if added is None else added))
    if not all(np.isfinite((x, factor, added))):
        return x * factor + added
    exact = Fraction(float(x)) * Fraction(float(factor)) + Fraction(float(added))
    if exact == 0:
        return x * factor + added  # its sign
    return _nearest(exact)


def _nearest(exact: Fraction) -> Any:
    """Round a fraction to float32, half to even."""
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    unit = Fraction(2) ** (max(exponent, -126) - 23)
    units = round(size / unit)  # half to even
    largest = Fraction(2) ** 128
    value = np.float32(np.inf) if units * unit >= largest else np.float32(float(units * unit))
    return -value if exact < 0 else value


def _as_sum(*terms: Any) -> Explained:
    """Where its numbers are shown, it is written as what is rounded."""

    def text(kind: str) -> str:
        x, factor, added = (getattr(term, kind) for term in terms)
        return f"{x.within(PRODUCT)} · {factor.within(ATOM)} + {added.within(PRODUCT)}"

    return Explained(text("names"), text("numbers"), "rounded once")


FUSED = Operation(
    "fma({0}, {1}, {2})", "torch.add(torch.tensor(float({2})), {0}, alpha={1}.item())", "fma({0}, {1}, {2})",
    _fused, _fused_exactly, explain=_as_sum,
)  # fmt: skip


def _power(exponent: Any, out: Tensor | None = None) -> Tensor:
    # from its bits in float64, where it is a normal number: torch.ldexp takes three times as long
    whole = torch.as_tensor(exponent)
    if whole.is_floating_point():
        whole = whole.clamp(1 - _LARGEST_EXPONENT, _LARGEST_EXPONENT)
    bits = (whole.nan_to_num(0.0).to(torch.int64) + _LARGEST_EXPONENT) << 52
    found = bits.view(torch.float64).to(torch.float32)
    if whole.is_floating_point():
        found.masked_fill_(whole.isnan(), torch.nan)
    return found if out is None else out.copy_(found)


def _power_of_one(exponent: Any) -> Any:
    with np.errstate(all="ignore"):
        exact = np.isfinite(exponent)
        return np.ldexp(np.float32(1), int(exponent)) if exact else np.exp2(np.float32(exponent))


_IN_TORCH, _IN_NUMPY = "torch.ldexp(torch.tensor(1.0), {0})", "np.float32(2.0 ** ({0}))"
POWER_OF_TWO = Operation("2^({0})", _IN_TORCH, _IN_NUMPY, _power, _power_of_one, PRODUCT)
LOG2 = _call("log2", "torch.log2", "np.log2", torch.log2, _one_by_one(torch.log2))


_MANTISSA, _BIAS = 23, 127  # of float32


def _of_bits(word: str, name: str, of_infinity: float = 128.0) -> Operation:
    """Return floor or ceil of log2 from the bits of float32, as float32: -127 for 0 and subnormal numbers."""

    def tensors(x: Tensor, out: Tensor | None = None) -> Tensor:
        bits = x.to(torch.float32).view(torch.int32)
        found = ((bits >> _MANTISSA) & 0xFF) - _BIAS
        if word == "ceil":
            found += (bits & ((1 << _MANTISSA) - 1)) > 0
        other = torch.where(x == torch.inf, of_infinity, torch.nan if of_infinity < torch.inf else torch.inf)
        return torch.where(x < torch.inf, found.to(torch.float32), other)

    call = f"{name}({{0}})"
    return Operation(f"{word}(log2({{0}}))", call, call, tensors, _one_by_one(tensors))


# exponents of magnitudes; ∞ counts as 2^128, or it and NaN give ∞
EXPONENT, EXPONENT_CEIL = _of_bits("floor", "exponent"), _of_bits("ceil", "exponent_ceil")
EXPONENT_OR_INFINITY = _of_bits("floor", "exponent_or_infinity", torch.inf)


@cache
def entry(table: tuple[int | float, ...]) -> Operation:
    """Return the entry of a table at an index."""
    text = f"({', '.join(map(str, table))})"

    def tensors(index: Any, out: Tensor | None = None) -> Tensor:
        values = torch.tensor(table)
        found = values[torch.as_tensor(index).long()]
        return found if out is None else out.copy_(found)

    return Operation(
        f"{text}[{{0}}]", f"torch.tensor({text})[{{0}}]", f"{text}[{{0}}]", tensors, lambda i: table[int(i)]
    )


def _count_ones(bits: Tensor, out: Tensor | None = None) -> Tensor:
    wide = torch.as_tensor(bits).long()
    return sum(((wide >> at) & 1 for at in range(1, 32)), wide & 1)


ONES = _call("ones", "ones", "ones", _count_ones, lambda bits: int(bits).bit_count())


def renamed(expression: Expression, name: str, instead: Expression) -> Expression:
    """Return an expression of operations and branches with another in place of a name."""
    return placed(expression, {name: instead})


def placed(expression: Expression, instead: Mapping[str, Expression]) -> Expression:
    """Return an expression of operations and branches with others in place of names."""
    if isinstance(expression, Name):
        return instead.get(expression.name, expression)
    if expression.names.isdisjoint(instead):
        return expression
    if isinstance(expression, Where):
        test, then, otherwise = (placed(part, instead) for part in expression.children)
        return replace(expression, test=test, then=then, otherwise=otherwise)
    assert isinstance(expression, Applied)
    return expression.operation(*(placed(o, instead) for o in expression.operands))


def in_dtype(expression: Expression, dtype: torch.dtype, dtypes: Mapping[str, torch.dtype]) -> Expression:
    """Return an expression in a dtype: its names are brought to it, and each result is rounded to it.

    Tests are made of numbers as they are.

    Args:
        dtypes: of the names; one without, such as a constant, is left as it is.
    """
    if isinstance(expression, Name):
        return expression if dtypes.get(expression.name, dtype) == dtype else to(dtype)(expression)
    if isinstance(expression, Applied):
        found = expression.operation(*(in_dtype(o, dtype, dtypes) for o in expression.operands))
        exact = expression.operation.exact or dtype in (torch.float32, torch.float64)
        return found if exact else to(dtype)(found)
    if isinstance(expression, Where):
        then, otherwise = (_branch(e, dtype, dtypes) for e in (expression.then, expression.otherwise))
        return Where(expression.test, expression.value, then, otherwise, expression.note)
    if isinstance(expression, Let):
        return _let_in_dtype(expression, dtype, tuple(sorted(dtypes.items(), key=str)))
    return expression


def _branch(expression: Expression, dtype: torch.dtype, dtypes: Mapping[str, torch.dtype]) -> Expression:
    if isinstance(expression, Number):  # of an operation it is taken as it is, as torch takes a number
        return Number(float(torch.tensor(expression.value, dtype=torch.float64).to(dtype)))
    return in_dtype(expression, dtype, dtypes)


@lru_cache(maxsize=256)
def _let_in_dtype(let: Let, dtype: torch.dtype, dtypes: tuple[tuple[str, torch.dtype], ...]) -> Let:
    # one for all its places, so that it is computed once
    return Let(let.name, in_dtype(let.of, dtype, dict(dtypes)), let.note, let.after)


def without(expression: Expression, *absent: str) -> Expression:
    """Return the expression where these numbers are absent: nothing is added or subtracted."""
    found = _present(expression, frozenset(absent))
    assert found is not None
    return found


def _present(expression: Expression, absent: frozenset[str]) -> Expression | None:
    if isinstance(expression, Name):
        return None if expression.name in absent else expression
    if not isinstance(expression, Applied) or not expression.names & absent:
        return expression
    operands = [_present(o, absent) for o in expression.operands]
    left = [o for o in operands if o is not None]
    if len(left) == len(operands):
        return expression.operation(*left)
    assert expression.operation in (ADD, SUBTRACT, FUSED)
    return left[0] * left[1] if expression.operation is FUSED else left[0] if left else None
