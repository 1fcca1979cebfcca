"""Expressions as text: a formula, or code for torch or NumPy."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
    needs = (*operation.needs, *(LOOSE,) * len(texts))
    parts = (text.within(needed) for text, needed in zip(texts, needs, strict=False))
    return Text(operation.template(dialect).format(*parts), operation.binds)


def of_number(value: float | Value) -> Text:
    """Return the shortest decimal that reads back as the same float32, or the integer."""
    text = str(value) if isinstance(value, int) else decimal(float(value))
    return Text(text, LOOSE if text.startswith("-") else ATOM)


def written(expression: Expression, dialect: Dialect = "symbols", names: Mapping[str, str] | None = None) -> str:
    """Return an expression as text.

    Args:
        names: what stands for a name, a name by itself where it is missing; "" for a number that is absent, so that
            nothing is added or subtracted.
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
