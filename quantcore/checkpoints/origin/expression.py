"""Arithmetic as text and number at once: each line states exactly what is computed.

A formula has its text with names, its text with numbers, and its result. Integers are exact; everything else is float32
with one rounding per operation; ``float16(...)`` and ``bfloat16(...)`` round a result further. ``·`` multiplies, ``^``
is a power, ``mod`` a remainder that is never negative, ``(a, b, c)[i]`` an entry of a table, and ``ones(n)`` the number
of bits set to 1.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from quantcore.tracing import number, signed

Value = int | np.float32
# how tightly a text binds: a loose one needs parentheses in any formula
_LOOSE, _SUM, _PRODUCT, _ATOM = range(4)
_PYTHON = {"·": "*", "^": "**", " mod ": " % "}


@dataclass(frozen=True)
class Formula:
    """``names``: with names, ``(q - z) · s``; ``numbers``: ``(11 - 8) · 0.5``; ``value``: the result."""

    names: str
    numbers: str
    value: Value
    binds: int = _ATOM

    def __add__(self, other: "Formula | int") -> "Formula":
        """The sum."""
        return self._with("+", other, _SUM, lambda a, b: a + b)

    def __sub__(self, other: "Formula | int") -> "Formula":
        """The difference."""
        return self._with("-", other, _SUM, lambda a, b: a - b)

    def __mul__(self, other: "Formula | int") -> "Formula":
        """The product."""
        return self._with("·", other, _PRODUCT, lambda a, b: a * b)

    def __truediv__(self, other: "Formula | int") -> "Formula":
        """The quotient, float32."""
        return self._with("/", other, _PRODUCT, lambda a, b: np.float32(a) / np.float32(b))

    def __mod__(self, other: int) -> "Formula":
        """The remainder."""
        return replace(self._with("mod", other, _PRODUCT, lambda a, b: a % b), binds=_LOOSE)

    def __rshift__(self, other: int) -> "Formula":
        """The number without its lowest bits."""
        return replace(self._with(">>", other, _ATOM, lambda a, b: a >> b), binds=_LOOSE)

    def _with(
        self, sign: str, other: "Formula | int", binds: int, operate: Callable[[Any, Any], Any]
    ) -> "Formula":
        right = other if isinstance(other, Formula) else constant(other)

        def text(mine: str, theirs: str) -> str:
            return f"{_bound(mine, self.binds, binds)} {sign} {_bound(theirs, right.binds, min(binds + 1, _ATOM))}"

        with np.errstate(all="ignore"):
            value = _as_value(operate(self.value, right.value))
        return Formula(text(self.names, right.names), text(self.numbers, right.numbers), value, binds)

    def __str__(self) -> str:
        return self.numbers


def _bound(text: str, binds: int, needed: int) -> str:
    return text if binds >= needed else f"({text})"


def _as_value(value: Any) -> Value:
    exact = isinstance(value, int | np.integer) or (isinstance(value, float) and value.is_integer())
    return int(value) if exact else np.float32(value)


def text_of(value: Value) -> str:
    """Return the shortest decimal that reads back as the same number."""
    return str(value) if isinstance(value, int) else number(float(value))


def constant(value: int | float | np.float32) -> Formula:
    """A number without a name: an integer or a float32."""
    kept = _as_value(value)
    text = str(kept) if isinstance(kept, int) else number(float(kept))
    return Formula(text, text, kept)


def named(name: str, value: Value) -> Formula:
    """A number with a name."""
    if isinstance(value, int):
        return Formula(name, f"({value})" if value < 0 else str(value), value)
    return Formula(name, signed(float(value)), value)


def power_of_two(exponent: Formula) -> Formula:
    """2^exponent."""
    with np.errstate(all="ignore"):
        value = np.float32(2.0 ** int(exponent.value))
    return Formula(f"2^({exponent.names})", f"2^({exponent.numbers})", value, _PRODUCT)


def entry(table: tuple[int, ...], index: Formula) -> Formula:
    """An entry of a table."""
    text = f"({', '.join(map(str, table))})"
    return Formula(f"{text}[{index.names}]", f"{text}[{index.numbers}]", table[int(index.value)])


def ones(bits: Formula) -> Formula:
    """The number of bits set to 1."""
    return Formula(f"ones({bits.names})", f"ones({bits.numbers})", int(bits.value).bit_count())


def rounded(formula: Formula, dtype: torch.dtype) -> Formula:
    """A result rounded to a dtype, half to even."""
    name = str(dtype).removeprefix("torch.")
    value = np.float32(float(torch.tensor(float(formula.value)).to(dtype)))
    numbers = (
        formula.numbers[1:-1]
        if formula.numbers.startswith("(-") and formula.binds == _ATOM
        else formula.numbers
    )
    return Formula(f"{name}({formula.names})", f"{name}({numbers})", value)


@dataclass(frozen=True)
class Line:
    """One line of arithmetic.

    ``name``: of the result; ``formula``: with names, ``numbers``: the same with numbers; ``value``: the result;
    ``note``: what it means, in words; ``python``: the formula for NumPy.
    """

    name: str
    formula: str
    numbers: str
    value: Value
    note: str
    python: str

    @property
    def result(self) -> str:
        """The shortest decimal that reads back as the result."""
        return text_of(self.value)

    def __str__(self) -> str:
        parts = dict.fromkeys((self.formula, self.numbers, self.result))
        return " = ".join((self.name, *parts))


class Lines:
    """Collects lines; each may use the names of earlier ones."""

    def __init__(self) -> None:
        self.found: list[Line] = []

    def let(self, name: str, formula: Formula, note: str = "", python: str = "") -> Formula:
        """Add a line, and return its result under its name."""
        written = formula.names
        for sign, operator in _PYTHON.items():
            written = written.replace(sign, operator)
        self.found.append(Line(name, formula.names, formula.numbers, formula.value, note, python or written))
        return named(name, formula.value)
