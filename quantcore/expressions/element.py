"""Expressions as text, a formula or code for torch or NumPy; and on single numbers, the lines of a trace.

Each line has its names, its numbers, its result and its code.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Any, NamedTuple

import numpy as np

from quantcore.expressions.nodes import (
    ATOM,
    LOOSE,
    Applied,
    Dialect,
    Expression,
    Let,
    Name,
    Number,
    Operation,
    Value,
    Where,
)
from quantcore.numerics import decimal


class Text(NamedTuple):
    """A text, and how tightly it binds."""

    text: str
    binds: int = ATOM

    def within(self, needed: int) -> str:
        """Return the text, in parentheses where it binds less tightly than needed."""
        return self.text if self.binds >= needed else f"({self.text})"


def put(operation: Operation, texts: Sequence[Text], dialect: Dialect = "symbols") -> Text:
    """Return the text of an operation on operands."""
    needs = chain(operation.needs, repeat(LOOSE))
    parts = [
        text.text if text.binds >= needed else f"({text.text})"
        for text, needed in zip(texts, needs, strict=False)
    ]
    template: str = getattr(operation, dialect)
    return Text(template.format(*parts), operation.binds)


def of_number(value: float | Value) -> Text:
    """Return the shortest decimal that reads back as the same float32, or the integer."""
    text = str(value) if isinstance(value, int) else decimal(float(value))
    return Text(text, LOOSE if text.startswith("-") else ATOM)


def written(
    expression: Expression, dialect: Dialect = "symbols", names: Mapping[str, str] | None = None
) -> str:
    """Return an expression as text.

    Args:
        names: what stands for a name, a name by itself where it is missing; "" for a number that is absent,
            so that nothing is added or subtracted.
    """
    return _text(expression, dialect, names or {}).text


def _text(expression: Expression, dialect: Dialect, names: Mapping[str, str]) -> Text:
    if isinstance(expression, Number):
        return of_number(expression.value)
    if isinstance(expression, Name):
        given = names.get(expression.name)
        return Text(expression.name, expression.binds) if given is None else Text(given)
    if isinstance(expression, Let):
        return Text(expression.name)
    if isinstance(expression, Where):
        return _text(expression.otherwise, dialect, names)
    assert isinstance(expression, Applied)
    texts = [_text(o, dialect, names) for o in expression.operands]
    present = [text for text in texts if text.text]
    if len(present) == 1 < len(texts):
        return present[0]
    return put(expression.operation, texts, dialect)


@dataclass(frozen=True)
class Line:
    """One line of arithmetic.

    ``name``: of the result; ``formula``: with names, ``numbers``: the same with numbers; ``value``: the
    result; ``note``: what it means, in words; ``python``: the formula for NumPy.
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


@dataclass(frozen=True)
class Term:
    """A part of a line: as it is written, and its value. ``note``: what an operation says of its numbers."""

    names: Text
    numbers: Text
    python: Text
    value: Value
    note: str = ""


def text_of(value: Value) -> str:
    """Return the shortest decimal that reads back as the same number."""
    return of_number(value).text


def named(name: str, value: Value) -> Term:
    """Return a number under its name."""
    return Term(Text(name), of_number(value), Text(name), value)


class Element:
    """Reads expressions on single numbers, and collects a line for each `Let`.

    ``read``: returns the number of a name; it may read a file, or other expressions. ``lines``: added to.
    ``narrow``: rounds each result to a dtype.
    """

    def __init__(
        self,
        read: Callable[[str], Term],
        lines: list[Line] | None = None,
        narrow: Callable[[Any], Any] | None = None,
    ) -> None:
        self._read, self._narrow = read, narrow
        self._known: dict[Expression, Term] = {}
        self.lines = [] if lines is None else lines

    def of(self, expression: Expression) -> Term:
        """Return an expression as text and number; what is named is computed once."""
        if isinstance(expression, Applied):
            found = _applied(expression, [self.of(o) for o in expression.operands])
            exact = self._narrow is None or expression.operation.exact
            return found if exact else replace(found, value=self._narrow(found.value))  # type: ignore[misc]
        if isinstance(expression, Where):
            if self._tested(expression.test) != expression.value:
                return self.of(expression.otherwise)
            taken = self.of(expression.then)
            return replace(taken, note=expression.note) if expression.note else taken
        if expression not in self._known:
            self._known[expression] = self._found(expression)
        return self._known[expression]

    def _tested(self, test: Expression) -> Value:
        """Return the number of a test, which is not written."""
        if not isinstance(test, Applied):
            return self.of(test).value
        found: Value = test.operation.on_numbers(*(self._tested(o) for o in test.operands))
        return found

    def _found(self, expression: Expression) -> Term:
        if isinstance(expression, Number):
            value = _as_value(expression.value)
            text = of_number(value)
            is_literal = isinstance(value, int) or np.isfinite(value)
            code = text if is_literal else Text(f"np.float32('{text.text}')")
            return Term(text, text, code, value)
        if isinstance(expression, Name):
            return self._read(expression.name)
        assert isinstance(expression, Let)
        for part in expression.after:
            self.of(part)
        found = self.of(expression.of)
        note = expression.note or found.note
        self.lines.append(
            Line(expression.name, found.names.text, found.numbers.text, found.value, note, found.python.text)
        )
        return named(expression.name, found.value)


def _applied(expression: Applied, terms: list[Term]) -> Term:
    operation = expression.operation
    with np.errstate(all="ignore"):
        value = _as_value(operation.on_numbers(*(term.value for term in terms)))
    python = put(operation, [term.python for term in terms], "numpy")
    if operation.explain is not None:
        said = operation.explain(*terms)
        if said.numpy:
            python = Text(said.numpy, operation.binds)
        names, numbers = Text(said.names, operation.binds), Text(said.numbers, operation.binds)
        return Term(names, numbers, python, value, said.note)
    names = put(operation, [term.names for term in terms])
    numbers = put(operation, [term.numbers for term in terms])
    return Term(names, numbers, python, value, next((term.note for term in terms if term.note), ""))


def _as_value(value: Any) -> Value:
    if isinstance(value, np.float64):
        return value
    exact = isinstance(value, int | np.integer) or (isinstance(value, float) and value.is_integer())
    return int(value) if exact else np.float32(value)
